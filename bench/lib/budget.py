"""A share of a disk's bandwidth for a process: cgroup v1, blkio.throttle.write_bps_device.

The limit applies to the writes of the process itself with O_DIRECT, also by io_uring's workers: spool-repl, or
fio. Writes of the kernel for a process (a loop device, the page cache) do not count.
"""
import os, pathlib

import twinloft as tl

ROOT = pathlib.Path("/sys/fs/cgroup/blkio")


def disk_of(directory):
    """(major:minor, name) of the whole disk of the directory's file system. Throttling does not apply to partitions."""
    device = os.stat(directory).st_dev
    here = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    tl.expect(here.exists(), f"{directory} does not lie on a block device")
    here = here.resolve()
    if (here / "partition").exists():
        here = here.parent
    return (here / "dev").read_text().strip(), here.name


class Budget:
    """A cgroup, which is removed with the stage. Its processes share the bandwidth."""

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
            (ROOT / "cgroup.procs").write_text(pid)  # processes that are left are ended by the code that started them
        self.group.rmdir()
