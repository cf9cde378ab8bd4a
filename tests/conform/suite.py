"""The checks' framework: the server, its recipients, messages, and what became of the messages."""
import os
import time
from dataclasses import dataclass, field

from wire import Connection, ConnectionEnded, Malformed, NoReply

MUST, SHOULD = "MUST", "SHOULD"


class Failed(Exception):
    """The server does not do what it must."""


class Skipped(Exception):
    """The check does not apply: the server does not offer the feature, or a necessary option is missing."""


def expect(condition, what):
    if not condition:
        raise Failed(what)


@dataclass(frozen=True)
class Check:
    name: str     # group.what
    section: str  # "RFC 5321 4.1.1.1"
    level: str    # MUST, SHOULD
    title: str
    run: object


CHECKS = []


def check(name, section, level, title):
    """Registers the following function as a check, in the order of reading. The function gets a Target."""
    def add(run):
        CHECKS.append(Check(name, section, level, title, run))
        return run
    return add


@dataclass
class Outcome:
    check: Check
    result: str  # pass, fail, skip
    why: str = ""
    seconds: float = 0


@dataclass
class Target:
    address: object
    to: list                 # recipients that exist, at least two
    unknown: str             # a recipient that does not exist
    sender: str
    timeout: float
    stored_under: str = ""   # directory with the recipients' mail as files, at any depth
    utf8_recipient: str = ""
    message_max: int = 0     # the largest message to be sent in a check
    tls_required: object = None  # an address that requires STARTTLS
    seen: list = field(default_factory=list)  # every reply of all checks
    _keywords: dict = None
    _numbers: int = 0

    # --- Connections -----------------------------------------------------------------------------------------------

    def raw(self, address=None):
        return Connection(address or self.address, self.timeout, self.seen)

    def greeted(self, address=None):
        c = self.raw(address)
        greeting = c.reply(b"(greeting)")
        expect(greeting.code == 220, f"greeted with {greeting}")
        return c

    def open(self):
        """A connection after LHLO."""
        c = self.greeted()
        self.lhlo(c)
        return c

    def lhlo(self, c):
        reply = c.command("LHLO conform.example")
        expect(reply.code == 250, f"LHLO gets {reply}")
        return reply

    @property
    def keywords(self):
        """Keyword -> its parameters, from the reply to LHLO on a connection without TLS."""
        if self._keywords is None:
            with self.greeted() as c:
                self._keywords = keywords_of(self.lhlo(c))
        return self._keywords

    def needs(self, keyword):
        if keyword not in self.keywords:
            raise Skipped(f"{keyword} is not offered")

    def must_not_offer(self, keyword):
        if keyword in self.keywords:
            raise Skipped(f"{keyword} is offered")

    def size_limit(self):
        """The limit that SIZE announces."""
        self.needs("SIZE")
        words = self.keywords["SIZE"]
        if not words or words[0] == "0":
            raise Skipped("SIZE announces no limit")
        return int(words[0])

    def sendable_limit(self):
        """The same limit, for a check that sends more than the limit."""
        limit = self.size_limit()
        if limit > self.message_max:
            raise Skipped(f"SIZE allows {limit} bytes: more than --message-max")
        return limit

    # --- Transactions ----------------------------------------------------------------------------------------------

    def mail(self, c, parameters="", sender=None):
        sender = self.sender if sender is None else sender
        reply = c.command(f"MAIL FROM:<{sender}>{parameters}")
        expect(reply.code == 250, f"MAIL FROM:<{sender}>{parameters} gets {reply}")

    def rcpt(self, c, *recipients):
        for to in recipients or self.to[:1]:
            reply = c.command(f"RCPT TO:<{to}>")
            expect(reply.code in (250, 251), f"RCPT TO:<{to}> gets {reply}")

    def envelope(self, c, *recipients):
        self.mail(c)
        self.rcpt(c, *recipients)

    def data(self, c):
        reply = c.command("DATA")
        expect(reply.code == 354, f"DATA gets {reply}")

    def send(self, c, count):
        """Sends a message to `count` accepted recipients, each of whom gets 250."""
        self.data(c)
        c.send(self.message(self.marker()) + b".\r\n")
        self.finish(c, count)

    def marker(self):
        self._numbers += 1
        return f"conform-{os.getpid()}-{time.time_ns():x}-{self._numbers}"

    def message(self, marker, body=b"Text.\r\n", fields=b""):
        """A message as in RFC 5322, which can be found by its marker."""
        return (f"From: <{self.sender}>\r\nTo: <{self.to[0]}>\r\nDate: Mon, 23 Nov 2026 12:00:00 +0000\r\n"
                f"Message-ID: <{marker}@conform.example>\r\nSubject: {marker}\r\n").encode() + fields + b"\r\n" + body

    def finish(self, c, count, to=b"(end of data)"):
        """Reads the replies after a message. Each must be 250."""
        replies = c.replies(count, to)
        for reply in replies:
            expect(reply.code == 250, f"the message gets {reply}")
        return replies

    def bounds(self, c):
        """No further reply has arrived: QUIT gets the next reply, and the connection ends."""
        reply = c.command("QUIT")
        expect(reply.code == 221, f"an extra or wrong reply: {reply} in place of the reply to QUIT")
        expect(c.ended(), "there is more input after the reply to QUIT")

    def alive(self, c):
        reply = c.command("NOOP")
        expect(reply.code == 250, f"NOOP afterwards gets {reply}")

    # --- What was stored -------------------------------------------------------------------------------------------

    def _found(self, marker):
        """The contents of all files with this marker."""
        subject = f"\nSubject: {marker}\n".encode()
        for folder, _, names in os.walk(self.stored_under):
            for name in names:
                try:
                    with open(os.path.join(folder, name), "rb") as f:
                        content = f.read().replace(b"\r\n", b"\n")
                except OSError:
                    continue  # renamed meanwhile, or not readable
                if subject in content:
                    yield content

    def copies(self, marker):
        return sum(1 for _ in self._found(marker))

    def needs_store(self):
        if not self.stored_under:
            raise Skipped("needs --stored")

    def stored(self, marker):
        """The message as stored in a mailbox, with LF at line ends."""
        deadline = time.monotonic() + self.timeout
        while time.monotonic() < deadline:
            for content in self._found(marker):
                return content
            time.sleep(0.05)
        raise Failed(f"a message that got 250 is not below {self.stored_under}")

    def not_stored(self, marker, seconds=0.5):
        time.sleep(seconds)
        expect(self.copies(marker) == 0, "the message was delivered")

    def stored_body(self, marker):
        return self.stored(marker).partition(b"\n\n")[2]

    def deliver(self, content, *recipients, parameters=""):
        """Sends one message by DATA on its own connection. Every recipient gets 250."""
        with self.open() as c:
            self.mail(c, parameters)
            recipients = recipients or self.to[:1]
            self.rcpt(c, *recipients)
            self.data(c)
            c.send(content + b".\r\n")
            self.finish(c, len(recipients))
            self.bounds(c)


def keywords_of(reply):
    """The lines of LHLO's reply except the first, with keywords in capitals."""
    out = {}
    for text in reply.texts[1:]:
        words = text.split(" ")
        out[words[0].upper()] = words[1:]
    return out


def run_check(c, target):
    begun = time.monotonic()
    outcome = Outcome(c, "pass")
    try:
        c.run(target)
    except Skipped as e:
        outcome.result, outcome.why = "skip", str(e)
    except (Failed, NoReply, ConnectionEnded, Malformed) as e:
        outcome.result, outcome.why = "fail", str(e)
    except OSError as e:
        outcome.result, outcome.why = "fail", f"no connection: {e}"
    outcome.seconds = time.monotonic() - begun
    return outcome
