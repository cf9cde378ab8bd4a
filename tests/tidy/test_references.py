#!/usr/bin/env python3
"""Tests of references.py."""
import os
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import language  # noqa: E402
import references  # noqa: E402

SOURCES = {
    "core/src/a.h": "class Volume {\n public:\n  void load(int first);\n  struct Link { bool up; };\n};\n",
    "core/src/core/log.cc": "int log;\n",
    "tests/a_test.cc": "TEST_F(VolumeTest, LoadsWhatIsThere) {}\n",
    "docs/a.md": "",
}


class Names(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="references.")
        self.addCleanup(shutil.rmtree, self.root)
        for path, text in SOURCES.items():
            os.makedirs(os.path.dirname(os.path.join(self.root, path)), exist_ok=True)
            with open(os.path.join(self.root, path), "w", encoding="utf-8") as f:
                f.write(text)
        self.names = references.Names(self.root, list(language.files(self.root)))

    def test_what_is_there(self):
        for name in ("Volume::load", "Volume::load()", "Link::up", "VolumeTest.LoadsWhatIsThere", "VolumeTest.Loads*",
                     "VolumeTest.Loads...", "core/src/a.h", "core/src/core/log", "core/", "tests/*_test.cc"):
            with self.subTest(name=name):
                self.assertTrue(self.names.has(name))

    def test_what_is_gone(self):
        for name in ("Volume::store", "Log::load", "VolumeTest.Stores", "VolumeTest.Load", "OtherTest.LoadsWhatIsThere", "core/b.h"):
            with self.subTest(name=name):
                self.assertFalse(self.names.has(name))

    def test_what_is_no_name_of_the_tree(self):
        for name in ("std::move(x)", "Volume", "conf.d/x", "/etc/a.toml", "a.b", "key = 1"):
            with self.subTest(name=name):
                self.assertTrue(self.names.has(name))

    def test_code_blocks_are_not_looked_at(self):
        self.assertEqual(list(references.named_in("`a`\n```\n`b`\n```\n`c` and `d`\n")), [(1, "a"), (5, "c"), (5, "d")])


if __name__ == "__main__":
    unittest.main()
