"""The checks for every MTA in front of lmtpd, with an lmtpd of two or three users behind it.

A test gives an object `mta` with
  submit(recipients, subject)   into the queue, without a question to lmtpd; the sender is SENDER
  smtp(recipients, subject)     by SMTP, as a stranger: the refused recipients, or smtplib's exceptions
  flush()                       retry the queued messages now
  waiting()                     the recipients of all queued messages, in a list
  reason()                      what an operator is shown about the queue: why messages wait
and calls the steps here. Each step leaves an empty queue.
"""
import collections, contextlib, email, shutil, signal, smtplib, sqlite3, uuid

import mail
import twinloft as tl
from twinloft import expect

SENDER = "ann@example.org"
REAL_USERS = ("ann", "bob", "carl")
FULL = "full"  # has room for one message
SETTINGS = '[maildir]\ndetail_folders = "create"\n[quota]\ndriver = "maildir"\n'


def ok(text):
    print(f"ok: {text}", flush=True)


def check(condition, text):
    if not condition:
        raise tl.Failed(text)
    ok(text)


def substituted(text, changes, name):
    """The text of a file under conf/ with changes. Each text that is replaced must still be in the file."""
    for old, new in changes.items():
        expect(old in text, f"{name}: «{old}», which this test replaces, is no longer in the file")
        text = text.replace(old, str(new))
    return text


def message(subject):
    return f"From: {SENDER}\nSubject: {subject}\n\nHello\n"


def send(port, recipients, subject):
    with smtplib.SMTP("127.0.0.1", port, timeout=120) as s:
        return s.sendmail(SENDER, recipients, message(subject))


def answer_to(port, recipient, sender=SENDER, size=None):
    """The answer to RCPT, as code and text. No message is sent. size: as announced by MAIL."""
    with smtplib.SMTP("127.0.0.1", port, timeout=120) as s:
        s.ehlo("c.example.net")
        expect(s.mail(sender, [f"SIZE={size}"] if size else [])[0] == 250, "MAIL is refused")
        code, text = s.rcpt(recipient)
        return f"{code} {text.decode()}"


