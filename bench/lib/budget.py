"""A share of a disk's bandwidth for a process: cgroup v1, blkio.throttle.write_bps_device or read_bps_device; without it
cgroup v2, io.max.

The limit applies to what the process itself reads or writes with O_DIRECT, also by io_uring's workers: spool-repl, or
fio. Writes of the kernel for a process (a loop device, the page cache) do not count.
"""
import os, pathlib

import twinloft as tl

ROOT = pathlib.Path("/sys/fs/cgroup/blkio")
ROOT_V2 = pathlib.Path("/sys/fs/cgroup")


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

    def __init__(self, stage, name, directory, bytes_per_second, of="write"):
        """of: "write" or "read"."""
        v1 = (ROOT / f"blkio.throttle.{of}_bps_device").exists()
        controllers = ROOT_V2 / "cgroup.controllers"
        tl.expect(v1 or (controllers.exists() and "io" in controllers.read_text().split()),
                  "neither blkio of cgroup v1 nor io of cgroup v2 is here, so no budgets")
        numbers, self.disk = disk_of(directory)
        self.root = ROOT if v1 else ROOT_V2
        if not v1:
            (ROOT_V2 / "cgroup.subtree_control").write_text("+io")
        self.group = self.root / f"tlbench-{os.getpid()}-{name}"
        self.group.mkdir()
        stage.on_close(self._remove)
        if v1:
            (self.group / f"blkio.throttle.{of}_bps_device").write_text(f"{numbers} {bytes_per_second}\n")
        else:
            (self.group / "io.max").write_text(f"{numbers} {of[0]}bps={bytes_per_second}\n")

    def add(self, pid):
        (self.group / "cgroup.procs").write_text(str(pid))

    def _remove(self):
        for pid in (self.group / "cgroup.procs").read_text().split():
            (self.root / "cgroup.procs").write_text(pid)  # processes that are left are ended by the code that started them
        self.group.rmdir()
