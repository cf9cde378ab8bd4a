"""A client that writes over NBD until it is stopped, and the content that must be on the volume afterwards.
"""
import random, threading

import nbd
from twinloft import expect

BLOCK = 4096


def new_state(blocks):
    """The state of a volume that no other client has written."""
    return {"blocks": blocks, "serial": 0, "written": {}, "promised": {}}


class Writer(threading.Thread):
    """Writes blocks that contain their serial number, flushes now and then, and remembers what flushes have
    acknowledged.
    """

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
    """Every block is intact, and at least as new as the last flush acknowledged."""
    h = nbd.NBD()
    h.connect_uri(uri)
    for block in range(state["blocks"]):
        data = h.pread(BLOCK, block * BLOCK)
        serial = int.from_bytes(data[:8], "little")
        expect(data == data[:8] * (BLOCK // 8), f"block {block} is torn")
        promised = state["promised"].get(block, 0)
        expect(serial >= promised, f"block {block} holds write {serial}, a flush has acknowledged {promised}")
        expect(serial == 0 or serial in state["written"].get(block, []), f"block {block} holds {serial}, never written")
        # From here on this content counts. Lost writes are forgotten.
        if serial:
            state["promised"][block] = serial
    h.shutdown()
