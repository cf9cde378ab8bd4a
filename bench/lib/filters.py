"""The other programs of bench/ways: Dovecot, rspamd, and a filter in C."""
import os, pathlib

import dovecot_conf
import twinloft as tl
from twinloft import BIN

USER_OF_RSPAMD = "_rspamd"
DOVECOT_LDA = "/usr/lib/dovecot/dovecot-lda"
# The script looks at one header field, and keeps the message.
SCRIPT = """require ["fileinto"];
if header :contains "X-Spam" "yes" { fileinto "Junk"; }
"""


class Dovecot:
    """Dovecot over the homes SPOOL/DOMAIN/USER, without any protocol for clients. quota: it counts, with a limit of 1 GB for
    each user, and answers at `quota_status`. sieve: scripts run in its LMTP at `lmtp`, and in dovecot-lda. lmtp: its LMTP at
    `lmtp` without scripts, with so many processes that wait for clients; fsync: its mail_fsync. more: further lines of the configuration. starts: at
    once; else by start().
    """

    def __init__(self, stage, name, spool, quota=False, sieve=False, lmtp=0, fsync="always", more="", starts=True):
        self.name, self.dir = name, stage.dir / name
        self.dir.mkdir()
        self.dir.chmod(0o755)
        self.config, self.quota_status, self.lmtp = self.dir / "dovecot.conf", self.dir / "run/quota-status", self.dir / "run/twinloft-lmtp"
        uid, gid = tl.uid_of("vmail")
        (self.dir / "log").touch()
        (self.dir / "log").chmod(0o666)  # dovecot-lda writes as vmail
        self.config.write_text(f"""{dovecot_conf.begin()}base_dir = {self.dir}/run
state_dir = {self.dir}/state
log_path = {self.dir}/log
ssl = no
{dovecot_conf.protocols(*["lmtp"] * (sieve or lmtp > 0))}{dovecot_conf.maildir()}namespace inbox {{
  inbox = yes
}}
{dovecot_conf.no_password()}{dovecot_conf.static_users(uid, gid, f"{spool}/%d/%n")}service auth {{
  unix_listener auth-userdb {{
    mode = 0666
  }}
}}
{self.with_quota() if quota else ""}{self.with_sieve() if sieve else ""}{self.with_lmtp(lmtp, fsync) if lmtp else ""}{more}""")
        self._stage = stage
        if starts:
            self.start()

    def start(self, launch=None):
        """launch: as for dovecot_conf.start()."""
        self.process = dovecot_conf.start(self._stage, self.name, self.config, self.dir / "log", launch)

    @staticmethod
    def with_quota():
        return dovecot_conf.plugins("quota") + dovecot_conf.quota("count") + dovecot_conf.quota_limit("1G") + """service quota-status {
  executable = quota-status -p postfix
  client_limit = 1
  unix_listener quota-status {
    mode = 0666
  }
}
"""

    @staticmethod
    def with_lmtp(processes, fsync):
        """Processes that stay and wait, syncs of each message, and no look at a directory for changes of others."""
        return f"""mail_fsync = {fsync}
maildir_very_dirty_syncs = yes
service lmtp {{
  process_min_avail = {processes}
  client_limit = 1
  {dovecot_conf.by_version("service_count = 0", "restart_request_count = unlimited")}
  unix_listener twinloft-lmtp {{
    mode = 0666
  }}
}}
"""

    @staticmethod
    def with_sieve():
        active = dovecot_conf.by_version("plugin {\n  sieve = file:~/sieve;active=~/.dovecot.sieve\n}\n",
                                         "sieve_script personal {\n  driver = file\n  path = ~/sieve\n  active_path = ~/.dovecot.sieve\n}\n")
        plugin = dovecot_conf.by_version("  mail_plugins = $mail_plugins sieve\n", "  mail_plugins {\n    sieve = yes\n  }\n")
        return f"""protocol lmtp {{
{plugin}}}
protocol lda {{
{plugin}}}
service lmtp {{
  unix_listener twinloft-lmtp {{
    mode = 0666
  }}
}}
recipient_delimiter = +
{active}"""


def give_scripts(spool, users, percent):
    """Every user of mailbench has a home. This share of them has an active script."""
    uid, gid = tl.uid_of("vmail")
    for number in range(1, users + 1):
        home = pathlib.Path(spool) / f"example.org/user{number}"
        (home / "sieve").mkdir(parents=True)
        if number * percent % 100 < percent:
            (home / "sieve/main.sieve").write_text(SCRIPT)
            (home / ".dovecot.sieve").symlink_to("sieve/main.sieve")
    tl.run("chown", "-R", f"{uid}:{gid}", spool)


def start_filter(stage, name, *words):
    """A filter in C on libmilter that changes nothing. Returns its socket."""
    path = stage.dir / f"{name}.sock"
    process = stage.start(name, [BIN / "bench_filter", f"unix:{path}", *words])
    tl.wait_for(lambda: tl.accepts(path) or process.check_alive(), name)
    path.chmod(0o666)
    return path


# Without the network, and without modules that need it, or Redis.
RSPAMD = {
    "local.d/options.inc": 'dns { nameserver = ["127.0.0.1:1"]; retransmits = 1; timeout = 0.1s; }\n',
    "local.d/logging.inc": 'level = "error";\n',
    "local.d/worker-normal.inc": "enabled = false;\n",
    **{f"local.d/{module}.conf": "enabled = false;\n" for module in (
        "rbl", "spf", "dkim", "dmarc", "arc", "asn", "mx_check", "surbl", "phishing", "fuzzy_check", "neural", "greylist", "ratelimit", "history_redis", "replies",
        "url_redirector", "bimi", "known_senders", "hfilter")},
    "local.d/classifier-bayes.conf": "enabled = false;\n",
    "local.d/statistic.conf": "classifier \"bayes\" { enabled = false; }\n",
}


def start_rspamd(stage):
    """rspamd as a milter, with its rules as packaged, except for those that need the network. Returns its socket."""
    directory = stage.dir / "rspamd"
    for part in ("local.d", "override.d", "db", "run", "log"):
        (directory / part).mkdir(parents=True)
    for name, text in RSPAMD.items():
        (directory / name).write_text(text)
    path = directory / "run/milter.sock"
    (directory / "local.d/worker-proxy.inc").write_text(
        f'bind_socket = "{path} mode=0666";\nupstream "local" {{ default = yes; self_scan = yes; }}\ncount = {os.cpu_count()};\n')
    (directory / "local.d/worker-controller.inc").write_text(f'bind_socket = "{directory}/run/controller.sock mode=0600";\n')
    tl.run("chown", "-R", f"{USER_OF_RSPAMD}:{USER_OF_RSPAMD}", directory)
    directory.chmod(0o755)
    process = stage.start("rspamd", ["rspamd", "-f", "-u", USER_OF_RSPAMD, "-g", USER_OF_RSPAMD, "-c", "/etc/rspamd/rspamd.conf",
                                     f"--var=LOCAL_CONFDIR={directory}", f"--var=DBDIR={directory}/db", f"--var=RUNDIR={directory}/run", f"--var=LOGDIR={directory}/log"])
    tl.wait_for(lambda: tl.accepts(path) or process.check_alive(), "rspamd")
    return path
