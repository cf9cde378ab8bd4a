#!/usr/bin/env python3
"""Tests of mutation.py."""
import fcntl
import os
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import mutation  # noqa: E402


class ReplaceOnce(unittest.TestCase):
    def test_blanks_and_lines_count_alike(self):
        self.assertEqual(mutation.replace_once("a; if (x) f(1, 2); b;", "if (x) f(1, 2);", "g();"), ("a; g(); b;", 1))
        self.assertEqual(mutation.replace_once("a;\nif (x)\n    f(1,\n      2);\nb;", "if (x) f(1, 2);", "g();"), ("a;\ng();\nb;", 1))
        self.assertEqual(mutation.replace_once("f(\n    a, b)", "f(a, b)", "h"), ("h", 1))

    def test_a_word_is_whole_and_names_are_no_patterns(self):
        self.assertEqual(mutation.replace_once("ifx(x)", "if (x)", ""), (None, 0))
        self.assertEqual(mutation.replace_once("aXb", "a.b", ""), (None, 0))
        self.assertEqual(mutation.replace_once("p->x += *q;", "p->x += *q;", "\\1"), ("\\1", 1))

    def test_none_and_several(self):
        self.assertEqual(mutation.replace_once("a b a  b", "a b", "c"), (None, 2))
        self.assertEqual(mutation.replace_once("", "a", "c"), (None, 0))

    def test_a_whole_line_goes_with_its_end(self):
        self.assertEqual(mutation.replace_once("x;\n  if (y) return;\n  z;\n", "  if (y) return;\n", ""), ("x;\nz;\n", 1))


class Applied(unittest.TestCase):
    def test_edits_follow_each_other(self):
        self.assertEqual(mutation.applied("m", "f", "a; b;", [("a;", "c;"), ("c; b;", "d;")]), "d;")

    def test_an_edit_that_does_not_apply(self):
        with self.assertRaisesRegex(mutation.DoesNotApply, "mutant m: its text occurs 2 times in f: a"):
            mutation.applied("m", "f", "a a", [("a", "b")])


class BuildLock(unittest.TestCase):
    def test_builds_take_turns(self):
        with tempfile.NamedTemporaryFile() as file, unittest.mock.patch.dict(os.environ, TWINLOFT_BUILD_LOCK=file.name):
            with mutation.build_lock(), open(file.name) as other, self.assertRaises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with open(file.name) as other:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Differences(unittest.TestCase):
    PAGE = "# Page\n\n## Other\n\n| c | x |\n\n## Mutants\n\nText.\n\n| mutant | what |\n|---|---|\n| a-b | x |\n| `c` | y |\n\n## More\n\n| d | z |\n"

    def test_both_sides(self):
        self.assertEqual(mutation.differences(self.PAGE, "Mutants", ["a-b", "c"]), [])
        self.assertEqual(mutation.differences(self.PAGE, "Mutants", ["a-b", "c", "e"]), ["e has no row in the table"])
        self.assertEqual(mutation.differences(self.PAGE, "Mutants", ["c"]), ["no mutation is a-b"])


if __name__ == "__main__":
    unittest.main()
