"""Tests of superblock.py with the golden bytes of the format."""
import pathlib, tempfile, unittest

import superblock

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"


def golden(name):
    _, size, *lines = (GOLDEN / f"{name}.hex").read_text().split()
    return bytes.fromhex("".join(lines)).ljust(int(size), b"\0")


class Superblocks(unittest.TestCase):
    def test_the_golden_superblock_becomes_that_of_version_5(self):
        old = golden("superblock-v5")
        self.assertEqual(superblock.of_version_5(golden("superblock"), old[200:312]), old)

    def test_a_check_value_of_crc32c(self):
        self.assertEqual(superblock.crc32c(b"123456789"), 0xE3069283)

    def test_a_state_of_the_disk_is_not_forgotten(self):
        with self.assertRaisesRegex(ValueError, "version 6, state of the disk 0"):
            superblock.of_version_5(golden("superblock"))

    def test_another_version_is_refused(self):
        with self.assertRaisesRegex(ValueError, "version 5"):
            superblock.of_version_5(golden("superblock-v5"), bytes(112))

    def test_both_copies_of_a_journal(self):
        new = golden("superblock")
        consistent = new[:200] + bytes(128) + new[328:]
        with tempfile.NamedTemporaryFile() as file:
            file.write(consistent.ljust(65536, b"x") + consistent + b"ring")
            file.flush()
            self.assertEqual(superblock.versions(file.name), [6, 6])
            superblock.downgrade(file.name)
            self.assertEqual(superblock.versions(file.name), [5, 5])
            content = pathlib.Path(file.name).read_bytes()
        self.assertEqual(content[:4096], superblock.of_version_5(consistent))
        self.assertEqual(content[4096:65536], b"x" * (65536 - 4096))
        self.assertEqual(content[65536:], content[:4096] + b"ring")


if __name__ == "__main__":
    unittest.main()
