"""A private Dovecot with the shipped configuration of conf/dovecot, and checks by its IMAP and POP3 clients.
"""
import imaplib, poplib, ssl

import dovecot_conf
import mta
import twinloft as tl

PASSWORD = "opensesame"
TLS = ssl.create_default_context()
TLS.check_hostname, TLS.verify_mode = False, ssl.CERT_NONE
# Private ports, on loopback only.
PORTS = """
{listen} = 127.0.0.1
service imap-login {{
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service pop3-login {{
  inet_listener pop3 {{
    port = {pop3}
  }}
  inet_listener pop3s {{
    port = 0
  }}
}}
log_path = {log}
"""


# For each version: its configuration file, and for each database the file with the users' query.
EXAMPLES = {"2.3": ("dovecot-2.3.conf", {"sqlite": "dovecot-users.conf.ext", "mysql": "dovecot-users-mysql.conf.ext"}),
            "2.4": ("dovecot-2.4.conf", {"sqlite": "dovecot-2.4-users.conf.ext", "mysql": "dovecot-2.4-users-mysql.conf.ext"})}
OF_MACHINE = dovecot_conf.by_version("2.3", "2.4")


class Dovecot:
    """Logins at the ports `imap` and `pop3`. The configuration files are in `etc`, which Dovecot sees as
    `seen`.
    """

    def __init__(self, stage, version, etc, seen, uid):
        self.stage, self.version, self.name, self.etc, self.seen, self.uid = stage, version, f"Dovecot {version}", etc, seen, uid
        self.imap, self.pop3 = tl.free_port(), tl.free_port()
        etc.mkdir(parents=True)
        tl.self_signed(etc / "dovecot.pem", etc / "dovecot.key", "mail.example.org")
        hashed = "{SHA512-CRYPT}" + tl.run("openssl", "passwd", "-6", PASSWORD).stdout.strip()
        (etc / "passwords").write_text("".join(f"{u}@example.org:{hashed}\n" for u in (*mta.REAL_USERS, mta.FULL, "nobody")))

    def config(self, database, changes, log):
        """Writes the configuration. changes: replacements in the file with the query."""
        source, users = EXAMPLES[self.version]
        (self.etc / "users.ext").write_text(self.example(users[database], changes))
        text = self.example(source, {
            "/etc/dovecot/private/dovecot.pem": self.seen / "dovecot.pem", "/etc/dovecot/private/dovecot.key": self.seen / "dovecot.key",
            "/etc/twinloft/passwords": self.seen / "passwords", "_uid = 5000": f"_uid = {self.uid}", "/etc/dovecot/dovecot-users.conf.ext": self.seen / "users.ext"})
        (self.etc / "dovecot.conf").write_text(text + PORTS.format(listen="listen", imap=self.imap, pop3=self.pop3, log=log))

    @staticmethod
    def example(name, changes):
        return mta.substituted((tl.ROOT / "conf/dovecot" / name).read_text(), changes, name)

    def is_understood(self, said):
        tl.expect("arning" not in said and "rror" not in said and "obsolete" not in said, f"doveconf -n: {said}")
        mta.ok(f"doveconf -n: {EXAMPLES[self.version][0]}")

    def login(self, user="ann@example.org", password=PASSWORD):
        client = imaplib.IMAP4("127.0.0.1", self.imap, timeout=180)
        client.starttls(TLS)
        client.login(user, password)
        return client

    def refused(self, user, password=PASSWORD):
        try:
            self.login(user, password).logout()
        except imaplib.IMAP4.error:
            return True
        return False

    def pop(self, user="ann@example.org"):
        client = poplib.POP3("127.0.0.1", self.pop3, timeout=180)
        client.stls(TLS)
        client.user(user)
        client.pass_(PASSWORD)
        return client


class OfMachine(Dovecot):
    """The machine's Dovecot, in either version."""

    def __init__(self, stage, database, changes):
        directory = stage.dir / f"dovecot-{OF_MACHINE}"
        super().__init__(stage, OF_MACHINE, directory, directory, tl.uid_of("vmail")[0])
        self.log = directory / "log"
        self.config(database, changes, self.log)
        with open(self.etc / "dovecot.conf", "a") as f:
            f.write(f"base_dir = {directory}/run\nstate_dir = {directory}/state\ninstance_name = {stage.dir.name}\n")
        self.doveconf = None  # the machine's doveconf
        self.sockets = directory / "run"

    def start(self, again=""):
        self.is_understood(tl.run("doveconf", "-n", "-c", self.etc / "dovecot.conf").stdout)
        self.process = dovecot_conf.start(self.stage, f"dovecot-{self.version}{again}", self.etc / "dovecot.conf", self.log)


