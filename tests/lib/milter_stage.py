"""lmtpd with filters (milters), its users and their mailboxes: the common parts of the tests of filters."""
import json, os, sqlite3

import mail, session
import twinloft as tl
from twinloft import expect

TEXT = b"Subject: one\r\nX-Old: old\r\n\r\nbody\r\n"


class Filtered:
    """lmtpd, and a spool. QUARANTINE is the mailbox for quarantined messages; the mail of `away` goes to a next
    hop; `full` has a small quota.
    """

    USERS = ("ann", "bob", "carl", "copy", "full", "quarantine")

    def __init__(self, stage, name):
        self.stage, self.name, self.dir = stage, name, stage.dir / name
        self.spool, self.socket, self.config = self.dir / "spool", self.dir / "lmtp", self.dir / "lmtpd.toml"
        ids = tl.uid_of("vmail")
        for d in (self.dir, self.spool):
            d.mkdir()
            os.chown(d, *ids)
        with sqlite3.connect(self.dir / "users.sqlite") as db:
            db.executescript((tl.ROOT / "conf/sqlite/schema.sql").read_text())
            for user in (*self.USERS, "away"):
                home = f"{self.spool}/{user}"
                db.execute("INSERT INTO users (user, uid, gid, home, maildir, quota_bytes, next_hop) VALUES (?, ?, ?, ?, ?, ?, ?)",
                           (f"{user}@example.org", *ids, home, home + "/Maildir", 3000 if user == "full" else None, "store" if user == "away" else None))
        (self.dir / "users.sqlite").chmod(0o644)
        self.process, self.starts = None, 0

    def write(self, filters, limits="", quarantine=True, more="", listen=""):
        """filters: in their order, {name: its keys}."""
        self.config.write_text(f"""hostname = "filters.example"
user = "vmail"
[[listen]]
address = "unix:{self.socket}"
mode = "0666"
trusted = ["unix"]
{listen}
[users]
driver = "sqlite"
path = "{self.dir}/users.sqlite"
[spool]
path = "{self.spool}"
require_marker = false
[quota]
driver = "maildir"
[limits]
{limits}
[next_hop.store]
address = "unix:{self.dir}/store.sock"
[filters]
order = {json.dumps(list(filters))}
{'quarantine = "quarantine@example.org"' if quarantine else ""}
""" + "".join(f"[filter.{name}]\n{keys}\n" for name, keys in filters.items()) + more)

    def start(self, filters, **how):
        self.write(filters, **how)
        self.starts += 1
        self.process = mail.serve(self.stage, f"lmtpd-{self.name}{self.starts}", self.config)
        return self

    def log(self):
        return self.process.log.read_text()

    def wait_for_log(self, *texts):
        """No reply waits for the log."""
        tl.wait_for(lambda: all(t in self.log() for t in texts), f"{texts} in the log of lmtpd")

    def opened(self, client="mta.example"):
        return session.opened(self.socket, client)

    def send(self, *recipients, text=TEXT, sender="from@example.net", before=()):
        """Sends a message over a connection of its own. Returns the last reply to each recipient, as text."""
        with self.opened() as c:
            for line in before:
                expect(c.command(line).positive, line)
            return self.sent(c, *recipients, text=text, sender=sender)

    @staticmethod
    def sent(c, *recipients, text=TEXT, sender="from@example.net"):
        """Likewise over this connection. A refusal of MAIL, or of DATA, is the reply to each recipient."""
        reply = c.command(f"MAIL FROM:<{sender}>")
        if not reply.positive:
            return [str(reply).strip('"')] * len(recipients)
        asked = [c.command(f"RCPT TO:<{r}@example.org>") for r in recipients]
        accepted = [r for r in asked if r.positive]
        reply = c.command("DATA") if accepted else None
        if reply and reply.code == 354:
            c.send(session.stuffed(text))
            answers = iter(c.replies(len(accepted)))
        else:
            answers = iter([reply] * len(accepted))
            c.command("RSET")
        return [str(next(answers) if r.positive else r).strip('"') for r in asked]

    def expect_sent(self, code, *recipients, **how):
        """All of these recipients get this reply, such as "250 2.0.0"."""
        got = self.send(*recipients, **how)
        expect(all(r.startswith(code) for r in got), f"{recipients}: {got}, expected {code}")

    def mails(self, user):
        """The files of this user's mailbox, without their trace fields."""
        return [self.without_trace(p.read_bytes()) for p in sorted((self.spool / user / "Maildir/new").glob("*"))]

    def take(self, user):
        """The only message in this mailbox, which is empty afterwards: without its trace fields."""
        paths = list((self.spool / user / "Maildir/new").glob("*"))
        expect(len(paths) == 1, f"{user} has {len(paths)} messages")
        text = paths[0].read_bytes()
        paths[0].unlink()
        self.trace = text[:len(text) - len(self.without_trace(text))].decode()
        return self.without_trace(text)

    def expect_nothing(self, *users):
        for user in users or self.USERS:
            expect(not self.mails(user), f"{user} has {self.mails(user)}")

    @staticmethod
    def without_trace(text):
        """Return-Path, Delivered-To and Received are lmtpd's own fields, in this order."""
        for name in (b"Return-Path:", b"Delivered-To:", b"Received:"):
            expect(text.startswith(name), f"no {name} at the start of {text[:300]!r}")
            text = text.split(b"\n", 1)[1]
            while text[:1] in b" \t" and text:
                text = text.split(b"\n", 1)[1]
        return text

    def check(self):
        """Exit code and text of check-config."""
        r = tl.run(tl.BIN / "lmtpd", "check-config", "--config", self.config, check=False)
        return r.returncode, r.stdout

