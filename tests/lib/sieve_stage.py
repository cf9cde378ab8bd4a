"""lmtpd and the machine's Dovecot over the same users, some of whom have a Sieve script. The configurations are the
examples for users with scripts.
"""
import base64, collections, os, re, socket, sqlite3

import dovecot_conf, mail, mta, session
import twinloft as tl
from dovecot import EXAMPLES, OF_MACHINE
from twinloft import expect

CAPTURE = """#!/usr/bin/python3
import os, sys
with open(sys.argv[0] + ".out", "a") as out:
    out.write("SENT " + " ".join(sys.argv[1:]) + "\\n" + sys.stdin.read() + "\\n")
"""
# Aliases, and a message's size for spamtest, beyond the examples.
QUERY = """query = '''SELECT user, uid, gid, home, maildir, quota_bytes, NULL AS alias FROM users WHERE user = :address
  UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, target FROM aliases WHERE address = :address'''"""
SPAMTEST_2_3 = """plugin {
  sieve_extensions = +spamtest
  sieve_spamtest_status_type = score
  sieve_spamtest_status_header = X-Spam-Score: ([0-9.]+)
  sieve_spamtest_max_value = 10
}
"""
SPAMTEST_2_4 = """sieve_extensions {
  spamtest = yes
}
sieve_spamtest_status_type = score
sieve_spamtest_status_header = X-Spam-Score: ([0-9.]+)
sieve_spamtest_score_max_value = 10
"""
NEEDS = ("dovecot", "doveconf", "sievec", "openssl", "sqlite3", "/usr/lib/dovecot/lmtp", "/usr/lib/dovecot/managesieve", "/usr/lib/dovecot/dovecot-lda", "/usr/lib/dovecot/modules/auth/libdriver_sqlite.so")
# ManageSieve on a port of this machine.
MANAGE_2_3 = """protocols = $protocols sieve
service managesieve-login {{
  inet_listener sieve {{
    address = 127.0.0.1
    port = {port}
  }}
}}
"""
MANAGE_2_4 = """protocols {{
  sieve = yes
}}
service managesieve-login {{
  inet_listener sieve {{
    listen = 127.0.0.1
    port = {port}
  }}
}}
"""
PASSWORD = "secret"
# [delivery.sieve] by a template in place of LMTP.
BY_LDA = {'lmtp = "unix:/run/dovecot/twinloft-lmtp"': "", '# agent = "dovecot-lda"': 'agent = "dovecot-lda"', "#\n# [agent.": "[agent.", "# command = ": "command = "}


class ManageSieve:
    """A client of Dovecot's ManageSieve server (RFC 5804)."""

    def __init__(self, port, user):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.lines = self.socket.makefile("rb")
        self.take_reply("the greeting")
        plain = base64.b64encode(f"\0{user}@example.org\0{PASSWORD}".encode()).decode()
        self.command(f'AUTHENTICATE "PLAIN" "{plain}"')

    def take_reply(self, of):
        while line := self.lines.readline():
            if line.startswith((b"OK", b"NO", b"BYE")):
                return expect(line.startswith(b"OK"), f"{of}: {line}")
        raise tl.Failed(f"{of}: the connection has ended")

    def command(self, text):
        self.socket.sendall(text.encode() + b"\r\n")
        self.take_reply(text)

    def put(self, name, script):
        self.command(f'PUTSCRIPT "{name}" {{{len(script)}+}}\r\n{script}')

    def activate(self, name):
        self.command(f'SETACTIVE "{name}"')

    def close(self):
        self.lines.close()
        self.socket.close()


