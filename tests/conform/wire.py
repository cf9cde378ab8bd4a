"""LMTP as bytes on a socket: connections that send given bytes, and keep every reply."""
import re
import socket
import ssl
import time


class ConnectionEnded(Exception):
    """The server closed the connection, or reset it, while a reply was awaited."""


class NoReply(Exception):
    """No reply came in time."""


class Malformed(Exception):
    """The received text is not a reply of RFC 5321 section 4.2."""


LINE = re.compile(rb"([2-5][0-9][0-9])(?:([ -])(.*))?", re.DOTALL)
ENHANCED = re.compile(r"([245])\.([0-9]{1,3})\.([0-9]{1,3})(?= |$)")


class Reply:
    """One reply: its lines as received, without CRLF. to: the command of the reply, if known."""

    def __init__(self, code, lines, to):
        self.code, self.lines, self.to = code, lines, to

    @property
    def texts(self):
        """The text after the code, line by line."""
        return [line[4:].decode("utf-8", "replace") for line in self.lines]

    @property
    def enhanced(self):
        """The enhanced status code (RFC 3463) of the first line, or None."""
        found = ENHANCED.match(self.texts[0])
        return found.group(0) if found else None

    @property
    def positive(self):
        return 200 <= self.code < 300

    @property
    def permanent(self):
        return 500 <= self.code < 600

    @property
    def temporary(self):
        return 400 <= self.code < 500

    def __str__(self):
        return f"\"{self.lines[0].decode('utf-8', 'replace')}\""


class Address:
    """Where the server listens: "host:port", "[::1]:port" or "unix:/path"."""

    def __init__(self, text):
        self.text = text
        if text.startswith("unix:"):
            self.family, self.to = socket.AF_UNIX, text[5:]
            return
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdigit():
            raise ValueError(f"{text} is neither host:port nor unix:/path")
        host = host.removeprefix("[").removesuffix("]")
        self.family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.to = (host, int(port))

    def connect(self, timeout):
        s = socket.socket(self.family, socket.SOCK_STREAM)
        s.settimeout(timeout)
        s.connect(self.to)
        if self.family != socket.AF_UNIX:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s


class Connection:
    """A connection. Every reply also goes to `seen`, a list that outlives the connection."""

    def __init__(self, address, timeout, seen):
        self.timeout, self._seen, self._input = timeout, seen, b""
        self._socket = address.connect(timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._socket.close()

    def shut(self):
        """Shuts this side: the server sees the end of its input."""
        self._socket.shutdown(socket.SHUT_WR)

    # --- Sending ---------------------------------------------------------------------------------------------------

    def send(self, data, pieces_of=0):
        """Sends all at once, or in pieces of `pieces_of` bytes, each in its own segment."""
        try:
            if not pieces_of:
                return self._socket.sendall(data)
            for at in range(0, len(data), pieces_of):
                self._socket.sendall(data[at:at + pieces_of])
                time.sleep(0.0002)  # so that the server reads each piece alone
        except socket.timeout:
            raise NoReply(f"the server accepts no input for {self.timeout:g} s")
        except OSError as e:
            raise ConnectionEnded(f"sending failed: {e.strerror or e}")

    def command(self, line, pieces_of=0):
        """Sends one line and returns its reply."""
        data = line if isinstance(line, bytes) else line.encode()
        self.send(data + b"\r\n", pieces_of)
        return self.reply(data)

    # --- Receiving -------------------------------------------------------------------------------------------------

    def _more(self, deadline):
        left = deadline - time.monotonic()
        if left <= 0:
            raise NoReply(f"no reply within {self.timeout:g} s")
        self._socket.settimeout(left)
        try:
            got = self._socket.recv(65536)
        except socket.timeout:
            raise NoReply(f"no reply within {self.timeout:g} s")
        except (OSError, ssl.SSLError) as e:
            raise ConnectionEnded(f"the connection broke: {e.strerror or e}")
        finally:
            self._socket.settimeout(self.timeout)
        if not got:
            raise ConnectionEnded("the server closed the connection" + (f" within a line: {self._input!r}" if self._input else ""))
        self._input += got

    def _line(self, deadline):
        while b"\n" not in self._input:
            self._more(deadline)
        line, _, self._input = self._input.partition(b"\n")
        if not line.endswith(b"\r"):
            raise Malformed(f"a reply line ends with LF alone: {line[:80]!r}")
        return line[:-1]

    def reply(self, to=b""):
        deadline, lines, first = time.monotonic() + self.timeout, [], None
        while True:
            line = self._line(deadline)
            parts = LINE.fullmatch(line)
            if not parts:
                raise Malformed(f"not a reply line: {line[:80]!r}")
            lines.append(line)
            first = first or parts.group(1)
            if parts.group(1) != first:
                raise Malformed(f"a reply whose lines have different codes: {lines!r}")
            if parts.group(2) != b"-":
                break
        reply = Reply(int(first), lines, to)
        self._seen.append(reply)
        return reply

    def replies(self, count, to=b""):
        return [self.reply(to) for _ in range(count)]

    def ended(self):
        """Whether the server closes the connection now, without further output."""
        if self._input:
            return False
        try:
            self._more(time.monotonic() + self.timeout)
            return False
        except ConnectionEnded:
            return True
        except NoReply:
            return False

    def ends_without(self, text):
        """Whether the connection ends, and the input until then (such as a TLS alert) does not contain that
        text.
        """
        try:
            while True:
                self._more(time.monotonic() + self.timeout)
        except ConnectionEnded:
            return text not in self._input
        except NoReply:
            return False

    # --- TLS -------------------------------------------------------------------------------------------------------

    def start_tls(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        left, self._input = self._input, b""
        try:
            self._socket = context.wrap_socket(self._socket)
        except OSError as e:
            raise ConnectionEnded(f"the TLS handshake failed: {e.strerror or e}")
        return left
