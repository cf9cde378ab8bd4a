"""Tests of session.py, with a server that answers as the test says."""
import pathlib, tempfile, unittest

import session
import twinloft as tl
from fake_server import FakeServer


class Whole(FakeServer):
    """Refuses recipients "no...", defers the message for recipients "late...", and keeps what it receives."""

    def __init__(self, path):
        self.lines = []
        super().__init__(path)

    def serve(self, connection):
        self.accepted = []
        with connection.makefile("rb") as lines:
            connection.sendall(b"220 mx here\r\n")
            for line in lines:
                self.lines.append(line.decode().removesuffix("\r\n"))
                if line == b"DATA\r\n":
                    connection.sendall(b"354 go\r\n")
                    self.lines.append(b"".join(iter(lines.readline, b".\r\n")).decode())
                connection.sendall(self.answer(line))

    def answer(self, line):
        if line.startswith(b"RCPT TO:<no"):
            return b"550 5.1.1 no such user\r\n"
        if line.startswith(b"RCPT"):
            self.accepted.append(line)
        if line != b"DATA\r\n":
            return b"250 2.0.0 ok\r\n"
        return b"".join(b"452 4.2.2 late\r\n" if b"<late" in r else b"250 2.0.0 stored\r\n" for r in self.accepted)


class Sessions(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.server = Whole(pathlib.Path(directory.name) / "socket")
        self.addCleanup(self.server.close)

    def test_a_reply_for_each_recipient(self):
        with session.opened(self.server.path) as c:
            self.assertEqual(c.greeting.code, 220)
            got = session.transaction(c, ["ann", "no", "late"], b"x\r\n", sender="s", parameters="SIZE=1")
        self.assertEqual([(step, r.code) for step, r in got], [("DATA", 250), ("RCPT", 550), ("DATA", 452)])
        self.assertEqual(self.server.lines[:3], ["LHLO c", "MAIL FROM:<s> SIZE=1", "RCPT TO:<ann>"])

    def test_no_data_where_all_are_refused(self):
        with session.opened(self.server.path) as c:
            self.assertEqual([r.code for r in session.replies(c, ["no", "no2"], b"x\r\n")], [550, 550])
        self.assertNotIn("DATA", self.server.lines)

    def test_dots_are_stuffed(self):
        with session.opened(self.server.path) as c:
            session.replies(c, ["ann"], b".first\r\nx.\r\n..two\r\n.\r\n")
        self.assertEqual(self.server.lines[-1], "..first\r\nx.\r\n...two\r\n..\r\n")

    def test_a_refused_sender_fails(self):
        self.server.answer = lambda line: b"553 5.1.7 no\r\n" if line.startswith(b"MAIL") else b"250 ok\r\n"
        with session.opened(self.server.path) as c, self.assertRaisesRegex(tl.Failed, "MAIL FROM:<a@d>"):
            session.replies(c, ["ann"], b"x\r\n")


if __name__ == "__main__":
    unittest.main()
