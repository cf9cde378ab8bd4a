"""File systems that mail is delivered into: a directory of the disk, a loop device, a replicated volume."""
import os, pathlib, shutil

import delivery_rows, places
import twinloft as tl
from figures import bytes_of, cpu_seconds
from twinloft import run

KEPT = ("lost+found", "peers")
# nodiscard: written blocks stay allocated, which is best for a loop device.
LOOP_WORDS = {"ext4": ["-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"], "xfs": ["-K"]}
MKFS_WORDS = {"ext4": ["-i", "4096"], "xfs": []}


class Spool:
    """A directory to deliver into. setup: a delivery_rows.Setup. volume: of its file system, or None. device: the name of its block device, or None: the disk, which
    others use too. peers: a directory for other servers, on the same file system, or on the same disk."""

    def __init__(self, lab, name, setup):
        self.lab, self.name, self.setup, self.volume, self.device, self.emptied = lab, name, setup, None, None, 0
        self.log_settings = None  # of the intake log that is there
        self.stage = lab.stage.inner(name)
        self.stage.dir.chmod(0o755)
        self.directory = self.stage.dir / "spool"
        if setup.place == "raw":
            self.directory.mkdir()
        else:
            self._make_file_system()
        self.peers = (self.stage.dir if setup.place == "raw" else self.directory) / "peers"
        self.peers.mkdir()
        os.chown(self.directory, *tl.uid_of("vmail"))
        self.settle()

    def _make_file_system(self):
        kind, size, words = self.setup.file_system, bytes_of(self.lab.options.size), []
        if self.setup.place == "loop":
            device, words = places.filled_loop(self.lab, self.stage, self.name, size)[1], LOOP_WORDS[kind]
        else:
            self.volume = self.lab.volume(f"v-{self.name}", self.setup.place, True, self.setup.delay, secured=self.setup.secured)
            places.on_nbd(self.lab, self.volume, self.name)
            device = self.volume.device()
        run(*places.FILE_SYSTEMS[kind], *MKFS_WORDS[kind], *words, *self.setup.mkfs, device)
        self.stage.mount(device, self.directory, "-o", ",".join(["noatime", *([self.setup.mount] if self.setup.mount else [])]))
        if self.volume:
            (self.directory / ".twinloft-spool").write_text(self.volume.uuid + "\n")
        self.device = pathlib.Path(device).name

    @property
    def volume_id(self):
        return self.volume and self.volume.uuid

    def flushes(self):
        """Of its block device until now. None: it has none of its own."""
        return delivery_rows.flushes_of(pathlib.Path(f"/sys/block/{self.device}/stat").read_text()) if self.device else None

    def settle(self):
        run("sync", "-f", self.directory)
        if self.volume:
            tl.wait_for(lambda: places.is_settled(self.volume), f"{self.name} to come to rest", 600)

    def cpu(self):
        """The CPU seconds of each replica until now."""
        return {n: cpu_seconds(p.pid) for n, p in self.volume.nodes.items()} if self.volume else {}

    def empty(self):
        """Removes the mail, except on the disk itself: with `discard`, the disk would be busy in the next run. There it is moved
        away, and is removed with the stage."""
        self.emptied += 1
        for domain in self.directory.iterdir():
            if not domain.is_dir() or domain.name in KEPT or domain.name.startswith("."):
                continue
            if self.setup.place == "raw":
                domain.rename(self.stage.dir / f"{domain.name}-{self.emptied}")
            else:
                shutil.rmtree(domain)
        self.settle()

    def close(self):
        """Frees the disk too. Nothing may run on it."""
        self.stage.close()
        shutil.rmtree(self.stage.dir)
        if self.volume:
            self.volume.stage.close()
            shutil.rmtree(self.volume.stage.dir)
