#!/usr/bin/python3
"""A longer cable: a TCP proxy that adds a time to each round trip, half of it in each direction, and may have a rate.

    cable.py LISTEN_HOST:PORT TO_HOST:PORT MILLISECONDS [BYTES_PER_SECOND]

The order is kept, and no data is lost. The rate is that of each direction of each connection; without it, the
bandwidth is that of the machine. Delayed data is in memory: at most 64 MiB in a direction, or what the cable carries in
its delay and 50 ms. Then the proxy stops reading. The proxy has a single thread: with 0 ms, it adds two copies
and two wake-ups to a round trip. The end of a stream is delayed like data. A broken connection ends the other
connection at once.
"""
import collections, select, socket, sys, time

PIECE = 1 << 20
PIECE_PACED = 16 << 10  # of a cable with a rate
HELD_MAX = 64 << 20


class Lane:
    """One direction of a connection."""

    def __init__(self, source, sink, delay, rate=None):
        self.source, self.sink, self.delay, self.rate = source, sink, delay, rate
        self.held_max = int(rate * (delay + 0.05)) + PIECE_PACED if rate else HELD_MAX
        self.free_at = 0  # when the cable has taken all bytes before
        self.held = collections.deque()  # (due, bytes). None in place of bytes: the end of the stream
        self.held_bytes = 0
        self.read_to_end = self.done = self.stuck = False

    def wants_to_read(self):
        return not self.read_to_end and self.held_bytes < self.held_max

    def take(self):
        data = self.source.recv(PIECE_PACED if self.rate else PIECE)
        self.read_to_end = not data
        self.free_at = max(self.free_at, time.monotonic()) + (len(data) / self.rate if self.rate else 0)
        self.held.append((self.free_at + self.delay, memoryview(data) if data else None))
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
    def __init__(self, listen, to, milliseconds, rate=None):
        self.to, self.delay, self.rate = to, milliseconds / 2000, rate
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
        self.lanes += [Lane(near, far, self.delay, self.rate), Lane(far, near, self.delay, self.rate)]

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
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__.strip())
    rate = float(sys.argv[4]) if len(sys.argv) == 5 else None
    cable = Cable(address(sys.argv[1]), address(sys.argv[2]), float(sys.argv[3]), rate)
    while True:
        cable.turn()


if __name__ == "__main__":
    main()
