"""lmtpd and Dovecot over the same users and their mail, each with a quota: the common parts of the quota
tests.
"""
import os, re, sqlite3

import dovecot_conf, mail, session
import twinloft as tl
from twinloft import expect

TAKEN = ("DATA", "250 2.0.0")
MIB = 1 << 20
LIMITS = {"ann": (1_000_000, None), "bob": (None, None), "count": (0, 3), "few": (64 * MIB, 20), "free": (0, 0), "large": (64 * MIB, None),
          "small": (20_000, None)}

# For the driver "count".
# Dovecot 2.4 reports a message as too large only above quota_mail_size. Otherwise it reports a full mailbox.
TOO_LARGE = dovecot_conf.by_version("552 5.2.3", "552 5.2.2")
VSIZES = dovecot_conf.by_version("quota_vsizes = yes\n  ", "")  # always on in 2.4
ANSWERS = VSIZES + "quota_status_success = DUNNO\n  quota_status_overquota = 552 5.2.2 Mailbox is full\n  quota_status_toolarge = 552 5.2.3 Message is too large"
SERVICE = """service quota-status {
  executable = quota-status -p postfix
  unix_listener quota-status {
    mode = 0666
  }
  client_limit = 1
}
"""
DOVECOT = dict(quota="count:User quota", plugin=ANSWERS, more=SERVICE)


