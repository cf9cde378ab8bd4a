"""strace of a mail server while one client sends messages, for bench/lib/sync_calls.py. And the flushes of its block device."""
import contextlib, os, pathlib, signal, subprocess, time

import delivery_rows, session, sync_calls
import twinloft as tl
from wire import Address, Connection

NOTE = "One client under strace: syncs for a message before its `250`, and after it in parentheses. Device flushes are those of the whole message."
COMMITTED = "(*): a later sync before the `250` commits these names too on ext4."
SHOWN = 160  # bytes of each string
COMMIT = ", older than a later sync"
HEADS = ["server", "version", "syncs of files", "syncs of directories", "device flushes", "without a sync of its own at the `250`"]


def trace(stage, peer, device, messages=20, size=4096, users=10, pause=0.05):
    """One client sends that many messages, one after the other, each once the peer has come to rest. Returns a
    sync_calls.Trace.

    peer: a started Peer, whose users 1 and so on have their mailboxes. device: the name of the spool's block device, or None.
    """
    text = b"Subject: trace\r\nFrom: a@example.net\r\n\r\n" + (b"x" * 70 + b"\r\n") * max(1, size // 72)
    with opened(peer) as client:
        for number in range(1, users + 1):  # the mailboxes are there, and the processes have read what they need
            deliver(peer, client, number, text)
        settle(peer, 0.3)
        tl.run("sync", "-f", peer.spool_directory)
        with Strace(stage, peer) as strace:
            before = flushes(device)
            for number in range(messages):
                deliver(peer, client, 1 + number % users, text)
                settle(peer, pause)
            after = flushes(device)
    reader = sync_calls.Reader(peer.spool_directory.resolve(), strace.directories)
    reader.synchronous |= strace.synchronous
    found = reader.read(sync_calls.events(strace.lines))
    tl.expect(len(found) == messages, f"{peer.name}: strace shows {len(found)} messages, not {messages}")
    return sync_calls.Trace(found, None if before is None else (after - before) / messages, {what: n / messages for what, n in reader.calls.most_common()})


def flushes(device):
    return delivery_rows.flushes_of(pathlib.Path(f"/sys/block/{device}/stat").read_text()) if device else None


def opened(peer):
    at = str(peer.address)
    if peer.protocol == "lmtp":
        return session.opened(Address(f"unix:{at}" if "/" in at else at))
    client = Connection(Address(at), 120, [])
    client.reply()
    tl.expect(client.command("EHLO c.example.net").code == 250, "EHLO")
    return client


def deliver(peer, client, number, text):
    [reply] = session.replies(client, [f"user{number}@example.org"], text, sender="a@example.net")
    tl.expect(reply.code == 250, f"{peer.name}: {reply}")


def settle(peer, pause):
    """Work after the 250 counts for its message."""
    tl.wait_for(peer.is_idle, f"{peer.name} to deliver what it has queued")
    time.sleep(pause)


class Strace:
    """strace of all processes of a peer, and of those that they start, until the end of the block. Then `lines` has what it wrote."""

    def __init__(self, stage, peer):
        self.peer, self.file = peer, stage.dir / f"{peer.name}.strace"

    def __enter__(self):
        pids = self.peer.pids()
        self.directories = {str(pid): self._inside(os.readlink(f"/proc/{pid}/cwd")) for pid in pids}
        self.synchronous = {self._inside(path) for pid in pids for path in synchronous_files(pid)}
        with open(f"{self.file}.log", "wb") as log:
            self.strace = subprocess.Popen(["strace", "-f", "-y", "-s", str(SHOWN), "-e", f"trace={','.join(sync_calls.CALLS)}", "-e", "signal=none", "-o", self.file,
                                            *(word for pid in pids for word in ("-p", str(pid)))], stdout=log, stderr=log)
        tl.wait_for(lambda: self._all_attached(pids), f"strace to see all processes of {self.peer.name}")
        return self

    def _inside(self, text):
        """Descriptors are shown with the machine's paths, and names as the server has them."""
        return text.replace(self.peer.root, "") if self.peer.root else text

    def _all_attached(self, pids):
        tl.expect(self.strace.poll() is None, f"strace: {pathlib.Path(f'{self.file}.log').read_text()[-2000:]}")
        tasks = [task for pid in pids for task in pathlib.Path(f"/proc/{pid}/task").glob("*/status")]
        return all("TracerPid:\t0\n" not in text for text in map(read_if_there, tasks))

    def __exit__(self, *_):
        self.strace.send_signal(signal.SIGINT)
        self.strace.wait()
        self.lines = self._inside(self.file.read_text(errors="replace")).splitlines()


def synchronous_files(pid):
    """The files that a process has open with O_SYNC or O_DSYNC (proc(5): fdinfo). strace does not see that they were opened."""
    for descriptor in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
        flags = next((line.split()[1] for line in read_if_there(descriptor).splitlines() if line.startswith("flags:")), "0")
        if int(flags, 8) & (os.O_DSYNC | os.O_SYNC):
            with contextlib.suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{descriptor.name}")


def read_if_there(path):
    try:
        return path.read_text()
    except OSError:
        return ""  # the process has ended meanwhile


def cells(title, version, found):
    """A row of a table with HEADS: syncs of a message before its 250, in parentheses after it. found: of trace()."""
    means = [f"{found.mean(kind):g}" + (f" ({found.mean(kind, 'after'):g})" if found.mean(kind, "after") else "") for kind in ("file", "directory")]
    return [title, version, *means, "" if found.flushes is None else f"{found.flushes:.1f}", not_synced(found)]


def not_synced(found):
    """In words for the table. Names that ext4 commits with a later sync of another file are marked."""
    at_250, never = found.texts(), found.texts("never_synced")
    words = [f"{text.removesuffix(COMMIT)}{' (*)' if text.endswith(COMMIT) else ''}{'' if share == 1 else f' in {share:.0%}'}" for text, share in at_250.items()]
    words += [f"after the 250: {text}" for text in never if text not in at_250]
    return "; ".join(words) or "nothing"
