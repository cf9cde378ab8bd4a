"""A replicated volume whose roles an arbiter decides: the common parts of the tests of arbiters."""
import twinloft as tl
from twinloft import Failed, expect, wait_for

BLOCK = 4096


class ArbiterStage:
    """Two nodes with exports over NBD. arbiter: the lines below [volume.mail.arbiter]."""

    def __init__(self, stage, arbiter):
        self.stage = stage
        self.v = tl.Volume(stage, size=16 << 20, journal_size="64MiB", fuse=False, nbd=True,
                           extra=f'peer_timeout = "2s"\n[volume.mail.arbiter]\n{arbiter}')

    def status(self, node, condition, what, seconds=180):
        """Waits until the status of the node fulfils the condition, and returns it."""
        last = None

        def holds():
            nonlocal last
            last = self.v.status(node)
            return last and condition(last) and last
        try:
            return wait_for(holds, what, seconds)
        except Failed as e:
            raise Failed(f"{e}; status of {node}: {last}") from None

    def in_sync(self, node):
        return self.status(node, lambda s: s["role"] == "Primary" and s["in_sync"] == [1, 2] and not s["degraded"] and
                           s["peers"][0]["disk"] == "UpToDate", f"both in sync, {node} primary")

    def alone(self, node):
        replica = self.v.replica[node]
        return self.status(node, lambda s: s["role"] == "Primary" and s["in_sync"] == [replica] and s["degraded"] and not s["suspended"],
                           f"{node} to continue alone")

    def away(self, node):
        self.status(node, lambda s: s["peers"][0]["connection"] != "Connected",
                    f"{node} to notice that its peer is away")

    def cable(self, up, node="b"):
        """Plugs or pulls the cable between the nodes, at this node's own interface."""
        tl.run("ip", "-n", self.v.ns[node], "link", "set", "tl0", "up" if up else "down")


def put(h, block, value):
    """Writes the block, and waits until it is acknowledged by a flush."""
    h.pwrite(bytes([value]) * BLOCK, block * BLOCK)
    h.flush()


def begin_flush(h, block, value):
    """Writes the block, and returns a flush that may have to wait."""
    h.pwrite(bytes([value]) * BLOCK, block * BLOCK)
    return h.aio_flush()


def finish_flush(h, pending, what):
    def done():
        h.poll(100)
        return h.aio_command_completed(pending)
    wait_for(done, what)


def said(done, words, what):
    """The command was refused with these words."""
    expect(done.returncode == 1 and words in done.stdout, f"{what}: exit {done.returncode}, {done.stdout}")
