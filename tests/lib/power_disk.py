"""A directory on a disk of power_disk, which is a file system by FUSE. It logs each write, each sync and each
answer, and can make chosen blocks fail.
"""
import os

from twinloft import BIN, Failed, expect, run, wait_for


class PowerDisk:
    """The files in `directory` when it starts are on the disk. log: the file for the events.

    delay_us: how long an answer may take. bad_blocks, bad_writes: files that name the blocks that cannot be
    read, and the next write that fails.
    """

    def __init__(self, stage, directory, log, delay_us=None, seed=None, bad_blocks=None, bad_writes=None):
        self.stage, self.directory, self.log, self.process = stage, directory, log, None
        options = {"--delay-us": delay_us, "--seed": seed, "--bad-blocks": bad_blocks, "--bad-writes": bad_writes}
        self.options = [word for option, value in options.items() if value is not None for word in (option, str(value))]

    def start(self):
        self.process = self.stage.start("power_disk", [BIN / "power_disk", "--directory", self.directory, "--log", self.log, *self.options])
        self.stage.on_close(self.stage.unmount, self.directory)
        wait_for(lambda: os.path.ismount(self.directory) or self.process.check_alive(), "the disk")

    def end(self):
        """Unmounts the disk, and waits for its complete log."""
        run("umount", self.directory)
        wait_for(lambda: not self.process.alive(), "power_disk to write its log and end")
        if self.process.process.returncode != 0:
            raise Failed(f"power_disk: exit {self.process.process.returncode}\n{self.process.log.read_text()}")


class FaultyDisk(PowerDisk):
    """A disk with the data and the journal of one node of a volume, whose blocks can be made to fail."""

    def __init__(self, stage, volume, node="a"):
        directory, self.list, self.writes = stage.dir / "disk", stage.dir / "bad", stage.dir / "bad-writes"
        super().__init__(stage, directory, stage.dir / "log", bad_blocks=self.list, bad_writes=self.writes)
        directory.mkdir()
        text = volume.config[node].read_text()
        for file in ("data", "journal"):
            old = f'"{stage.dir}/{node}/{file}"'
            expect(text.count(old) == 1, f"{old} in {text}")
            text = text.replace(old, f'"{directory}/{file}"')
        volume.config[node].write_text(text)

    def _list(self, file, text):
        """The disk reads the file at any moment, so it is replaced as a whole."""
        following = file.with_name(file.name + ".next")
        following.write_text(text)
        os.rename(following, file)

    def break_blocks(self, *blocks):
        """These blocks of the data area cannot be read until they are written again."""
        expect(not self.broken(), "blocks are still broken from before")
        self._list(self.list, "".join(f"data {b}\n" for b in blocks))

    def broken(self):
        return self.list.read_text().split() if self.list.exists() else []

    def fail_a_write(self, file, first, last):
        """The next write that touches these blocks of "data" or "journal" fails."""
        self._list(self.writes, f"{file} {first} {last}\n")

    def wait_hit(self):
        wait_for(lambda: not self.writes.read_text(), "the write to fail")

    def wait_mended(self):
        wait_for(lambda: not self.broken(), "the blocks to be written again")