class Lmtpd:
    """An lmtpd with a spool that has a marker, and users in SQLite. listen: the keys of its [[listen]]."""

    def __init__(self, stage, listen, more=SETTINGS):
        self.stage, self.spool = stage, stage.dir / "spool"
        self.marker = self.spool / ".twinloft-spool"
        self.uuid, self.runs = str(uuid.uuid4()), 0
        self.spool.mkdir()
        shutil.chown(self.spool, "vmail", "vmail")
        self.marker.write_text(self.uuid + "\n")
        self.database = stage.dir / "users.sqlite"
        tl.run("sqlite3", self.database, input=(tl.ROOT / "conf/sqlite/schema.sql").read_text())
        for user in REAL_USERS:
            self.add_user(user)
        self.add_user(FULL, quota_messages=1)
        self.database.chmod(0o644)
        self.config = stage.dir / "lmtpd.toml"
        self.config.write_text(f"""
hostname = "mx.example.net"
user = "vmail"
[[listen]]
{listen}
[users]
driver = "sqlite"
path = "{self.database}"
[spool]
path = "{self.spool}"
volume = "{self.uuid}"
{more}""")

    def add_user(self, user, **columns):
        """columns: further columns of the row."""
        uid, gid = tl.uid_of("vmail")
        row = {"user": f"{user}@example.org", "uid": uid, "gid": gid, "home": str(self.home(user)), "maildir": f"{self.home(user)}/Maildir"} | columns
        with contextlib.closing(sqlite3.connect(self.database)) as db:
            db.execute(f"INSERT INTO users ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))
            db.commit()

    def give_room(self, user, messages):
        with contextlib.closing(sqlite3.connect(self.database)) as db:
            db.execute("UPDATE users SET quota_messages = ? WHERE user = ?", (messages, f"{user}@example.org"))
            db.commit()

    def home(self, user):
        return self.spool / "example.org" / user

    def start(self):
        self.runs += 1
        self.process = mail.serve(self.stage, f"lmtpd{self.runs}", self.config)
        return self.process

    def reload(self, old, new):
        """Reloads lmtpd with a replaced text in its configuration, and waits until the old server process has
        ended.

        Otherwise an MTA that has kept a connection to the old process would get replies of the old
        configuration.
        """
        told = lambda: self.process.log.read_text().count("serving with the configuration")
        before = told()
        self.config.write_text(substituted(self.config.read_text(), {old: new}, "lmtpd.toml"))
        self.process.process.send_signal(signal.SIGHUP)
        tl.wait_for(lambda: told() > before or self.process.check_alive(), "lmtpd to have reloaded")
        mail.serving_pid(self.process)

    def wait_until_the_spool_serves(self):
        """spool-milter may have seen it earlier than lmtpd, which still puts mail off until it looks."""
        words = ("the spool takes mail again", "the spool's volume is suspended", "the spool is not mounted")
        told = lambda: [word for line in self.process.log.read_text().splitlines() for word in words if word in line]
        tl.wait_for(lambda: told()[-1:] in ([], [words[0]]), "lmtpd to see that the spool serves")

    def messages(self, user, folder=""):
        new = self.home(user) / "Maildir" / folder / "new"
        return [email.message_from_bytes(f.read_bytes()) for f in new.glob("*")]

    def count(self, user, subject):
        return sum(m["Subject"] == subject for m in self.messages(user))

    def wait_message(self, user, subject, folder=""):
        found = lambda: [m for m in self.messages(user, folder) if m["Subject"] == subject]
        return tl.wait_for(found, f"the message «{subject}» for {user}{folder}")


def empty(mta):
    tl.wait_for(lambda: not mta.waiting(), "an empty queue")


def delivers(mta, lmtpd):
    mta.submit(["bob@example.org"], "one")
    m = lmtpd.wait_message("bob", "one")[0]
    check(m["Return-Path"] == f"<{SENDER}>" and any("by mx.example.net" in r for r in m.get_all("Received")) and
          m["Delivered-To"] == "bob@example.org", "one message, with its trace fields")
    fields = [len(m.get_all(name, [])) for name in ("Return-Path", "Delivered-To", "From", "Subject")]
    expect(fields == [1, 1, 1, 1] and m.get_payload().strip() == "Hello", f"the message has changed: {m}")
    mta.submit(["ann@example.org", "bob@example.org", "carl@example.org"], "several")
    for user in REAL_USERS:
        check(len(lmtpd.wait_message(user, "several")) == 1, f"a message to several: once for {user}")
    empty(mta)


def transactions(mta, lmtpd, users, subject):
    """The sizes of the transactions of one message to all these users, each of whom has it once.

    Recipients of one transaction have the same id in Received.
    """
    for user in users:
        lmtpd.wait_message(user, subject)
    empty(mta)
    ids = collections.Counter()
    for user in users:
        found = lmtpd.wait_message(user, subject)
        expect(len(found) == 1, f"«{subject}» was delivered {len(found)} times for {user}")
        ids[found[0]["Received"].split(" id ")[1].split()[0]] += 1
    return sorted(ids.values())


def one_transaction(mta, lmtpd):
    """Several recipients of one message go to lmtpd in one transaction."""
    mta.submit([f"{u}@example.org" for u in REAL_USERS], "together")
    sizes = transactions(mta, lmtpd, REAL_USERS, "together")
    check(sizes == [len(REAL_USERS)], f"three recipients are one transaction: {sizes}")


def detail(mta, lmtpd):
    """Over both ways into the queue: no MTA splits the address, or treats it as unknown."""
    for send, subject in ((mta.submit, "detail"), (mta.smtp, "detail by SMTP")):
        expect(not send(["ann+lists@example.org", "bob@example.org"], subject), f"{subject}: refused")
        m = lmtpd.wait_message("ann", subject, ".lists")
        check(len(m) == 1 and m[0]["Delivered-To"] == "ann+lists@example.org", f"{subject}: ann+lists@ is in ann's folder lists")
        lmtpd.wait_message("bob", subject)
    empty(mta)


def bounces(mta, lmtpd, recipient, text, subject=None):
    """A message to bob and to this recipient, whom lmtpd refuses with this text.

    Bob gets the message, and the sender gets a bounce about the refused recipient alone.
    """
    subject = subject or f"half, but {recipient}"
    old = len(undelivered(lmtpd))
    mta.submit([recipient, "bob@example.org"], subject)
    lmtpd.wait_message("bob", subject)
    new = tl.wait_for(lambda: len(all_of_them := undelivered(lmtpd)) > old and all_of_them, f"a bounce about {recipient}")
    notice = [m for m in new if subject in m.as_string()]
    check(len(notice) == 1 and notice[0]["Return-Path"] == "<>", f"one bounce about {recipient}, from the null sender")
    said = " ".join(notice[0].as_string().split())
    expect(text in said and recipient in said, f"«{text}» and {recipient} are not in the bounce: {notice[0]}")
    expect("bob@example.org" not in said, f"the bounce names bob: {notice[0]}")
    ok(f"the bounce says {text}, and names no other recipient")
    empty(mta)
    check(lmtpd.count("bob", subject) == 1, "the other recipient has the message once")


def full(mta, lmtpd, text):
    """Over quota: the bounce has the reason, and does not say that there is no such user."""
    mta.submit([f"{FULL}@example.org"], "the only one")
    lmtpd.wait_message(FULL, "the only one")
    bounces(mta, lmtpd, f"{FULL}@example.org", text)
    check(len(lmtpd.messages(FULL)) == 1, "the full mailbox is unchanged")


def undelivered(lmtpd):
    return [m for m in lmtpd.messages("ann") if m["Return-Path"] == "<>"]


def outcome(mta, recipient, subject):
    """The outcome of a stranger's message. None: accepted. Otherwise code and text."""
    try:
        mta.smtp([recipient], subject)
    except smtplib.SMTPRecipientsRefused as e:
        code, text = e.recipients[recipient]
        return code, text.decode()
    return None


def refuses(mta, lmtpd, text, recipient="nobody@example.org"):
    """The recipient is refused at RCPT, while the client is connected."""
    said = tl.wait_for(lambda: (r := outcome(mta, recipient, "verified")) and r[0] >= 500 and r, f"{recipient} to be refused")
    check(said[0] // 10 in (52, 55) and text in said[1], f"refused at RCPT: {said}")
    tl.wait_for(lambda: outcome(mta, "bob@example.org", "verified") is None, "a known user to be accepted")
    lmtpd.wait_message("bob", "verified")
    ok("a known user is accepted")
    empty(mta)


def puts_off(mta, recipient, code, text):
    """The recipient is deferred at RCPT, with this text once lmtpd's answer is known. Before that, there is
    no permanent refusal.
    """
    def said():
        answer = outcome(mta, recipient, "to be deferred")
        expect(answer and answer[0] == code, f"{recipient} is not deferred with {code}: {answer}")
        return text in answer[1] and answer
    ok(f"deferred at RCPT: {tl.wait_for(said, f'a reply about {recipient} with «{text}»')}")


def wait_deferred(mta, *recipients):
    tl.wait_for(lambda: sorted(mta.waiting()) == sorted(recipients) or mta.flush(), f"{recipients} to wait in the queue")


def explains(mta, text):
    tl.wait_for(lambda: text in mta.reason(), f"«{text}» to be the reason why a message waits")
    ok(f"the queue shows the reason: {text}")


def defers_full(mta, lmtpd, at_rcpt=None):
    """With `over = "defer"` a full mailbox causes no bounce.

    at_rcpt: code and text for a stranger, for an MTA that asks lmtpd. The test uses its own user, of whom no
    MTA remembers anything.
    """
    lmtpd.add_user("crowded", quota_messages=1)
    lmtpd.reload('driver = "maildir"\n', 'driver = "maildir"\nover = "defer"\n')
    old = len(undelivered(lmtpd))
    mta.submit(["crowded@example.org"], "fills it")
    lmtpd.wait_message("crowded", "fills it")
    mta.submit(["crowded@example.org"], "for more room")
    wait_deferred(mta, "crowded@example.org")
    explains(mta, "452 4.2.2 The mailbox is full")
    if at_rcpt:
        puts_off(mta, "crowded@example.org", *at_rcpt)
        wait_deferred(mta, "crowded@example.org")  # without the messages by which an MTA asks lmtpd
    check(not lmtpd.count("crowded", "for more room"), "with over = \"defer\" the message waits for room")
    lmtpd.give_room("crowded", 2)
    arrives(mta, lmtpd, "crowded", "for more room")
    check(len(undelivered(lmtpd)) == old, "delivered once, when there is room, and without a bounce")


def defers(mta, lmtpd):
    lmtpd.marker.rename(lmtpd.spool / "away")
    # 451 4.3.1 at RCPT once lmtpd has looked at the spool, and 451 4.3.0 at the delivery before.
    refusals = lmtpd.process.log.read_text().count("451 4.3.")
    mta.submit(["bob@example.org"], "deferred")
    tl.wait_for(lambda: lmtpd.process.log.read_text().count("451 4.3.") > refusals, "lmtpd to answer 451")
    wait_deferred(mta, "bob@example.org")
    explains(mta, "451 4.3.")
    check(not lmtpd.count("bob", "deferred"),
          "without the spool's marker the message waits in the queue, and nothing is stored in the spool")
    (lmtpd.spool / "away").rename(lmtpd.marker)
    arrives(mta, lmtpd, "bob", "deferred")
    ok("delivered once, when the marker is back")


def arrives(mta, lmtpd, user, subject):
    """A waiting message arrives once the MTA retries it."""
    tl.wait_for(lambda: lmtpd.count(user, subject) or mta.flush(), f"the message «{subject}» for {user}")
    empty(mta)
    expect(lmtpd.count(user, subject) == 1,
           f"«{subject}» was delivered {lmtpd.count(user, subject)} times for {user}")


def defers_one(mta, lmtpd):
    """One of three recipients is deferred after the message, while the other two get 250."""
    lmtpd.home("carl").rename(lmtpd.spool / "carl")
    lmtpd.home("carl").touch()
    mta.submit(["ann@example.org", "carl@example.org", "bob@example.org"], "one of them later")
    for user in ("ann", "bob"):
        lmtpd.wait_message(user, "one of them later")
    tl.wait_for(lambda: mta.waiting() == ["carl@example.org"], "carl alone to wait in the queue")
    mta.flush()
    lmtpd.home("carl").unlink()
    (lmtpd.spool / "carl").rename(lmtpd.home("carl"))
    arrives(mta, lmtpd, "carl", "one of them later")
    for user in ("ann", "bob"):
        check(lmtpd.count(user, "one of them later") == 1, f"only carl is retried: {user} has it once")


def survives(mta, lmtpd):
    check(lmtpd.process.stop() == 0, "lmtpd stops cleanly")
    mta.submit(["bob@example.org"], "while away")
    wait_deferred(mta, "bob@example.org")
    lmtpd.start()
    arrives(mta, lmtpd, "bob", "while away")
    ok("mail from the time when lmtpd was away is delivered, once")
    lmtpd.process.kill()
    mta.submit(["bob@example.org"], "after a kill")
    lmtpd.start()
    arrives(mta, lmtpd, "bob", "after a kill")
    ok("and so is mail from the time after lmtpd was killed")
