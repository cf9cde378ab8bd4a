#!/usr/bin/python3
"""A longer cable: a TCP proxy that adds a time to each round trip, half of it in each direction.

    cable.py LISTEN_HOST:PORT TO_HOST:PORT MILLISECONDS

The order is kept, no data is lost, and the bandwidth is that of the machine. Delayed data is in memory: at most
64 MiB in a direction, then the proxy stops reading. The proxy has a single thread: with 0 ms, it adds two copies
and two wake-ups to a round trip. The end of a stream is delayed like data. A broken connection ends the other
connection at once.
"""
import collections, select, socket, sys, time

PIECE = 1 << 20
HELD_MAX = 64 << 20


class Lane:
    """One direction of a connection."""

    def __init__(self, source, sink, delay):
        self.source, self.sink, self.delay = source, sink, delay
        self.held = collections.deque()  # (due, bytes). None in place of bytes: the end of the stream
        self.held_bytes = 0
        self.read_to_end = self.done = self.stuck = False

    def wants_to_read(self):
        return not self.read_to_end and self.held_bytes < HELD_MAX

    def take(self):
        data = self.source.recv(PIECE)
        self.read_to_end = not data
        self.held.append((time.monotonic() + self.delay, memoryview(data) if data else None))
        self.held_bytes += len(data)

    def give(self, now):
        """Sends the data that is due, as far as the receiver accepts it."""
        self.stuck = False
        while self.held and self.held[0][0] <= now:
            due, data = self.held[0]
            if data is None:
                self.sink.shutdown(socket.SHUT_WR)
                self.done = True
                self.held.clear()
                return
            try:
                sent = self.sink.send(data)
            except BlockingIOError:
                self.stuck = True
                return
            self.held_bytes -= sent
            if sent < len(data):
                self.held[0] = (due, data[sent:])
            else:
                self.held.popleft()

    def due(self):
        return self.held[0][0] if self.held and not self.stuck else None


class Cable:
    def __init__(self, listen, to, milliseconds):
        self.to, self.delay = to, milliseconds / 2000
        self.listener = socket.create_server(listen)
        self.lanes = []

    def accept(self):
        near, _ = self.listener.accept()
        try:
            far = socket.create_connection(self.to, 5)
        except OSError:
            near.close()  # as if no program listened; the sender tries again
            return
        for s in (near, far):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.setblocking(False)
        self.lanes += [Lane(near, far, self.delay), Lane(far, near, self.delay)]

    def drop(self, lane):
        """Closes both directions of the lane's connection."""
        ends = (lane.source, lane.sink)
        self.lanes = [l for l in self.lanes if l.source not in ends]
        for s in ends:
            s.close()

    def serve(self, lane, readable, now):
        try:
            if lane.source in readable and lane.wants_to_read():
                lane.take()
                now = time.monotonic()
            lane.give(now)
        except OSError:
            self.drop(lane)

    def turn(self):
        due = [d for lane in self.lanes if (d := lane.due()) is not None]
        readers = [self.listener] + [lane.source for lane in self.lanes if lane.wants_to_read()]
        writers = [lane.sink for lane in self.lanes if lane.stuck]
        # select, since it waits for microseconds; epoll and poll round up to a millisecond.
        wait = max(0, min(due) - time.monotonic()) if due else None
        readable, _, _ = select.select(readers, writers, [], wait)
        now = time.monotonic()
        for lane in list(self.lanes):
            if lane in self.lanes:  # it may have been dropped meanwhile
                self.serve(lane, readable, now)
        for lane in [l for l in self.lanes if l.done]:
            if all(l.done for l in self.lanes if l.source in (lane.source, lane.sink)):
                self.drop(lane)
        if self.listener in readable:
            self.accept()


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__.strip())
    cable = Cable(address(sys.argv[1]), address(sys.argv[2]), float(sys.argv[3]))
    while True:
        cable.turn()


if __name__ == "__main__":
    main()
