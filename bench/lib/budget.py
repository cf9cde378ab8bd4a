"""A share of a disk's bandwidth for a process: cgroup v1, blkio.throttle.write_bps_device.

It counts what the process itself writes with O_DIRECT, io_uring's workers included: a process of spool-repl, or fio. What the
kernel writes for somebody (a loop device, the page cache) is another one's.
"""
import os, pathlib

import twinloft as tl

ROOT = pathlib.Path("/sys/fs/cgroup/blkio")


def disk_of(directory):
    """(major:minor, name) of the whole disk that the directory's file system lies on; throttling knows no partitions."""
    device = os.stat(directory).st_dev
    here = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    tl.expect(here.exists(), f"{directory} does not lie on a block device")
    here = here.resolve()
    if (here / "partition").exists():
        here = here.parent
    return (here / "dev").read_text().strip(), here.name


class Budget:
    """A group of its own, taken away with the stage. Processes that are put into it share the bandwidth."""

    def __init__(self, stage, name, directory, bytes_per_second):
        tl.expect((ROOT / "blkio.throttle.write_bps_device").exists(), f"{ROOT}: no cgroup v1 blkio here, so no budgets")
        numbers, self.disk = disk_of(directory)
        self.group = ROOT / f"tlbench-{os.getpid()}-{name}"
        self.group.mkdir()
        stage.on_close(self._remove)
        (self.group / "blkio.throttle.write_bps_device").write_text(f"{numbers} {bytes_per_second}\n")

    def add(self, pid):
        (self.group / "cgroup.procs").write_text(str(pid))

    def _remove(self):
        for pid in (self.group / "cgroup.procs").read_text().split():
            (ROOT / "cgroup.procs").write_text(pid)  # whatever is still there is ended by those who started it
        self.group.rmdir()
