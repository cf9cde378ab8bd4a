# A private Dovecot for tests and demos: sourced by bash scripts that run as root.
#
#   dovecot_users                      makes the user vmail (uid and gid 5000 where free) if it is missing
#   dovecot_config DIR SPOOL [PORT]    writes DIR/dovecot.conf: LMTP on DIR/lmtp, IMAP on 127.0.0.1:PORT, if given
#   dovecot_start DIR                  starts it in the foreground of a background job; returns when it listens
#   dovecot_stop DIR                   ends it by its PID, and waits for its end
#   dovecot_lda_template DIR           prints the delivery command for lmtpd's template, with the same config
#
# Every user exists (static userdb): mail of user@domain is in SPOOL/domain/user/Maildir, owned by vmail. The
# IMAP password is DOVECOT_PASSWORD ("test"). IMAP listens on DOVECOT_IMAP_LISTEN (127.0.0.1). DIR must be
# short: its socket paths may have 107 bytes at most. Dovecot's log is DIR/log. The spool may be missing for
# dovecot_config, but not for dovecot_start. DOVECOT_WRAP runs Dovecot in a network namespace, for example
# DOVECOT_WRAP="ip netns exec NAME".

DOVECOT_PASSWORD=${DOVECOT_PASSWORD:-test}
DOVECOT_IMAP_LISTEN=${DOVECOT_IMAP_LISTEN:-127.0.0.1}
DOVECOT_WRAP=${DOVECOT_WRAP:-}

# Two tests at once may want it.
dovecot_users() (
  exec 9>"${TMPDIR:-/tmp}/twinloft-test-accounts" && flock 9 || return 1
  getent group vmail >/dev/null || groupadd --system vmail || return 1
  getent passwd vmail >/dev/null ||
    useradd --system --gid vmail --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin vmail
)

# The settings with different names in 2.3 and 2.4. The variables spool and protocols are dovecot_config's.
dovecot_settings_2_3() {
  cat <<EOF
protocols = $protocols
disable_plaintext_auth = no
mail_location = maildir:~/Maildir
passdb {
  driver = static
  args = password=$DOVECOT_PASSWORD
}
userdb {
  driver = static
  args = uid=vmail gid=vmail home=$spool/%Ld/%Ln allow_all_users=yes
}
EOF
}

dovecot_settings_2_4() {
  cat <<EOF
dovecot_config_version = 2.4.0
dovecot_storage_version = 2.4.0
protocols = $protocols
auth_allow_cleartext = yes
mail_driver = maildir
mail_path = ~/Maildir
passdb static {
  password = $DOVECOT_PASSWORD
}
userdb static {
  fields {
    uid = vmail
    gid = vmail
    home = $spool/%{user | domain | lower}/%{user | username | lower}
  }
  static_allow_all_users = yes
}
EOF
}

# Prints the suffix of the function names above. An unknown version gets the newest settings, and doveconf
# reports what is wrong with them.
dovecot_version() {
  case "$(dovecot --version)" in
    2.3.*) echo 2_3 ;;
    *) echo 2_4 ;;
  esac
}

dovecot_config() {
  local dir=$1 spool=$2 port=${3:-} protocols="lmtp" version listen=listen
  [ -n "$port" ] && protocols="lmtp imap"
  version=$(dovecot_version)
  [ "$version" = 2_3 ] && listen=address
  mkdir -p "$dir/run" "$dir/state" || return 1
  # Dovecot's login and anvil processes have their own users and must reach their sockets.
  chmod 755 "$dir" "$dir/run"
  # dovecot-lda also logs there, as the mailbox's owner.
  touch "$dir/log" && chmod 666 "$dir/log"
  "dovecot_settings_$version" >"$dir/dovecot.conf"
  cat >>"$dir/dovecot.conf" <<EOF
base_dir = $dir/run
state_dir = $dir/state
instance_name = twinloft-$$
log_path = $dir/log
ssl = no
auth_mechanisms = plain
first_valid_uid = 1
# The same durability as lmtpd promises: file and directory are synced before the reply.
mail_fsync = always
mail_max_userip_connections = 1000
lmtp_save_to_detail_mailbox = no
lda_mailbox_autocreate = yes
postmaster_address = postmaster@example.org
hostname = dovecot.invalid
namespace inbox {
  inbox = yes
}
service lmtp {
  process_min_avail = 4
  client_limit = 1
  process_limit = 500
  unix_listener $dir/lmtp {
    mode = 0666
  }
}
service auth {
  client_limit = 4096
  unix_listener auth-userdb {
    mode = 0666
  }
}
service anvil {
  client_limit = 4096
}
service stats {
  client_limit = 4096
  unix_listener stats-writer {
    mode = 0666
  }
}
EOF
  [ -n "$port" ] && cat >>"$dir/dovecot.conf" <<EOF
service imap-login {
  inet_listener imap {
    $listen = $DOVECOT_IMAP_LISTEN
    port = $port
  }
  inet_listener imaps {
    port = 0
  }
}
EOF
  doveconf -c "$dir/dovecot.conf" -n >/dev/null
}

# True once the LMTP socket accepts connections. Dovecot does not report a connection that is closed at once
# as an error.
dovecot_answers() {
  python3 - "$1/lmtp" <<'EOF'
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(10)
try:
    s.connect(sys.argv[1])
    sys.exit(0 if s.recv(4).startswith(b"220") else 1)
except OSError:
    sys.exit(1)
EOF
}

dovecot_start() {
  local dir=$1 tries
  rm -f "$dir/lmtp"
  # exec: the job's PID is then Dovecot's master itself. (ip netns exec also replaces itself.)
  (exec $DOVECOT_WRAP dovecot -c "$dir/dovecot.conf" -F >>"$dir/out" 2>&1) &
  echo $! >"$dir/pid"
  for tries in $(seq 2000); do
    dovecot_answers "$dir" && return 0
    if ! kill -0 "$(cat "$dir/pid")" 2>/dev/null; then break; fi
    sleep 0.05
  done
  echo "Dovecot did not start:" >&2
  cat "$dir/out" "$dir/log" >&2 2>/dev/null
  dovecot_stop "$dir"
  return 1
}

dovecot_stop() {
  local dir=$1 pid
  [ -f "$dir/pid" ] || return 0
  pid=$(cat "$dir/pid")
  rm -f "$dir/pid"
  kill -TERM "$pid" 2>/dev/null || return 0
  wait "$pid" 2>/dev/null
  return 0
}

dovecot_lda_template() {
  echo "/usr/lib/dovecot/dovecot-lda -c $1/dovecot.conf -e -f %from% -a %to% -d %user%"
}
