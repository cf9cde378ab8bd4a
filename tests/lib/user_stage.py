"""lmtpd with a section [users] that a test chooses, and MariaDB servers with the same users: the common parts
of tests of user sources.
"""
import os, pathlib

import mail, mariadb, session
import twinloft as tl
from twinloft import expect
from wire import ConnectionEnded

CONF = pathlib.Path(__file__).resolve().parents[2] / "conf"
PASSWORD = "Zd7-kept-away-q9"


class Lmtpd:
    def __init__(self, stage):
        self.stage, self.dir, self.spool = stage, stage.dir, stage.dir / "spool"
        self.spool.mkdir()
        self.ids = tl.uid_of("vmail")
        for d in (self.dir, self.spool):
            os.chown(d, *self.ids)
        self.config = self.dir / "lmtpd.toml"
        self.process = None

    def start(self, name, users, more=""):
        """Starts lmtpd with this section [users], in place of the lmtpd before."""
        if self.process:
            self.process.stop()
        self.config.write_text(f"""hostname = "users.example"
user = "vmail"
[[listen]]
address = "unix:{self.dir}/lmtp"
mode = "0666"
[spool]
path = "{self.spool}"
require_marker = false
[users]
{users}
{more}
""")
        self.process = mail.serve(self.stage, f"lmtpd-{name}", self.config)

    def log(self):
        return self.process.log.read_text()

    def expect_logged(self, *texts):
        for text in texts:
            tl.wait_said(self.log, text, f"{text} in the log of lmtpd")

    def show(self, address):
        """Exit code and text of `lmtpd user`."""
        r = tl.run(tl.BIN / "lmtpd", "user", address, "--config", self.config, check=False)
        return r.returncode, r.stdout

    def expect_shown(self, address, code, *says):
        got, text = self.show(address)
        expect(got == code and all(s in text for s in says), f"lmtpd user {address}: {got}, expected {code} and {says}:\n{text}")

    def open(self):
        return session.opened(self.dir / "lmtp")

    def rcpt(self, c, address):
        expect(c.command("MAIL FROM:<a@d>").code == 250, "MAIL")
        reply = c.command(f"RCPT TO:<{address}>")
        c.command("RSET")
        return str(reply).strip('"')

    def expect_rcpt(self, says, *addresses):
        with self.open() as c:
            for address in addresses:
                reply = self.rcpt(c, address)
                expect(reply.startswith(says), f"RCPT TO:<{address}>: {reply}, expected {says}")

    def wait_for_rcpt(self, says, address):
        """Reconnects as an MTA does when the server ends a connection between two transactions."""
        c = self.open()

        def answered():
            nonlocal c
            try:
                first = c.command("MAIL FROM:<a@d>")
            except ConnectionEnded:
                first = None
            if first is None or first.code == 421:
                c.close()
                c = self.open()
                return False
            expect(first.code == 250, f"MAIL: {first}")
            reply = str(c.command(f"RCPT TO:<{address}>")).strip('"')
            c.command("RSET")
            return reply.startswith(says)

        try:
            tl.wait_for(answered, f"{says} to RCPT TO:<{address}>")
        finally:
            c.close()

    def deliver(self, address, maildir):
        """Delivers a message, and finds it in the Maildir."""
        before = len(list((maildir / "new").glob("*")))
        with self.open() as c:
            [reply] = session.replies(c, [address], b"Subject: x\r\n\r\nx\r\n")
        expect(reply.code == 250, f"{address}: {reply}")
        expect(len(list((maildir / "new").glob("*"))) == before + 1, f"{address}: nothing in {maildir}")


class Databases:
    """Two servers with the same users."""

    def __init__(self, l):
        self.l, self.password_file = l, l.dir / "password"
        self.password_file.write_text(PASSWORD + "\n")
        self.password_file.chmod(0o600)
        tl.self_signed(l.dir / "db.crt", l.dir / "db.key", "127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
        (l.dir / "db.key").chmod(0o644)
        self.all = [mariadb.MariaDb(l.stage, name, f"--ssl-cert={l.dir}/db.crt", f"--ssl-key={l.dir}/db.key") for name in ("db1", "db2")]
        for db in self.all:
            db.start()
            self.fill(db)

    def fill(self, db):
        def row(name):
            home = f"{self.l.spool}/sql/{name}"
            return f"('{name}@example.org', {self.l.ids[0]}, {self.l.ids[1]}, '{home}', '{home}/Maildir', NULL, 1)"

        db.sql("CREATE DATABASE mail; USE mail; " + (CONF / "mysql/schema.sql").read_text() + f"""
INSERT INTO users (user, uid, gid, home, maildir, agent, active) VALUES {", ".join(row(f"u{i}") for i in range(40))}, {row("ann")};
INSERT INTO users (user, uid, gid, home, maildir, agent, active) VALUES ('bad@example.org', 5, 5, '/srv/../etc', NULL, NULL, 1), ('off@example.org', 5, 5, '/srv', NULL, NULL, 0);
CREATE TABLE mailbox (username VARCHAR(255), maildir VARCHAR(255), active BOOL);
INSERT INTO mailbox VALUES ('eve@example.org', 'example.org/eve/', 1);
CREATE TABLE changed (n INT);
CREATE USER lmtpd IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON mail.* TO lmtpd;
""")

    def users(self, more="", hosts=None, query=None):
        hosts = ", ".join(f'"{h}"' for h in hosts or [f"127.0.0.1:{db.port}" for db in self.all])
        return f"""driver = "mysql"
hosts = [{hosts}]
database = "mail"
db_user = "lmtpd"
db_password_file = "{self.password_file}"
connect_timeout = "2s"
query_timeout = "2s"
{f"query = '''{query}'''" if query else ""}
{more}
"""
