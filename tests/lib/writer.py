"""A client that writes over NBD for as long as it is let, and what must be there afterwards."""
import random, threading

import nbd
from twinloft import expect

BLOCK = 4096


def new_state(blocks):
    """Of a volume that has been written by nobody else."""
    return {"blocks": blocks, "serial": 0, "written": {}, "promised": {}}


class Writer(threading.Thread):
    """Writes blocks that name their own number, flushes now and then, and remembers what was promised."""

    def __init__(self, uri, seed, state):
        super().__init__(daemon=True)
        self.uri, self.random, self.state, self.error = uri, random.Random(seed), state, None
        self.stop_asked = threading.Event()
        self.flushes = 0

    def run(self):
        try:
            h = nbd.NBD()
            h.connect_uri(self.uri)
            completed = {}
            while not self.stop_asked.is_set():
                block, count = self.random.randrange(self.state["blocks"] - 8), self.random.randrange(1, 9)
                self.state["serial"] += 1
                serial = self.state["serial"]
                for b in range(block, block + count):
                    self.state["written"].setdefault(b, []).append(serial)
                h.pwrite(serial.to_bytes(8, "little") * (BLOCK * count // 8), block * BLOCK)
                for b in range(block, block + count):
                    completed[b] = serial
                if self.random.random() < 0.1:
                    h.flush()
                    self.flushes += 1
                    self.state["promised"].update(completed)
            h.flush()
            self.state["promised"].update(completed)
            h.shutdown()
        except nbd.Error as e:
            self.error = e


def check_content(uri, state):
    """Every block is whole, and at least as new as what a flush promised."""
    h = nbd.NBD()
    h.connect_uri(uri)
    for block in range(state["blocks"]):
        data = h.pread(BLOCK, block * BLOCK)
        serial = int.from_bytes(data[:8], "little")
        expect(data == data[:8] * (BLOCK // 8), f"block {block} is torn")
        promised = state["promised"].get(block, 0)
        expect(serial >= promised, f"block {block} holds write {serial}, a flush promised {promised}")
        expect(serial == 0 or serial in state["written"].get(block, []), f"block {block} holds {serial}, never written")
        # From here on this is the truth; writes that did not survive are forgotten.
        if serial:
            state["promised"][block] = serial
    h.shutdown()
