"""Whether the machine was quiet around a run: what others took of the processors and of the disk. docs/matrix.md has the limits."""
import gzip, json, os, pathlib, resource, statistics, tempfile, time

from twinloft import BIN, run

FOREIGN_MAX = 0.05  # of all processor time, by programs that are not of this benchmark
STEAL_MAX = 0.02  # of all processor time, by the hypervisor for other machines
PROBE_MAX = 2.0  # times the median of the whole matrix
SPEED_MAX = 1.15  # times the median of the whole matrix; nine of ten runs are within 11 % of it
IDLE_MIN, IDLE_S, WAIT_S, WAIT_S_EACH = 0.95, 0.5, 20, 2
PROBES, PROBE_EACH_S = 30, 0.015
_TICKS = os.sysconf("SC_CLK_TCK")
_KTHREADD = 2


def parse_stat(text):
    """The first line of /proc/stat (proc(5)), in seconds. `busy` is of programs and kernel threads, without `interrupts`."""
    user, nice, system, idle, wait, irq, softirq, steal = (int(f) / _TICKS for f in text.splitlines()[0].split()[1:9])
    return {"busy": user + nice + system, "interrupts": irq + softirq, "idle": idle + wait, "steal": steal, "all": user + nice + system + idle + wait + irq + softirq + steal}


def processes_have_interrupts(configuration):
    """Whether the time of a process contains that of the interrupts which it suffered: not with CONFIG_IRQ_TIME_ACCOUNTING."""
    return "CONFIG_IRQ_TIME_ACCOUNTING=y" not in configuration.splitlines()


def foreign_share(before, after, known, with_interrupts):
    """What is left of all processor time between two figures of parse_stat(), without the known seconds of processes."""
    passed = {key: after[key] - before[key] for key in after}
    left = passed["busy"] + (passed["interrupts"] if with_interrupts else 0.0) - known
    return max(0.0, left / max(passed["all"], 1e-9))


def _configuration():
    """The kernel's (proc(5): /proc/config.gz; or its package's). Empty: unknown."""
    for file, opened in (("/proc/config.gz", gzip.open), (f"/boot/config-{os.uname().release}", open)):
        try:
            with opened(file, "rt") as text:
                return text.read()
        except OSError:
            pass
    return ""


def _machine():
    return parse_stat(pathlib.Path("/proc/stat").read_text())


def idle_share(before, after):
    passed = after["all"] - before["all"]
    return (after["idle"] - before["idle"]) / passed if passed else 0.0


def _kernel_threads():
    """The CPU seconds of each kernel thread until now."""
    found = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has ended meanwhile
        if int(fields[1]) == _KTHREADD:
            found[stat.parent.name] = (int(fields[11]) + int(fields[12])) / _TICKS
    return found


def _own():
    """CPU seconds of this process, and of its ended children: the generators."""
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def probe(directory):
    """Milliseconds of a write of 4 KiB and its fdatasync: the mean of some, with pauses, since a busy disk is slow for parts of a second."""
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        block = os.urandom(4096)
        for number in range(PROBES):
            begin = time.monotonic()
            os.pwrite(file.fileno(), block, number % 8 * len(block))
            os.fdatasync(file.fileno())
            times.append((time.monotonic() - begin) * 1e3)
            time.sleep(PROBE_EACH_S)
    return statistics.mean(times)


def speed(directory):
    """Microseconds of CPU of a message between the generator and its own null server. Other machines on the same processors make it slower,
    also where the hypervisor does not count steal."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        run(BIN / "mailbench", "calibrate", "--duration", "300ms", "--clients", 12, "--json", file.name)
        return json.loads(pathlib.Path(file.name).read_text())["generator"]["cpu_us_per_message"]


def usual(noises):
    """The medians of what marks() compares with."""
    values = {key: [noise[key] for noise in noises if key in noise] for key in ("probe_ms", "speed_us")}
    return {key: statistics.median(found) if found else 0.0 for key, found in values.items()}


class Watch:
    """servers(): the CPU seconds of all servers and replicas of this benchmark until now. runs: how many there will be: all waits
    together take at most WAIT_S_EACH seconds for each."""

    def __init__(self, directory, servers, runs):
        self.directory, self.servers, self.left = directory, servers, runs * WAIT_S_EACH
        self.with_interrupts = processes_have_interrupts(_configuration())

    def before(self):
        """Waits for an idle machine, and looks at the disk and the processors. Returns the first figures of a run's noise."""
        begin = time.monotonic()
        while not (is_idle := self._is_idle()) and time.monotonic() - begin < min(WAIT_S, self.left):
            pass
        waited = time.monotonic() - begin
        self.left -= max(0.0, waited - IDLE_S)
        return {"waited_s": round(waited, 2), "idle_before": is_idle, "probe_ms": round(probe(self.directory), 3), "speed_us": round(speed(self.directory), 2)}

    def _is_idle(self):
        before = _machine()
        time.sleep(IDLE_S)
        return idle_share(before, _machine()) >= IDLE_MIN

    def begin(self):
        self._before = self._counters()

    def end(self):
        """Shares of all processor time since begin()."""
        (machine, kernel, ours), (m, k, o) = self._counters(), self._before
        passed = max(machine["all"] - m["all"], 1e-9)
        known = ours - o + sum(seconds - k.get(pid, 0.0) for pid, seconds in kernel.items())
        return {"foreign": round(foreign_share(m, machine, known, self.with_interrupts), 4),
                "steal": round((machine["steal"] - m["steal"]) / passed, 4), "idle": round((machine["idle"] - m["idle"]) / passed, 4)}

    def _counters(self):
        return _machine(), _kernel_threads(), _own() + self.servers()


def marks(noise, usually):
    """Why a run was not quiet, in words. Empty: it was quiet."""
    words = []
    if not noise["idle_before"]:
        words.append("the machine was not idle before it")
    if noise["foreign"] > FOREIGN_MAX:
        words.append(f"others took {noise['foreign']:.0%} of the processors")
    if noise["steal"] > STEAL_MAX:
        words.append(f"the hypervisor took {noise['steal']:.0%} of the processors")
    if noise["probe_ms"] > PROBE_MAX * usually["probe_ms"]:
        words.append(f"a synced write took {noise['probe_ms']:.2f} ms before it, usually {usually['probe_ms']:.2f} ms")
    if noise.get("speed_us", 0.0) > SPEED_MAX * usually["speed_us"]:  # older reports have none
        words.append(f"the processors were slow before it: {noise['speed_us']:.1f} µs for a message of the generator, usually {usually['speed_us']:.1f} µs")
    return words
