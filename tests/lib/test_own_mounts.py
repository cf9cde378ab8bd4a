#!/usr/bin/env python3
"""A program that copies the mounts of another namespace keeps no file system of a test busy."""
import os, pathlib, subprocess, sys, tempfile, unittest

import own_mounts


def run(*command):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout.strip()


# Mounts a loop device in its own namespace, waits for a line, unmounts it, and opens the device for itself.
CHILD = """
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
import own_mounts
own_mounts.enter(sys.argv[2])
subprocess.run(["mount", sys.argv[3], sys.argv[2] + "/at"], check=True)
print("mounted", flush=True)
sys.stdin.readline()
subprocess.run(["umount", sys.argv[2] + "/at"], check=True)
os.close(os.open(sys.argv[3], os.O_RDONLY | os.O_EXCL))
print("free", flush=True)
"""


@unittest.skipIf(os.geteuid() != 0, "needs root")
class OwnMounts(unittest.TestCase):
    def test_an_unmounted_device_is_free(self):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as parent:
            image = pathlib.Path(parent, "image")
            image.touch()
            os.truncate(image, 16 << 20)
            os.mkdir(os.path.join(parent, "at"))
            run("mkfs.ext4", "-q", image)
            device = run("losetup", "--find", "--show", image)
            self.addCleanup(run, "losetup", "-d", device)
            lib = str(pathlib.Path(own_mounts.__file__).parent)
            with subprocess.Popen([sys.executable, "-c", CHILD, lib, parent, device], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True) as child:
                self.assertEqual(child.stdout.readline(), "mounted\n")
                copy = subprocess.Popen(["unshare", "--mount", "sh", "-c", "echo copied; exec sleep 60"],
                                        stdout=subprocess.PIPE, text=True)
                try:
                    self.assertEqual(copy.stdout.readline(), "copied\n")
                    self.assertEqual(child.communicate("go\n")[0], "free\n")
                finally:
                    copy.kill()
                    copy.communicate()
            self.assertEqual(child.returncode, 0)


if __name__ == "__main__":
    unittest.main()
