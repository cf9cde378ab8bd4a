"""The system calls of one delivery, seen by strace: in tests, and in bench/message_cost."""
import collections, pathlib, re, signal, subprocess

from session import stuffed
from twinloft import Failed, expect, run, wait_for

# Calls whose number depends on the moment, not on the delivery: locks of threads, memory, and clocks without vdso(7).
BY_CHANCE = {"futex", "brk", "clock_gettime", "gettimeofday", "madvise", "mmap", "mprotect", "mremap", "munmap", "restart_syscall", "sched_yield"}
_CALL = re.compile(rb"^(\d+) +([a-z]\w*)\(")


def text_of(size):
    """A message of about this many bytes, with CRLF at each line's end."""
    head = b"Subject: cost\r\nFrom: a@example.org\r\n\r\n"
    return head + (b"x" * 70 + b"\r\n") * max(1, (size - len(head)) // 72)


def deliver(client, count, users=10, size=4096):
    """Messages over one connection, one at a time. MAIL, RCPT and DATA come together, as MTAs send them."""
    text = stuffed(text_of(size))
    for i in range(count):
        client.send(b"MAIL FROM:<a@example.org>\r\nRCPT TO:<user%d@example.net>\r\nDATA\r\n" % (i % users))
        for code in (250, 250, 354):
            reply = client.reply()
            expect(reply.code == code, f"{reply} instead of {code}")
        client.send(text)
        reply = client.reply()
        expect(reply.code == 250, f"{reply}")


class Traced:
    """strace of a process, all of its threads, until the end of the block. Then `lines` has what strace wrote."""

    def __init__(self, stage, pid):
        self._file, self._pid = stage.dir / f"strace.{pid}", pid

    def __enter__(self):
        with open(f"{self._file}.log", "wb") as log:
            self._strace = subprocess.Popen(["strace", "-f", "-o", self._file, "-p", str(self._pid)], stdout=log, stderr=log)
        wait_for(self._all_attached, "strace to see all threads")
        return self

    def _all_attached(self):
        if self._strace.poll() is not None:
            raise Failed(f"strace: {pathlib.Path(f'{self._file}.log').read_text()}")
        tasks = pathlib.Path(f"/proc/{self._pid}/task").glob("*/status")
        return all("TracerPid:\t0\n" not in task.read_text() for task in tasks)

    def __exit__(self, *_):
        self._strace.send_signal(signal.SIGINT)
        self._strace.wait()
        self.lines = self._file.read_bytes().splitlines()


def _calls(lines):
    """Thread and name of each call."""
    for line in lines:
        if found := _CALL.match(line):
            yield int(found[1]), found[2].decode()


def of_process(lines, messages):
    """Calls of all threads for a message: a Counter by name."""
    count = collections.Counter(name for _, name in _calls(lines))
    return {name: calls / messages for name, calls in count.most_common()}


def of_deliveries(lines, messages):
    """Calls of the threads that write messages, for a message, without those by chance."""
    writers = {thread for thread, name in _calls(lines) if name in ("linkat", "renameat2")}
    count = collections.Counter(name for thread, name in _calls(lines) if thread in writers)
    return {name: calls / messages for name, calls in count.most_common() if name not in BY_CHANCE}


def in_order(lines):
    """The calls of a delivering thread for its last traced message, as strace shows them, cut to 150 characters."""
    linking = [line for line in lines if (found := _CALL.match(line)) and found[2] in (b"linkat", b"renameat2")]
    thread = linking[-1].split()[0] + b" "
    calls, own = [], [line[len(thread):].strip() for line in lines if line.startswith(thread) and _CALL.match(line)]
    begins = [i for i, call in enumerate(own) if call.startswith(b"openat(")]  # of the spool's root
    for call in own[begins[-1]:]:
        if call.split(b"(")[0].decode() not in BY_CHANCE:
            calls.append(call.decode(errors="replace")[:150])
    return calls


def trace(stage, lmtpd, pid, client, messages):
    """The lines of strace of that many deliveries, into Maildirs that the process knows. lmtpd: its Process, with a
    line for each delivery in its log. pid: of its server process.
    """
    def lines_of_log(count):
        wait_for(lambda: lmtpd.log.read_text().count('msg="delivered"') >= count, "the log lines of the deliveries")
    deliver(client, 20)
    lines_of_log(20)
    with Traced(stage, pid) as traced:
        deliver(client, messages)
        lines_of_log(20 + messages)
    return traced.lines
