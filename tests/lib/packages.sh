# Installs by apt what a step needs; sourced by tests/run and bench/demo. TWINLOFT_NO_INSTALL=1 skips it.

packages_build="build-essential ca-certificates ccache cmake ninja-build pkg-config
  libboost1.81-dev libboost-program-options1.81-dev liburing-dev libfuse3-dev libidn2-dev libssl-dev libmariadb-dev libsqlite3-dev libisal-dev
  libxxhash-dev libseccomp-dev libtomlplusplus-dev libfmt-dev libgtest-dev libblkid-dev"
packages_demo="dovecot-core dovecot-imapd dovecot-lmtpd e2fsprogs fuse3 iproute2 python3 sqlite3 util-linux"
packages_test="$packages_demo corosync dovecot-mysql dovecot-pop3d dovecot-sieve dovecot-sqlite etcd-client etcd-server fio git jq libnbd-bin maildrop mariadb-server nbd-client openssl pacemaker pacemaker-cli-utils postfix postal procmail qemu-utils
  python3-libnbd strace systemd xfsprogs"

install_packages() {
  [ -n "${TWINLOFT_NO_INSTALL:-}" ] && return 0
  local missing="" name
  for name in "$@"; do
    dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $name"
  done
  [ -z "$missing" ] && return 0
  echo "Installing:$missing"
  # Postfix and Dovecot must not start by themselves: the tests run their own.
  local policy=/usr/sbin/policy-rc.d made=""
  if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
    made=yes
  fi
  local log
  log=$(mktemp)
  if ! { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -20 "$log" >&2
    echo "apt-get could not install:$missing" >&2
    [ -n "$made" ] && rm -f $policy
    rm -f "$log"
    return 1
  fi
  [ -n "$made" ] && rm -f $policy
  rm -f "$log"
}
