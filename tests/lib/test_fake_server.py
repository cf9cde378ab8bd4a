"""Tests of fake_server.py."""
import pathlib, socket, tempfile, threading, unittest

from fake_server import FakeServer


class Echo(FakeServer):
    def serve(self, connection):
        while data := connection.recv(100):
            connection.sendall(data)


class Silent(FakeServer):
    def __init__(self, address):
        self.waits = threading.Semaphore(0)
        super().__init__(address)

    def serve(self, connection):
        self.waits.release()
        self.over.wait()


def connected(server):
    s = socket.socket(socket.AF_UNIX) if server.path else socket.socket()
    s.settimeout(60)
    s.connect(str(server.path) if server.path else ("127.0.0.1", server.port))
    return s


class Servers(unittest.TestCase):
    def test_clients_are_served_side_by_side(self):
        server = Echo("127.0.0.1:0")
        with connected(server) as a, connected(server) as b:
            for s, words in ((a, b"one"), (b, b"two"), (a, b"three")):
                s.sendall(words)
                self.assertEqual(s.recv(100), words)
        server.close()

    def test_close_ends_clients_and_silent_servers(self):
        with tempfile.TemporaryDirectory() as directory:
            server = Silent(pathlib.Path(directory) / "socket")
            with connected(server) as a, connected(server) as b:
                server.waits.acquire(), server.waits.acquire()
                server.close()
                self.assertEqual((a.recv(1), b.recv(1)), (b"", b""))
            self.assertFalse(server.path.exists())
            server.close()

    def test_a_socket_that_is_left_over_is_replaced(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "socket"
            with socket.socket(socket.AF_UNIX) as s:
                s.bind(str(path))
            server = Echo(path)
            with connected(server) as a:
                a.sendall(b"x")
                self.assertEqual(a.recv(1), b"x")
            self.assertEqual(path.stat().st_mode & 0o777, 0o666)
            server.close()

    def test_nothing_listens_after_close(self):
        server = Echo("127.0.0.1:0")
        server.close()
        with socket.socket() as s:
            self.assertNotEqual(s.connect_ex(("127.0.0.1", server.port)), 0)

    def test_a_client_that_breaks_off_harms_no_other(self):
        server = Echo("127.0.0.1:0")
        with connected(server) as broken:
            broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        with connected(server) as a:
            a.sendall(b"x")
            self.assertEqual(a.recv(1), b"x")
        server.close()


if __name__ == "__main__":
    unittest.main()
