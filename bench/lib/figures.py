"""Counters of processes, measurements in rounds, and their figures as Markdown."""
import json, os, pathlib, statistics, sys, time

import machine

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """The CPU seconds of all threads of a process, in user space and in the kernel (proc(5))."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def cpu_seconds_of_group(pgid):
    """The CPU seconds of all processes of a process group."""
    total = 0
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rsplit(")", 1)[1].split()[2]) == pgid:
                total += cpu_seconds(int(stat.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            pass  # the process has ended meanwhile
    return total


def busy_seconds():
    """The CPU seconds of the whole machine, in user space and in the kernel (proc(5): /proc/stat)."""
    fields = pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _wait, irq, softirq = (int(f) for f in fields[:7])
    return (user + nice + system + irq + softirq) / _TICKS


def written_bytes(pid):
    """The bytes that the process has caused to be written to disks (proc(5): write_bytes). A tmpfs does not count."""
    for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    raise ValueError(f"/proc/{pid}/io has no write_bytes")


def memory_kib(pid, key):
    """A figure of /proc/PID/status in KiB. key: VmRSS, VmHWM, VmLck ... of proc(5)."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise ValueError(f"/proc/{pid}/status has no {key}")


def bytes_of(text):
    """The number of bytes of a size as in spool-repl's configuration, such as "64MiB", or of a number."""
    for unit, shift in (("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)):
        if str(text).endswith(unit):
            return int(str(text)[:-3]) << shift
    return int(text)


def spread(values, pattern="{:.1f}"):
    """The median, and the smallest and the largest value. Empty: no values."""
    values = [v for v in values if v is not None]
    if not values:
        return ""
    low, middle, high = (pattern.format(v) for v in (min(values), statistics.median(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({low} to {high})"


def median(values, pattern="{:.1f}"):
    values = [v for v in values if v is not None]
    return pattern.format(statistics.median(values)) if values else ""


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows])


def in_rounds(rounds, cases, measure, shown):
    """Measures every case once in each round, so that a slow moment of the machine hits all of them.

    measure(case, round) with rounds from 0. shown(result): what is printed of it. Returns the results of each
    case, in a dictionary.
    """
    found = {case: [] for case in cases}
    for number in range(rounds):
        for case in cases:
            found[case].append(measure(case, number))
            name = ", ".join(map(str, case)) if isinstance(case, tuple) else case
            print(f"round {number + 1}, {name}: {shown(found[case][-1])}", file=sys.stderr, flush=True)
    return found


def write_json(options, found):
    """All figures, the settings and the machine into the file options.json, if it is set. An object is written as its fields, and a
    key of several parts as one text."""
    if options.json:
        settings = {k: v for k, v in vars(options).items() if k not in ("json", "plot", "svg")}
        content = {"date": time.strftime("%Y-%m-%d"), "machine": machine.describe(getattr(options, "dir", os.environ.get("TMPDIR", "/var/tmp"))),
                   "settings": settings, "found": {", ".join(map(str, k)) if isinstance(k, tuple) else k: v for k, v in found.items()}}
        pathlib.Path(options.json).write_text(json.dumps(content, indent=1, default=vars) + "\n")
