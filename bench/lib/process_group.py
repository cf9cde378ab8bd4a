#!/usr/bin/python3
"""The processes of one server: all of them, the CPU seconds that they took, and their end.

They are in a cgroup of their own. It counts ended processes too, and keeps processes that have left their session. cgroup v2
needs no controller for that; cgroup v1 needs cpuacct. Without either, they are the descendants of the started process.

    process_group.py FILE COMMAND ...    writes its PID to the file, if it is not "-", and becomes the command
"""
import contextlib, itertools, os, pathlib, signal, sys, time

V2 = (pathlib.Path("/sys/fs/cgroup"), pathlib.Path("/sys/fs/cgroup/unified"))
CPUACCT = pathlib.Path("/sys/fs/cgroup/cpuacct")
_TICKS = os.sysconf("SC_CLK_TCK")
_numbers = itertools.count(1)


def _root():
    return next((r for r in V2 if (r / "cgroup.controllers").exists()), CPUACCT if (CPUACCT / "cpuacct.usage").exists() else None)


def _sweep(root):
    """Removes what killed runs have left. A group that still has processes stays."""
    for left in root.glob("tlbench-*"):
        if not pathlib.Path("/proc", left.name.split("-")[1]).exists():
            with contextlib.suppress(OSError):
                left.rmdir()


def _stat(pid):
    """The fields of /proc/PID/stat from `state` on. None: the process has ended."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


class ProcessGroup:
    """Removed with the stage, with processes that are left in it."""

    def __init__(self, stage, name):
        self.stage, self.first, root = stage, None, _root()
        self.directory = root / f"tlbench-{os.getpid()}-{next(_numbers)}-{name}" if root else None
        if self.directory:
            _sweep(root)
            self.directory.mkdir()
            stage.on_close(self._remove)

    def start(self, name, command):
        """Starts the command as the group's first process. Returns its Process."""
        file = self.directory / "cgroup.procs" if self.directory else "-"
        process = self.stage.start(name, [sys.executable, __file__, file, *command])
        self.first = process.pid
        return process

    def pids(self):
        if self.directory:
            return [int(pid) for pid in (self.directory / "cgroup.procs").read_text().split()]
        return self._descendants() if self.first else []

    def _descendants(self):
        stats = {int(p.name): s for p in pathlib.Path("/proc").glob("[0-9]*") if (s := _stat(p.name))}
        found = {self.first} & stats.keys()
        # A group of processes survives its leader, so a daemon's children are found after its end.
        found |= {pid for pid, s in stats.items() if int(s[2]) == self.first}
        while more := {pid for pid, s in stats.items() if int(s[1]) in found} - found:
            found |= more
        return sorted(found)

    def cpu_seconds(self):
        """User and system time of all processes until now, also of those that have ended."""
        if not self.directory:
            times = [s for pid in self.pids() if (s := _stat(pid))]
            return sum(int(field) for s in times for field in s[11:15]) / _TICKS  # with the children waited for
        if (self.directory / "cpuacct.usage").exists():
            return int((self.directory / "cpuacct.usage").read_text()) / 1e9
        fields = dict(line.split() for line in (self.directory / "cpu.stat").read_text().splitlines())
        return int(fields["usage_usec"]) / 1e6

    def kill_rest(self):
        """Ends all processes that are left."""
        end = time.monotonic() + 20
        while (left := self.pids()) and time.monotonic() < end:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def _remove(self):
        self.kill_rest()
        self.directory.rmdir()


if __name__ == "__main__":
    if sys.argv[1] != "-":
        pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
    os.execvp(sys.argv[2], sys.argv[2:])