class Mailboxes:
    """lmtpd and Dovecot over the same users."""

    def __init__(self, stage, name, section, maildir="", **dovecot):
        self.stage, self.name, self.dir, self.starts = stage, name, stage.dir / name, 0
        self.spool, self.users = self.dir / "spool", self.dir / "users.sqlite"
        self.dir.mkdir()
        self.spool.mkdir()
        self.ids = tl.uid_of("vmail")
        os.chown(self.dir, *self.ids)
        os.chown(self.spool, *self.ids)
        with sqlite3.connect(self.users) as db:
            db.executescript((tl.ROOT / "conf/sqlite/schema.sql").read_text())
            for user, (size, messages) in LIMITS.items():
                home = f"{self.spool}/{user}"
                db.execute("INSERT INTO users (user, uid, gid, home, maildir, quota_bytes, quota_messages) VALUES (?, ?, ?, ?, ?, ?, ?)",
                           (f"{user}@example.org", *self.ids, home, home + "/Maildir", size, messages))
        self.users.chmod(0o644)
        self.dovecot = self.dir / "dovecot.conf"
        self.write_dovecot(**dovecot)
        self.config = self.dir / "lmtpd.toml"
        self.write_config(section, maildir)
        self.socket = self.dir / "lmtp.sock"

    def write_dovecot(self, plugin="", quota="maildir:User quota", rule="*:bytes=500000", mail_plugins="quota", more="", prefix="", ignored=()):
        """plugin: settings of Dovecot's quota, which 2.4 has outside of any section. ignored: folders that do
        not count.
        """
        text = self.dovecot_2_4 if dovecot_conf.is_2_4() else self.dovecot_2_3
        self.dovecot.write_text(f"""{dovecot_conf.begin()}base_dir = {self.dir}/run
log_path = {self.dir}/dovecot.log
ssl = no
protocols = imap
{text(plugin, quota, rule, mail_plugins, prefix, ignored)}{dovecot_conf.no_password()}service auth {{
  unix_listener auth-userdb {{
    mode = 0666
  }}
}}
service imap-login {{
  inet_listener imap {{
    port = 0
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
{more}
""")

    def dovecot_2_3(self, plugin, quota, rule, mail_plugins, prefix, ignored):
        users = dovecot_conf.users_sqlite(self.users, """SELECT uid, gid, home, 'maildir:' || maildir AS mail, \\
  '*:bytes=' || coalesce(quota_bytes, 500000) || ':messages=' || coalesce(quota_messages, 0) AS quota_rule FROM users WHERE user = '%Lu'""",
                                          self.dir / "dovecot-users.conf")
        rules = "".join(f"  quota_rule{2 + i} = {folder}:ignore\n" for i, folder in enumerate(ignored))
        return f"""mail_plugins = {mail_plugins}
namespace inbox {{
  inbox = yes
  prefix = {prefix}
}}
plugin {{
  quota = {quota}
  quota_rule = {rule}
{rules}  {plugin}
}}
{users}"""

    def dovecot_2_4(self, plugin, quota, rule, mail_plugins, prefix, ignored):
        """2.4's grace is an amount. Each user gets a tenth of the limit, as in lmtpd."""
        users = dovecot_conf.users_sqlite(self.users, """SELECT uid, gid, home, maildir AS mail_path, \\
  coalesce(nullif(coalesce(quota_bytes, 500000), 0) || 'B', 'unlimited') AS quota_storage_size, \\
  coalesce(nullif(quota_messages, 0), 'unlimited') AS quota_message_count, \\
  coalesce(quota_bytes, 500000) / 10 || 'B' AS quota_storage_grace FROM users WHERE user = '%Lu'""", None)
        driver, size = quota.partition(":")[0], rule.partition("=")[2]
        mailboxes = "".join(f"  mailbox {folder} {{\n    quota_ignore = yes\n  }}\n" for folder in ignored)
        return f"""{dovecot_conf.plugins(*mail_plugins.split()) if mail_plugins else ""}mail_driver = maildir
mail_path = ~/Maildir
namespace inbox {{
  inbox = yes
  prefix = {prefix}
{mailboxes}}}
{dovecot_conf.quota(driver) if quota else ""}quota_storage_size = {size}{"B" if size.isdigit() else ""}
{plugin}
{users}"""

    def write_config(self, section, maildir):
        self.config.write_text(f"""hostname = "mx.example.org"
user = "vmail"
[[listen]]
address = "unix:{self.dir}/lmtp.sock"
mode = "0666"
[users]
driver = "sqlite"
path = "{self.users}"
[spool]
path = "{self.spool}"
require_marker = false
[maildir]
detail_folders = "create"
{maildir}
[quota]
dovecot = "{self.dovecot}"
{section}
""")

    def check_config(self):
        return tl.run(tl.BIN / "lmtpd", "check-config", "--config", self.config, check=False)

    def start_dovecot(self):
        self.starts += 1
        self.dovecot_run = dovecot_conf.start(self.stage, f"dovecot-{self.name}-{self.starts}", self.dovecot, self.dir / "dovecot.log")

    def start(self):
        self.start_dovecot()
        self.process = mail.serve(self.stage, self.name, self.config, self.socket)

    def stop(self):
        expect(self.process.stop() == 0, "lmtpd does not stop cleanly")

    def maildir(self, user):
        return self.spool / user / "Maildir"

    def doveadm(self, *command, check=True):
        return tl.run("doveadm", "-c", self.dovecot, *command, check=check)

    def dovecot_says(self, user):
        """Bytes and messages in use, as the quota plug-in counts them."""
        rows = self.doveadm("-f", "flow", "quota", "get", "-u", f"{user}@example.org").stdout.splitlines()
        values = {r.split("Type=")[1].split()[0]: int(re.search(r"Value=(\d+)", r).group(1)) for r in rows}
        return values["STORAGE"], values["MESSAGE"]

    def really(self, user):
        files = [f for d in ("new", "cur") for f in self.maildir(user).rglob(f"{d}/*")]
        return sum(f.stat().st_size for f in files), len(files)

    def file_says(self, user):
        lines = (self.maildir(user) / "maildirsize").read_text().splitlines()[1:]
        return tuple(sum(int(line.split()[i]) for line in lines) for i in (0, 1))

    def agree(self, user):
        size, messages = self.really(user)
        expect(self.file_says(user) == (size, messages),
               f"{user}: maildirsize says {self.file_says(user)}, stored are {size}, {messages}")
        says = self.dovecot_says(user)
        expect(says == ((size + 1023) // 1024, messages),
               f"{user}: Dovecot says {says} (KiB, messages), stored are {size} bytes, {messages}")
        expect(self.file_says(user) == (size, messages),
               f"{user}: Dovecot has counted again, with another result: {self.file_says(user)}")

    def send(self, user, bytes=1000, announce=True):
        """The refusal with "RCPT", otherwise the reply to the message with "DATA"."""
        text = b"Subject: x\r\n\r\n" + b"x" * 70 + b"\r\n"
        text += (b"y" * 70 + b"\r\n") * ((bytes - len(text)) // 72)
        with session.opened(self.socket) as c:
            [(step, reply)] = session.transaction(c, [f"{user}@example.org"], text, parameters=f"SIZE={len(text)}" if announce else "")
            return step, f"{reply.code} {reply.enhanced}"

    def expect_sent(self, user, *wanted, **how):
        got = self.send(user, **how)
        expect(got == wanted, f"{user}, {how}: {got}, not {wanted}")


class Counted(Mailboxes):
    """With the driver "count". asks: the socket that lmtpd asks, in place of quota-status."""

    def __init__(self, stage, name, section="", asks=None, **dovecot):
        self.service = stage.dir / name / "run/quota-status"  # Dovecot's base_dir is in this directory
        super().__init__(stage, name, f'driver = "count"\naddress = "unix:{asks or self.service}"\n{section}', **(DOVECOT | dovecot))

    def vsize(self, user):
        """Sizes with CRLF, as the driver counts: the W= in the names."""
        files = [f for d in ("new", "cur") for f in self.maildir(user).rglob(f"{d}/*")]
        return sum(int(f.name.split(",W=")[1].split(":")[0]) for f in files), len(files)

    def agree(self, user):
        size, messages = self.vsize(user)
        says = self.dovecot_says(user)
        expect(says == ((size + 1023) // 1024, messages),
               f"{user}: Dovecot says {says} (KiB, messages), stored are {size} bytes in {messages} messages")
        expect(not (self.maildir(user) / "maildirsize").exists(), "there is a maildirsize file")
