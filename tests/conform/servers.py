"""Servers for lmtp-conform. Each has its own directory, a Unix socket and two recipients, with mail in files
below .stored.
"""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import debian_root  # noqa: E402
import dovecot_conf  # noqa: E402
import mail  # noqa: E402
import twinloft as tl  # noqa: E402

RECIPIENTS, UNKNOWN = ["ann@conform.example", "bob@conform.example"], "eve@conform.example"
MESSAGE_MAX = 1 << 20  # the configured limit of each server, so that the checks of the limit are short


class Server:
    version, stored = "", None

    def __init__(self, stage):
        self.stage, self.dir = stage, stage.dir / self.name
        self.dir.mkdir()
        self.dir.chmod(0o755)
        self.socket = self.dir / "lmtp"

    def owned(self, name):
        path = self.dir / name
        path.mkdir()
        os.chown(path, *tl.uid_of("vmail"))
        return path

    def options(self):
        return []

    def certificate(self):
        tl.self_signed(self.dir / "certificate.pem", self.dir / "key.pem", "mx.conform.example")

    def wait(self, process):
        tl.wait_for(lambda: tl.accepts(self.socket) or process.check_alive(), f"{self.name} to listen")


class Lmtpd(Server):
    name = "lmtpd"

    def options(self):
        return ["--utf8-recipient", "j\u00f6rg@conform.example", "--tls-required", f"unix:{self.dir}/lmtp-tls"]

    def start(self):
        self.stored = self.owned("spool")
        self.certificate()
        config = self.dir / "lmtpd.toml"
        config.write_text(f"""hostname = "mx.conform.example"
user = "vmail"
log_level = "warning"
[[listen]]
address = "unix:{self.socket}"
tls = "offered"
trusted = ["unix"]
[[listen]]
address = "unix:{self.dir}/lmtp-tls"
tls = "required"
trusted = ["unix"]
[tls]
certificate = "{self.dir}/certificate.pem"
key = "{self.dir}/key.pem"
[limits]
message_size = "{MESSAGE_MAX}"
body_memory = "1KiB"
[users]
driver = "static"
users = ["ann", "bob", "jörg"]
domains = ["conform.example"]
home = "{self.stored}/%user%"
maildir = "{self.stored}/%user%/Maildir"
[spool]
path = "{self.stored}"
require_marker = false
""")
        mail.serve(self.stage, self.name, config, self.socket)
        self.version = tl.run(tl.BIN / "lmtpd", "--version").stdout.strip()


class Dovecot(Server):
    name = "dovecot"
    CONFIG = """base_dir = {dir}/run
state_dir = {dir}/state
instance_name = conform-{pid}
log_path = {dir}/log
protocols = lmtp
ssl = yes
first_valid_uid = 1
postmaster_address = postmaster@conform.example
hostname = dovecot.invalid
submission_max_mail_size = {max}
service lmtp {{
  unix_listener {dir}/lmtp {{
    mode = 0666
  }}
}}
service auth {{
  unix_listener auth-userdb {{
    mode = 0666
  }}
}}
service stats {{
  unix_listener stats-writer {{
    mode = 0666
  }}
}}
"""

    def start(self):
        self.stored = self.owned("spool")
        uid, gid = tl.uid_of("vmail")
        (self.dir / "users").write_text("".join(f"{u}::{uid}:{gid}::{self.stored}/{u}::\n" for u in RECIPIENTS))
        self.certificate()
        for name in ("run", "state"):
            (self.dir / name).mkdir(mode=0o755)
        log = self.dir / "log"
        log.touch()
        log.chmod(0o666)
        config = self.dir / "dovecot.conf"
        c = dovecot_conf
        config.write_text(c.begin() + self.CONFIG.format(dir=self.dir, pid=os.getpid(), max=MESSAGE_MAX) + c.maildir() + c.password("x")
                          + c.certificate(self.dir / "certificate.pem", self.dir / "key.pem") + c.users_file(self.dir / "users", "%Lu"))
        dovecot_conf.start(self.stage, self.name, config, log)
        self.version = "Dovecot " + tl.run("dovecot", "--version").stdout.split()[0]


class Cyrus(Server):
    """Cyrus's package conflicts with Dovecot's, so Cyrus is unpacked into a directory, with the libraries
    that it needs.
    """
    name = "cyrus"
    CONFIG = """configdirectory: {dir}/conf
partition-default: {dir}/spool
proc_path: {dir}/conf/proc
mboxname_lockpath: {dir}/conf/lock
defaultpartition: default
cyrus_user: vmail
cyrus_group: vmail
virtdomains: off
altnamespace: yes
unixhierarchysep: yes
autocreate_post: yes
autocreate_users: ann bob
autocreate_quota: 0
duplicatesuppression: no
conversations: no
maxmessagesize: {max}
tls_server_cert: {dir}/certificate.pem
tls_server_key: {dir}/key.pem
"""
    SERVICES = """START {{
  recover cmd="{bin}/ctl_cyrusdb -C {dir}/imapd.conf -r"
}}
SERVICES {{
  lmtpunix cmd="{bin}/lmtpd -C {dir}/imapd.conf -a" listen="{dir}/conf/socket/lmtp" prefork=0 maxchild=20
}}
EVENTS {{
}}
"""

    def start(self):
        root = debian_root.unpacked("cyrus", ["cyrus-imapd"], over_machine=True)
        self.stored, self.socket = self.owned("spool"), self.dir / "conf/socket/lmtp"
        for name in ("conf", "conf/db", "conf/socket", "conf/proc", "conf/lock", "conf/user", "conf/quota", "conf/log", "conf/msg", "conf/ptclient"):
            self.owned(name)
        self.certificate()
        for name in ("certificate.pem", "key.pem"):
            os.chown(self.dir / name, *tl.uid_of("vmail"))
        words = {"dir": self.dir, "bin": root / "usr/lib/cyrus/bin", "max": MESSAGE_MAX}
        (self.dir / "imapd.conf").write_text(self.CONFIG.format(**words))
        (self.dir / "cyrus.conf").write_text(self.SERVICES.format(**words))
        libraries = [root / d for d in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/cyrus", "usr/lib")]
        self.wait(self.stage.start(self.name, [words["bin"] / "master", "-C", self.dir / "imapd.conf", "-M", self.dir / "cyrus.conf", "-p", self.dir / "pid"],
                                   env=dict(os.environ, LD_LIBRARY_PATH=":".join(map(str, libraries)))))
        self.version = "Cyrus " + debian_root.version(root, "cyrus-imapd")


ALL = {s.name: s for s in (Lmtpd, Dovecot, Cyrus)}
make_users = mail.make_users
