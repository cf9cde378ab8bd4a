"""fio's jobs, and one run of one of them against a target."""
import json, re, statistics

import twinloft as tl


def _write(depth, jobs=1):
    return {"rw": "randwrite", "bs": "4k", "iodepth": depth, "numjobs": jobs}


def _sync(jobs):
    return {"rw": "randwrite", "bs": "4k", "iodepth": 1, "numjobs": jobs, "sync": True}


# sync: each write is followed by a flush (fdatasync; over NBD a FLUSH), and the next write waits for it.
JOBS = {
    **{f"randwrite-d{d}": _write(d) for d in (1, 4, 16, 32, 64)},
    **{f"randwrite-j{j}": _write(8, j) for j in (1, 4, 8)},
    **{f"sync-j{j}": _sync(j) for j in (1, 4, 12, 32)},
    "seqwrite-1m": {"rw": "write", "bs": "1m", "iodepth": 8, "numjobs": 1},
    "seqwrite-4m": {"rw": "write", "bs": "4m", "iodepth": 4, "numjobs": 1},
    "seqread-1m": {"rw": "read", "bs": "1m", "iodepth": 8, "numjobs": 1},
    "randread-d1": {"rw": "randread", "bs": "4k", "iodepth": 1, "numjobs": 1},
    "randread-d32": {"rw": "randread", "bs": "4k", "iodepth": 32, "numjobs": 1},
    "mixed-d32": {"rw": "randrw", "rwmixread": 70, "bs": "4k", "iodepth": 32, "numjobs": 1},
}
STRETCH_MS = 200
# A few blocks are written repeatedly, without a flush, and read: a volume answers both from memory.
FROM_MEMORY = "memory-d1"
_SPECS = JOBS | {FROM_MEMORY: {"rw": "randrw", "rwmixread": 90, "bs": "4k", "iodepth": 1, "numjobs": 1, "size": 64 << 10}}


def writes(job):
    return _SPECS[job]["rw"] not in ("read", "randread")


def _words(job, target):
    spec = _SPECS[job]
    words = [f"--name={job}", f"--rw={spec['rw']}", f"--bs={spec['bs']}", f"--iodepth={spec['iodepth']}",
             f"--numjobs={spec['numjobs']}", f"--size={spec.get('size', target.size)}", "--thread", "--group_reporting", "--norandommap",
             "--randrepeat=0", "--direct=1", "--percentile_list=50:99:99.9", "--lat_percentiles=0", *target.words]
    if "rwmixread" in spec:
        words.append(f"--rwmixread={spec['rwmixread']}")
    if spec.get("sync"):
        # fio's NBD engine has only fsync, for which it sends a FLUSH. Each job has its own connection.
        words.append("--fsync=1" if target.is_nbd else "--fdatasync=1")
    return words


def _call(words, directory, budget, seconds):
    out = directory / "fio.json"
    # A process that joins the group before it becomes fio. Otherwise its first writes would not be limited.
    enter = {"preexec_fn": lambda: budget.add("0")} if budget else {}
    r = tl.run("fio", "--output-format=json", f"--output={out}", *words, check=False, timeout=seconds, cwd=directory, **enter)
    text = out.read_text() if out.exists() else ""
    if r.returncode != 0 or "{" not in text:
        raise tl.Failed(f"fio {' '.join(words)}: exit {r.returncode}\n{r.stdout}\n{text[-3000:]}")
    return json.loads(text[text.index("{"):])["jobs"][0]


def _percentile(latencies, wanted):
    for key, value in latencies.get("percentile", {}).items():
        if abs(float(key) - wanted) < 1e-6:
            return value / 1000
    return None


def prefill(target, directory):
    """Writes the whole target once, so that no measured write allocates blocks."""
    _call(["--name=prefill", "--rw=write", "--bs=1m", "--iodepth=8", f"--size={target.size}", "--direct=1", "--refill_buffers",
           "--end_fsync=1", *target.words], directory, None, 1800)


def write_through(target, job, directory, io_bytes):
    """Runs the job for a number of bytes, as fast as possible."""
    each = io_bytes // JOBS[job]["numjobs"]
    _call([*_words(job, target), f"--io_size={each}"], directory, target.budget, 3600)


def measure(target, job, directory, seconds):
    """Runs the job once. Rates are per second, latencies in microseconds: of flushes if the job has them, otherwise of writes,
    otherwise of reads."""
    log = directory / "rate"
    for old in directory.glob("rate_*.log"):
        old.unlink()
    words = [*_words(job, target), "--time_based", f"--runtime={seconds}",
             f"--write_iops_log={log}", f"--log_avg_msec={STRETCH_MS}"]
    found = _call(words, directory, target.budget, seconds + 120)
    read, write = found["read"], found["write"]
    told = found["sync"]["lat_ns"] if _SPECS[job].get("sync") else (write if writes(job) else read)["clat_ns"]
    if found["error"]:
        raise tl.Failed(f"fio {job} on {target.name}: error {found['error']}")
    return {
        "ops": read["iops"] + write["iops"],
        "mib": (read["bw_bytes"] + write["bw_bytes"]) / (1 << 20),
        "p50_read": _percentile(read["clat_ns"], 50), "p50_write": _percentile(write["clat_ns"], 50),
        "p50": _percentile(told, 50), "p99": _percentile(told, 99), "p999": _percentile(told, 99.9),
        "mean": told.get("mean", 0) / 1000,
        "total_ops": read["total_ios"] + write["total_ios"],
        "written": write["io_bytes"],
        "each_second": _each_second(directory, seconds - 1),  # the last second is seldom complete
    }


def _each_second(directory, seconds):
    """The operations in each whole second. fio logs a rate for each STRETCH_MS, sometimes late. It omits periods without
    operations, so the entry after a gap is for its end."""
    sums = [0.0] * seconds
    for log in directory.glob("rate_iops*.log"):
        last = {}  # of each direction
        for line in log.read_text().splitlines():
            end, rate, direction = (int(field) for field in re.split(r",\s*", line)[:3])
            gap = end - last.get(direction, 0)
            _lay(sums, end - (gap if gap < 1.5 * STRETCH_MS else STRETCH_MS), end, rate)
            last[direction] = end
    return [round(s) for s in sums]


def _lay(sums, begin, end, rate):
    for second in range(max(begin, 0) // 1000, min(-(-end // 1000), len(sums))):
        sums[second] += rate * (min(end, (second + 1) * 1000) - max(begin, second * 1000)) / 1000


def level(rates):
    """The worst second as a share of the usual second: 1 is constant, near 0 is a saw-tooth."""
    return min(rates) / statistics.median(rates) if len(rates) >= 3 and statistics.median(rates) else None
