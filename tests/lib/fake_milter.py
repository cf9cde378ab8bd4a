"""Filters (milters) that a test plays itself: the filter's side of the milter protocol, version 6.

The numbers are those of libmilter's mfdef.h and mfapi.h.
"""
import collections, struct, threading

from fake_server import FakeServer
from twinloft import wait_for

CONTINUE, ACCEPT, REJECT, TEMPFAIL, DISCARD, PROGRESS = "c", "a", "r", "t", "d", "p"
ALL_ACTIONS = 0x1FF
# Steps (SMFIP_*).
RCPT_REJ, HDR_LEADSPC = 0x800, 0x100000
NO_REPLY_BEFORE_THE_END = 0x80 | 0x1000 | 0x2000 | 0x4000 | 0x8000 | 0x10000 | 0x40000 | 0x80000
SILENT = "AQKD"  # commands that no filter answers

# A command that a filter has heard. connection: its number, from 1. fields: its texts. macros: those that came with it.
Heard = collections.namedtuple("Heard", "connection kind fields macros")


def packet(kind, *fields):
    """fields: bytes; a text gets its NUL, a number its 4 bytes."""
    data = b"".join(f if isinstance(f, bytes) else struct.pack(">I", f) if isinstance(f, int) else f.encode() + b"\0" for f in fields)
    return struct.pack(">I", 1 + len(data)) + kind.encode() + data


def reply(text):
    """A verdict with a text of the filter's own: "550 5.7.1 text", lines joined by CRLF. libmilter doubles "%"."""
    return packet("y", text)


class Talk:
    """One connection to the filter."""

    def __init__(self, server, connection, number):
        self.server, self.connection, self.number = server, connection, number
        self.kind, self.data, self.fields, self.sender, self.sent = "", b"", [], "", 0
        self.macros = {}

    def send(self, data):
        """False: the filter dies here, because it has sent the bytes that the test allows it."""
        data = data[:max(0, self.server.dies_after - self.sent)]
        if data:  # lmtpd may have left
            self.connection.sendall(data)
        self.sent += len(data)
        return self.sent < self.server.dies_after

    def hang(self):
        """Until the test ends the server, or lmtpd the connection."""
        while not self.server.over.is_set() and self.connection.recv(65536):
            pass
        self.server.left.append(self.sender)
        raise ConnectionError("lmtpd has left")

    def freeze(self):
        """As hang(), without reading. Only until the test ends the server."""
        self.server.over.wait()
        raise ConnectionError("the test is over")


class FakeMilter(FakeServer):
    """answers: for a command ("M", "R", "E" ...), bytes, or a function of the Talk that returns bytes. Every other
    command is answered by CONTINUE, unless the filter has announced no answer (steps). dies_after: bytes of a
    connection. order: a list that gets (this, command) for each command, common to several filters.
    """

    def __init__(self, address, steps=0, actions=ALL_ACTIONS, macros=b"", version=6, order=None, **answers):
        self.order = order if order is not None else []
        self.agreement = packet("O", version, actions, steps, macros)
        self.steps, self.answers, self.dies_after = steps, answers, 1 << 62
        self.left = []  # the senders of messages that lmtpd has left while the filter hung
        self._heard, self._count, self._mutex = [], 0, threading.Lock()
        super().__init__(address)

    def answer(self, talk):
        """The bytes for the present command."""
        usual = self.agreement if talk.kind == "O" else b"" if self.is_silent(talk.kind) else packet(CONTINUE)
        answer = self.answers.get(talk.kind, usual)
        return answer(talk) if callable(answer) else answer

    def serve(self, connection):
        with self._mutex:
            self._count += 1
            talk = Talk(self, connection, self._count)
        with connection.makefile("rb") as stream:
            macros = {}
            while True:
                head = stream.read(5)
                if len(head) < 5:
                    return
                talk.kind, talk.data = chr(head[4]), stream.read(struct.unpack(">I", head[:4])[0] - 1)
                talk.fields = self.texts(talk.kind, talk.data)
                if talk.kind == "D":
                    macros = dict(zip(talk.fields[0::2], talk.fields[1::2]))
                    continue
                if talk.kind == "M":
                    talk.sender = talk.fields[0].strip("<>")
                talk.macros, macros = macros, {}
                with self._mutex:
                    self.order.append((self, talk.kind))
                    self._heard.append(Heard(talk.number, talk.kind, talk.fields, talk.macros))
                if not talk.send(self.answer(talk)):
                    return

    def is_silent(self, kind):
        no_reply = {"C": 0x1000, "H": 0x2000, "M": 0x4000, "R": 0x8000, "T": 0x10000, "L": 0x80, "N": 0x40000, "B": 0x80000}
        return kind in SILENT or bool(self.steps & no_reply.get(kind, 0))

    @staticmethod
    def texts(kind, data):
        if kind in "OB":
            return [data]
        if kind == "C":  # between the name and the address: the family, and the port
            name, _, rest = data.partition(b"\0")
            port = str(struct.unpack(">H", rest[1:3])[0]) if len(rest) > 1 else ""
            return [name.decode(), rest[:1].decode(), port, rest[3:].rstrip(b"\0").decode()]
        return [text.decode("utf-8", "surrogateescape") for text in data[1 if kind == "D" else 0:].split(b"\0")[:-1]]

    def heard(self, *kinds):
        """What was heard so far, of these kinds, or of all."""
        with self._mutex:
            return [h for h in self._heard if not kinds or h.kind in kinds]

    def kinds(self):
        """The commands of the newest connection."""
        heard = self.heard()
        newest = max((h.connection for h in heard), default=0)
        return "".join(h.kind for h in heard if h.connection == newest)

    def forget(self):
        with self._mutex:
            self._heard.clear()

    def wait_for(self, kind, count=1):
        """Waits for commands of this kind, and returns the last of them."""
        return wait_for(lambda: len(found := self.heard(kind)) >= count and found[-1], f"the command {kind} to the filter")
