"""The tests for every kind of block device of Twinloft.

They cover fio with verification, the page cache, discards, a file system, and the death of the process behind the
device.

A device is a path, and `where` is a directory for mounts. The content of the device is overwritten.
"""
import contextlib, fcntl, hashlib, mmap, os, pathlib, random, threading
from concurrent.futures import ThreadPoolExecutor

from twinloft import expect, is_mounted, run, wait_for

BLKFLSBUF, BLKGETSIZE64, BLKSSZGET = 0x1261, 0x80081272, 0x1268
MIB = 1 << 20
NEEDS = ["fio", "mkfs.ext4", "e2fsck", "mount", "umount", "blkdiscard"]


def digest(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def facts(device):
    """Size and logical sector size, in bytes."""
    fd = os.open(device, os.O_RDONLY)
    try:
        return (int.from_bytes(fcntl.ioctl(fd, BLKGETSIZE64, bytes(8)), "little"),
                int.from_bytes(fcntl.ioctl(fd, BLKSSZGET, bytes(4)), "little"))
    finally:
        os.close(fd)


def fio(device, seed):
    common = ["--verify_state_save=0", "--ioengine=libaio", f"--filename={device}", "--direct=1", "--iodepth=32", "--size=64M",
              "--verify=crc32c", "--verify_fatal=1", "--allow_mounted_write=0"]
    run("fio", *common, "--name=random", "--rw=randwrite", "--bs=4k", "--do_verify=1", "--fsync=500", f"--randseed={seed}")
    run("fio", *common, "--name=mixed", "--rw=randrw", "--bsrange=4k-1m", "--blockalign=4k", f"--randseed={seed + 1}")


def page_cache(device, seed):
    """Writes through the page cache in pieces of 64 KiB, from several threads, and reads back.

    The kernel sends many overlapping requests at once. Other exports have mixed up their data there.
    """
    count, piece = 1024, 64 << 10
    for turn in range(2):
        data = [random.Random(seed * 100000 + turn * 10000 + i).randbytes(piece) for i in range(count)]
        order = list(range(count))
        random.Random(seed).shuffle(order)
        fd = os.open(device, os.O_RDWR)
        try:
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda i: os.pwrite(fd, data[i], i * piece), order))
                os.fsync(fd)
                fcntl.ioctl(fd, BLKFLSBUF, 0)
                read = list(pool.map(lambda i: os.pread(fd, piece, i * piece), order))
        finally:
            os.close(fd)
        wrong = [i for i, got in zip(order, read) if got != data[i]]
        expect(not wrong, f"{len(wrong)} of {count} pieces of 64 KiB came back wrong, the first is {min(wrong, default=0)}")


def aligned(data):
    memory = mmap.mmap(-1, len(data))
    memory.write(data)
    return memory


def discard(device):
    fd = os.open(device, os.O_RDWR | os.O_DIRECT)
    try:
        os.pwrite(fd, aligned(b"\xff" * (2 * MIB)), 0)
        run("blkdiscard", "--offset", "4096", "--length", MIB, device)
        run("blkdiscard", "--zeroout", "--offset", MIB + 8192, "--length", "8192", device)
        into = mmap.mmap(-1, 2 * MIB)
        os.preadv(fd, [into], 0)
    finally:
        os.close(fd)
    wanted = bytearray(b"\xff" * (2 * MIB))
    wanted[4096:4096 + MIB] = bytes(MIB)
    wanted[MIB + 8192:MIB + 16384] = bytes(8192)
    expect(into[:] == bytes(wanted), "discarded or zeroed ranges do not read as zeros, or their neighbours changed")


def file_system(device, where, seed):
    root = f"{where}/fs"
    os.makedirs(root, exist_ok=True)
    run("mkfs.ext4", "-q", "-F", device)
    run("mount", "-o", "discard", device, root)
    sums = {}
    try:
        rng = random.Random(seed)
        for i in range(300):
            path = f"{root}/d{i % 10}/f{i}"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            data = rng.randbytes(rng.choice([0, 1, 4095, 4096, 70 << 10, 300 << 10]))
            with open(path + ".tmp", "wb") as f:
                f.write(data)
                if i % 3 == 0:
                    os.fsync(f.fileno())
            os.rename(path + ".tmp", path)
            sums[f"d{i % 10}/f{i}"] = hashlib.sha256(data).hexdigest()
            if i % 5 == 0:
                os.unlink(path)
                del sums[f"d{i % 10}/f{i}"]
    finally:
        run("umount", root)
    run("e2fsck", "-f", "-n", device)
    run("mount", "-o", "ro", device, root)
    try:
        for name, wanted in sums.items():
            expect(digest(f"{root}/{name}") == wanted, f"{name} has other content than was written")
    finally:
        run("umount", root)


class Log(threading.Thread):
    """Appends a block to a file repeatedly, with fdatasync after each, until it fails. `synced` blocks are
    durable.
    """

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.synced, self.error = path, 0, None

    def run(self):
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT)
        try:
            os.fsync(fd)
            while True:
                os.pwrite(fd, (self.synced + 1).to_bytes(8, "little") * 512, self.synced * 4096)
                os.fdatasync(fd)
                self.synced += 1
        except OSError as e:
            self.error = e
        finally:
            with contextlib.suppress(OSError):
                os.close(fd)

    def check(self, path):
        data = pathlib.Path(path).read_bytes()
        expect(len(data) >= self.synced * 4096,
               f"{self.synced} blocks were synced, but the file has {len(data) / 4096}")
        for i in range(self.synced):
            expect(data[i * 4096:(i + 1) * 4096] == (i + 1).to_bytes(8, "little") * 512,
                   f"block {i} of {self.synced} has other content than was synced")


def die_while_syncing(stage, process, device, blocks=200):
    """ext4 on the device, and a log on it. In the middle of a sync, the process behind the device is killed.

    Every program that waits for the device gets an error, and nothing hangs. Returns the log.
    """
    root = stage.dir / "dying"
    run("mkfs.ext4", "-q", "-F", device)
    stage.mount(device, root)
    log = Log(f"{root}/log")
    log.start()
    wait_for(lambda: log.synced >= blocks or log.error, f"{blocks} synced blocks")
    expect(log.error is None, f"the log has ended before the kill: {log.error}")
    process.kill()
    wait_for(lambda: not log.is_alive(), "the sync to the dead device to end with an error")
    expect(log.error is not None, "the sync to the dead device has ended without an error")
    wait_for(lambda: unmounted(root), "the dead device to be unmounted")
    return log


def unmounted(root):
    run("umount", root, check=False)
    return not is_mounted(root)


def survived(log, device, where):
    """Every synced block is on this device, which belongs to another replica."""
    root = f"{where}/survivor"
    os.makedirs(root, exist_ok=True)
    run("mount", device, root)
    try:
        log.check(f"{root}/log")
    finally:
        run("umount", root)
    run("e2fsck", "-f", "-n", device)