def idle(client, during, expected):
    """Sends only IDLE until `expected` arrives. `during` runs once the server says that it waits."""
    client.send(b"i1 IDLE\r\n")
    line = client.readline()
    tl.expect(line.startswith(b"+"), f"IDLE: {line}")
    during()
    while line.strip() != expected:
        line = client.readline()
        tl.expect(line.startswith(b"*"), f"in IDLE, waiting for {expected}: {line}")
    client.send(b"DONE\r\n")
    while not line.startswith(b"i1 "):
        line = client.readline()
    tl.expect(line.startswith(b"i1 OK"), f"after IDLE: {line}")


def fetched(client, folder):
    """{UID: the complete message}"""
    ok, _ = client.select(folder, readonly=True)
    tl.expect(ok == "OK", f"SELECT {folder}")
    uids = client.uid("SEARCH", "ALL")[1][0].split()
    return {int(u): client.uid("FETCH", u.decode(), "(BODY.PEEK[])")[1][0][1].decode() for u in uids}


def reads(dovecot, server, lmtpd, subject):
    """A new message goes from the MTA to a client that waits for it, and is read by POP3 as well. The message
    for a detail goes to its folder.

    Returns what a client remembers of the messages: UIDVALIDITY, UIDs and UIDLs.
    """
    client = dovecot.login("Ann@example.org")
    old = int(client.select("INBOX")[1][0])
    idle(client, lambda: server.submit(["ann@example.org", "ann+lists@example.org"], subject), b"* %d EXISTS" % (old + 1))
    mta.ok(f"{dovecot.name}: a client in IDLE is notified of a new message")
    lmtpd.wait_message("ann", subject, ".lists")
    inbox = fetched(client, "INBOX")
    new = inbox[max(inbox)]
    tl.expect(len(inbox) == old + 1 and f"Subject: {subject}\r\n" in new and new.startswith("Return-Path: <ann@example.org>\r\n") and
              new.endswith("\r\n\r\nHello\r\n"), f"over IMAP: {inbox}")
    lists = fetched(client, "lists")
    tl.expect(f"Subject: {subject}\r\n" in lists[max(lists)], f"ann+lists@ over IMAP: {lists}")
    validity = client.status("INBOX", "(UIDVALIDITY)")[1][0]
    client.logout()
    pop = dovecot.pop()
    popped = [b"\r\n".join(pop.retr(n + 1)[1]).decode() + "\r\n" for n in range(pop.stat()[0])]
    uidls = pop.uidl()[1]
    pop.quit()
    tl.expect(popped == list(inbox.values()),
              f"POP3 and IMAP do not give the same messages: {popped}, {inbox}")
    mta.ok(f"{dovecot.name}: {len(inbox)} messages, the same over IMAP and POP3")
    return validity, sorted(inbox), uidls


def refuses(dovecot):
    tl.expect(dovecot.refused("ann@example.org", "wrong"), "a wrong password is accepted")
    tl.expect(dovecot.refused("nobody@example.org"), "a user who is not in the table can log in")
    tl.expect(dovecot.refused("x' OR '1'='1@example.org"), "SQL in a name")
    mta.ok(f"{dovecot.name}: only the users of the table can log in")


def makes_room(dovecot, server, lmtpd):
    """A client sees that its mailbox is full. Messages that the client removes no longer count, for lmtpd
    too.
    """
    user = f"{mta.FULL}@example.org"
    if not lmtpd.messages(mta.FULL):
        server.submit([user], "fills it")
        lmtpd.wait_message(mta.FULL, "fills it")
    mta.refuses(server, lmtpd, "said: 552 5.2.2 The mailbox is full", user)
    client = dovecot.login(user)
    said = client.getquotaroot("INBOX")[1][1][0]
    tl.expect(b"MESSAGE 1 1" in said, f"GETQUOTAROOT: {said}")
    client.select("INBOX")
    client.store("1", "+FLAGS", "\\Deleted")
    client.expunge()
    client.logout()
    server.submit([user], f"after {dovecot.name}")
    lmtpd.wait_message(mta.FULL, f"after {dovecot.name}")
    mta.ok(f"{dovecot.name}: a mailbox is full for Dovecot and for lmtpd until a message is removed")


NEEDS = ("dovecot", "doveadm", "openssl", "/usr/lib/dovecot/pop3", "/usr/lib/dovecot/modules/auth/libdriver_sqlite.so")


def is_read(stage, server, lmtpd):
    """Dovecot's clients see all mail that an MTA has delivered so far, and a new message."""
    dovecot = OfMachine(stage, "sqlite", {"/etc/twinloft/users.sqlite": lmtpd.database})
    dovecot.start()
    reads(dovecot, server, lmtpd, "over IMAP and POP3")
    tl.expect(dovecot.process.stop() == 0, f"{dovecot.name} does not stop cleanly")
