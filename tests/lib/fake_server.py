"""Servers that a test plays itself: each connection is served by a function, in a thread of its own."""
import contextlib, pathlib, socket, threading


class FakeServer:
    """Listens at a Unix socket (a path, for every user) or at "host:port". Port 0: any, see `port`.

    A subclass overrides serve(). `over` is set when the test ends the server: a silent server waits for it.
    """

    def __init__(self, address):
        self.path = None
        if isinstance(address, pathlib.Path):
            self.path = address
            self.path.unlink(missing_ok=True)
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(str(address))
            self.path.chmod(0o666)
            self.listener.listen(50)
        else:
            host, _, port = address.rpartition(":")
            self.listener = socket.create_server((host, int(port)))
            self.port = self.listener.getsockname()[1]
        self.over, self._lock, self._open, self._threads = threading.Event(), threading.Lock(), [], []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def serve(self, connection):
        """Serves a client. The connection is closed when this returns. An OSError means that the client has
        gone.
        """
        raise NotImplementedError

    def opened(self, connection):
        """Registers another socket that close() has to end."""
        with self._lock:
            self._open.append(connection)
        if self.over.is_set():
            shut(connection)
        return connection

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.opened(connection)
            thread = threading.Thread(target=self._run, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, connection):
        with contextlib.suppress(OSError), connection:
            self.serve(connection)

    def close(self):
        """Ends all connections, and waits for their threads. May be called twice."""
        self.over.set()
        shut(self.listener)
        self._acceptor.join()
        self.listener.close()
        with self._lock:
            opened, self._open = self._open, []
        for connection in opened:
            shut(connection)
        for thread in self._threads:
            thread.join()
        if self.path:
            self.path.unlink(missing_ok=True)


def shut(connection):
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