class Stage:
    def __init__(self, stage, users, aliases={}):
        """users: names, each with its limit in bytes (0: none)."""
        self.stage, self.dir, self.spool, self.starts = stage, stage.dir, stage.dir / "spool", 0
        self.messages_sent = 0
        self.etc, self.database, self.sendmail = stage.dir / "dovecot", stage.dir / "users.sqlite", stage.dir / "dovecot/sendmail"
        stage.dir.chmod(0o755)
        self.ids = tl.uid_of("vmail")
        for d in (self.spool, self.etc):
            d.mkdir()
            os.chown(d, *self.ids)
        with sqlite3.connect(self.database) as db:
            db.executescript((tl.ROOT / "conf/sqlite/schema.sql").read_text())
            for user, limit in users.items():
                home = str(self.home(user))
                db.execute("INSERT INTO users (user, uid, gid, home, maildir, quota_bytes) VALUES (?, ?, ?, ?, ?, ?)",
                           (f"{user}@example.org", *self.ids, home, home + "/Maildir", limit))
            db.executemany("INSERT INTO aliases VALUES (?, ?)", [(f"{a}@example.org", f"{u}@example.org") for a, u in aliases.items()])
        self.database.chmod(0o644)
        self.sendmail.write_text(CAPTURE)
        self.sendmail.chmod(0o755)
        self.dovecot_config = self.etc / "dovecot.conf"
        self.lmtp = self.etc / "run/twinloft-lmtp"

    def home(self, user):
        return self.spool / user

    # ---- Dovecot

    def managed(self):
        """The part of Dovecot's configuration for ManageSieve, for write_dovecot()."""
        self.manage_port = tl.free_port()
        return dovecot_conf.by_version(MANAGE_2_3, MANAGE_2_4).format(port=self.manage_port)

    def manage(self, user):
        return ManageSieve(self.manage_port, user)

    def write_dovecot(self, more=""):
        """The examples of this machine's Dovecot for both ways, without ports."""
        def example(name, changes):
            return mta.substituted((tl.ROOT / "conf/dovecot" / name).read_text(), changes, name)
        etc, sendmail = self.etc, {"# sendmail_path = /usr/sbin/sendmail": f"sendmail_path = {self.sendmail}"}
        tl.self_signed(etc / "dovecot.pem", etc / "dovecot.key", "mail.example.org")
        for name, mode in (("passwords", 0o644), ("dovecot.log", 0o666)):
            (etc / name).touch()
            (etc / name).chmod(mode)
        with sqlite3.connect(self.database) as db:
            (etc / "passwords").write_text("".join(f"{user}:{{PLAIN}}{PASSWORD}\n" for (user,) in db.execute("SELECT user FROM users")))
        source, queries = EXAMPLES[OF_MACHINE]
        served = dovecot_conf.by_version("protocols = imap pop3", "protocols {\n  imap = yes\n  pop3 = yes\n}")
        (etc / "users.ext").write_text(example(queries["sqlite"], {"/etc/twinloft/users.sqlite": self.database}))
        self.dovecot_config.write_text(
            example(source, {served: dovecot_conf.by_version("protocols =", ""), "/etc/dovecot/private": etc, "/etc/twinloft/passwords": etc / "passwords",
                             "/etc/dovecot/dovecot-users.conf.ext": etc / "users.ext", "_uid = 5000": f"_uid = {self.ids[0]}"})
            + example(dovecot_conf.by_version("sieve.conf", "sieve-2.4.conf"), {})
            + example(dovecot_conf.by_version("sieve-lmtp.conf", "sieve-lmtp-2.4.conf"), sendmail)
            + dovecot_conf.by_version(SPAMTEST_2_3, SPAMTEST_2_4)
            + f"base_dir = {etc}/run\nstate_dir = {etc}/state\nlog_path = {etc}/dovecot.log\nhostname = dovecot.example\n" + more)

    def start_dovecot(self):
        self.starts += 1
        self.dovecot = dovecot_conf.start(self.stage, f"dovecot-{self.starts}", self.dovecot_config, self.etc / "dovecot.log")
        session.opened(self.lmtp).close()  # its first process runs, so Dovecot handles signals

    def stop_dovecot(self):
        expect(self.dovecot.stop() == 0, "Dovecot does not stop cleanly")
        self.lmtp.unlink(missing_ok=True)

    # ---- lmtpd

    def write_lmtpd(self, name, changes, more=""):
        source = "lmtpd-sieve.toml"
        text = (tl.ROOT / "conf/lmtpd" / source).read_text()
        text = mta.substituted(text, changes, source)
        text = mta.substituted(text, {
            "/var/spool/postfix/private/twinloft": self.dir / f"{name}.sock", 'group = "postfix"': "", 'mode = "0660"': 'mode = "0666"',
            'path = "/etc/twinloft/users.sqlite"': f'path = "{self.database}"\n{QUERY}', "/srv/mail": self.spool,
            'volume = "6f3b1c52-8d0e-4a77-9c55-2f6f0e1d7a31"': "require_marker = false", "/etc/dovecot/dovecot.conf": self.dovecot_config}, source)
        text = text.replace("/run/dovecot/twinloft-lmtp", str(self.lmtp)).replace("dovecot-lda -e", f"dovecot-lda -c {self.dovecot_config} -e")
        config = self.dir / f"{name}.toml"
        config.write_text('hostname = "mx.example.org"\n' + text + more)
        return config

    def start_lmtpd(self, name="lmtp", changes={}, more=""):
        self.socket, self.delivered = self.dir / f"{name}.sock", collections.Counter()
        self.lmtpd_config = self.write_lmtpd(name, changes, more)
        self.lmtpd = mail.serve(self.stage, f"lmtpd-{name}", self.lmtpd_config, self.socket)

    def check(self, name, changes={}, more=""):
        """What check-config says of a configuration, and its exit code."""
        r = tl.run(tl.BIN / "lmtpd", "check-config", "--config", self.write_lmtpd(name, changes, more), check=False)
        return r.returncode, r.stdout

    # ---- scripts and mail

    def write_script(self, user, text, name="main"):
        """As a ManageSieve server does: the script is a file in the directory, and the active one is a link that is
        replaced by a rename.
        """
        directory = self.home(user) / "sieve"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{name}.sieve").write_text(text)
        for path in (self.home(user), directory, directory / f"{name}.sieve"):
            os.chown(path, *self.ids)
        self.activate(user, name)

    def activate(self, user, name):
        new = self.home(user) / ".dovecot.sieve.new"
        new.symlink_to(f"sieve/{name}.sieve")
        os.lchown(new, *self.ids)
        new.rename(self.home(user) / ".dovecot.sieve")

    def deactivate(self, user):
        (self.home(user) / ".dovecot.sieve").unlink()

    def messages(self, user, folder=""):
        """{subject: the message}"""
        at = self.home(user) / "Maildir" / folder
        texts = [f.read_bytes().decode() for d in ("new", "cur") for f in (at / d).glob("*")]
        return {re.search(r"^Subject: (.*)$", text, re.M)[1]: text for text in texts}

    def count(self, user, folder=""):
        at = self.home(user) / "Maildir" / folder
        return sum(len(list((at / d).glob("*"))) for d in ("new", "cur"))

    def sent(self):
        """What Dovecot has given to sendmail since the last call."""
        out = self.sendmail.with_suffix(".out")
        text = out.read_text() if out.exists() else ""
        out.unlink(missing_ok=True)
        return text

    def send(self, *recipients, subject="x", sender="x@example.com", header="", parameters="", to=None, message_id=None):
        """The reply to each recipient: of RCPT if it is a refusal, otherwise to the message."""
        self.messages_sent += 1
        text = f"From: {sender}\r\nTo: {to or recipients[0]}@example.org\r\nSubject: {subject}\r\nMessage-ID: <{message_id or self.messages_sent}@x>\r\n{header}\r\nhello\r\n"
        with session.opened(self.socket) as c:
            replies = session.replies(c, [f"{r}@example.org" for r in recipients], text.encode(), sender=sender, parameters=parameters)
        self.delivered.update(r for r, reply in zip(recipients, replies) if reply.code == 250)
        return replies

    def expect_sent(self, *recipients, **how):
        for r, reply in zip(recipients, self.send(*recipients, **how)):
            expect(reply.code == 250, f"{r}, {how}: {reply}\n{self.lmtpd.log.read_text()[-2000:]}")

    def agent_of(self, to, count=1):
        """The agents of the last deliveries to an address, in the log. A line may come after the reply."""
        def found():
            lines = [line for line in self.lmtpd.log.read_text().splitlines() if 'msg="delivered"' in line and f'to="{to}@example.org"' in line]
            return len(lines) >= self.delivered[to] and [re.search(r'agent="([^"]*)"', line)[1] for line in lines[-count:]]
        return tl.wait_for(found, f"{self.delivered[to]} lines about {to}")

    def stop_lmtpd(self):
        expect(self.lmtpd.stop() == 0, "lmtpd does not stop cleanly")
