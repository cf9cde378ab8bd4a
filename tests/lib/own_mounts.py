"""A mount namespace for each test."""
import ctypes, os, subprocess

CLONE_NEWNS = 0x20000  # linux/sched.h


def enter(parent):
    """Gives this process a mount namespace of its own. Tests keep their files below `parent`.

    A program that copies the mounts of its namespace (`unshare --mount`, `ip netns exec`, systemd) keeps each file
    system of them busy after its unmount. Its loop device then holds changes that are not written yet. So no
    test sees the mounts of another one. Mounts that are left disappear with the test.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"unshare: {os.strerror(error)}")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    inside = os.path.realpath(parent) + "/"
    with open("/proc/self/mounts") as file:
        targets = [line.split()[1].encode().decode("unicode_escape") for line in file]
    for target in reversed(targets):
        if target.startswith(inside):
            subprocess.run(["umount", "-l", target], check=False)
