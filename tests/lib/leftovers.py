"""A run records what it makes in a file of its directory. The next run removes what a killed run has left,
and nothing else.

A run holds a lock on its file as long as it lives. A file that can be locked belongs to a run that has ended
without cleaning up.
"""
import contextlib, fcntl, json, os, pathlib, shutil, signal, subprocess, time

NAME = ".made"


def started(pid):
    """The start time in ticks, which identifies a process together with its number. None: no such process."""
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return None


class Record:
    def __init__(self, directory):
        made = pathlib.Path(directory) / f"{NAME}.new"
        self.file = open(made, "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)
        made.rename(pathlib.Path(directory) / NAME)  # no other run finds it unlocked

    def process(self, pid):
        self.add({"pid": pid, "started": started(pid)})

    def namespace(self, name):
        self.add({"namespace": name})

    def add(self, entry):
        self.file.write(json.dumps(entry) + "\n")
        self.file.flush()


def below(path, directory):
    return path.startswith(f"{directory}/")


def mounts(directory):
    """Mount points below the directory, newest first."""
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4].encode().decode("unicode_escape") for line in lines]
    return [p for p in reversed(points) if below(p, directory)]


def loops(directory):
    """Loop devices on files below the directory."""
    found = []
    for backing in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if below(backing.read_text().removesuffix("\n"), directory):
                found.append(f"/dev/{backing.parts[3]}")
    return found


def quietly(*command):
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=120)


def entries(file):
    for line in file:
        with contextlib.suppress(ValueError):  # the last line of a killed run may be incomplete
            yield json.loads(line)


def take_away(directory, made):
    processes = [e for e in made if e.get("started") is not None and started(e["pid"]) == e["started"]]
    for e in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(e["pid"], signal.SIGKILL)  # each process was started as its own process group
    end = time.monotonic() + 60
    while any(started(e["pid"]) == e["started"] for e in processes) and time.monotonic() < end:
        time.sleep(0.05)
    devices = loops(directory)
    for point in mounts(directory):
        quietly("umount", "-l", point)
    for device in devices:
        quietly("losetup", "-d", device)
    for e in made:
        if "namespace" in e:
            quietly("ip", "netns", "del", e["namespace"])
    shutil.rmtree(directory, ignore_errors=True)


def sweep(parent):
    """Removes what killed runs have left in directories below parent. Returns these directories."""
    swept = []
    for path in sorted(pathlib.Path(parent).glob(f"*/{NAME}")):
        with contextlib.suppress(OSError), open(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            directory = str(path.parent.resolve())
            print(f"Removing what a killed run has left in {directory}", flush=True)
            take_away(directory, list(entries(file)))
            swept.append(directory)
    return swept
