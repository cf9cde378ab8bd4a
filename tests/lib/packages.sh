# Installs the packages of a step by apt. To be sourced by tests/run and bench/demo. TWINLOFT_NO_INSTALL=1
# skips it.

# boost_version: the version in the names of the Boost packages. Debian 12's default, 1.74, is too old. The
# default of later releases is new enough.
boost_version() {
  case "$(. /etc/os-release && echo "${ID:-} ${VERSION_ID:-}")" in
    "debian 12") echo 1.81 ;;
  esac
}

packages_build="build-essential ca-certificates ccache cmake ninja-build pkg-config
  libboost$(boost_version)-dev libboost-program-options$(boost_version)-dev liburing-dev libfuse3-dev libidn2-dev libssl-dev libmariadb-dev libsqlite3-dev libisal-dev
  libxxhash-dev liblz4-dev liblzma-dev libzstd-dev zlib1g-dev libseccomp-dev libmilter-dev libtomlplusplus-dev libfmt-dev libgtest-dev libblkid-dev"
# Of mailbench alone (cmake --preset mailbench).
packages_mailbench="build-essential cmake ninja-build pkg-config python3
  libboost$(boost_version)-dev libboost-program-options$(boost_version)-dev libfmt-dev libisal-dev libssl-dev libxxhash-dev"
packages_demo="dovecot-core dovecot-imapd dovecot-lmtpd e2fsprogs fuse3 iproute2 python3 sqlite3 util-linux"
packages_test="$packages_demo clang-format-19 corosync dovecot-mysql dovecot-pop3d dovecot-managesieved dovecot-sieve dovecot-sqlite etcd-client etcd-server fio git jq libnbd-bin maildrop mariadb-server miltertest nbd-client openssl pacemaker pacemaker-cli-utils postfix postal procmail qemu-utils
  python3-libnbd strace systemd xfsprogs
  clamav-daemon clamav-milter opendkim python3-milter rspamd"
# For tests/long beside those: a browser for the page of bench/matrix.
packages_long="chromium"
# For bench/peers. No test needs them. Cyrus IMAP conflicts with dovecot-imapd, and runs in an unpacked root.
packages_peers="dovecot-lmtpd e2fsprogs fio postfix postal strace"
# For bench/matrix.
packages_matrix="$packages_peers iproute2 xfsprogs"

policy=/usr/sbin/policy-rc.d
policy_mark="# Twinloft's install_packages: no service starts while it installs."

# Postfix and Dovecot must not start by themselves: the tests start private ones. A file with this mark was
# left by an interrupted run.
without_services() (
  grep -qsF "$policy_mark" $policy && rm -f $policy
  if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    trap 'exit 130' INT TERM HUP
    printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" >$policy
    chmod 755 $policy
  fi
  "$@"
)

# Another apt may be running, and an earlier apt may have been interrupted.
apt_install() {
  dpkg --configure -a &&
    apt-get -q -o DPkg::Lock::Timeout=600 update &&
    apt-get -q -y -o DPkg::Lock::Timeout=600 install --no-install-recommends "$@"
}

install_packages() {
  [ -n "${TWINLOFT_NO_INSTALL:-}" ] && return 0
  local missing="" name log status=0
  for name in "$@"; do
    dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $name"
  done
  [ -z "$missing" ] && return 0
  echo "Installing:$missing"
  log=$(mktemp)
  DEBIAN_FRONTEND=noninteractive without_services apt_install $missing >"$log" 2>&1 || status=$?
  if [ $status != 0 ]; then
    tail -20 "$log" >&2
    echo "apt-get could not install:$missing" >&2
  fi
  rm -f "$log"
  return $status
}
