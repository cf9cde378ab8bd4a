#!/usr/bin/env python3
"""Tests of language.py."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import language  # noqa: E402

WORDS = " ".join(["word"] * 25)


class Banned(unittest.TestCase):
    def found(self, text):
        return list(language.banned_in(text))

    def test_in_prose_comments_and_literals(self):
        for text in ("Whoever asks gets it.", "/// whoever", "log(\"it is told\");", "# it goes on without the peer"):
            with self.subTest(text=text):
                self.assertEqual(len(self.found(text)), 1)

    def test_across_lines(self):
        for text in ("It is taken\nfor a crash.", "// it is taken\n  // for a crash", "  f(\"it is taken \"\n    \"for a crash\")",
                     "# taken\n# for it", "> taken\n> for it", "(f\"is taken \"\n   f\"for\")"):
            with self.subTest(text=text):
                self.assertEqual([b for _, b in self.found(text)], ["taken for"])

    def test_the_line_is_the_first_one(self):
        self.assertEqual(self.found("a\nthat\none\n"), [(2, "that one")])

    def test_alike(self):
        for text in ("that oneself", "untaken for", "that-one", "thatone", "the other ones", "is\n\ntold"):
            with self.subTest(text=text):
                self.assertEqual(self.found(text), [])


class LongSentences(unittest.TestCase):
    def words(self, text):
        return [words for _, words, _ in language.long_in(text)]

    def test_25_words_are_allowed(self):
        self.assertEqual(self.words(f"{WORDS}."), [])
        self.assertEqual(self.words(f"{WORDS} more."), [26])
        self.assertEqual(self.words(f"W{WORDS[1:]}. W{WORDS[1:]}. W{WORDS[1:]} more."), [26])

    def test_a_sentence_that_runs_over_lines_and_items(self):
        self.assertEqual(self.words("Word " + WORDS.replace(" ", "\n") + "."), [26])
        self.assertEqual(self.words(f"- {WORDS}\n- {WORDS}\n1. {WORDS}"), [])
        self.assertEqual(self.words(f"{WORDS}\n\n{WORDS}"), [])

    def test_what_is_exempt(self):
        self.assertEqual(self.words(f"```\n{WORDS} more\n```\n| {WORDS} | more |\n# {WORDS} more\n"), [])
        self.assertEqual(self.words(f"[{WORDS}](a b c d) and".replace("word", "", 1)), [])
        self.assertEqual(self.words(f"`{WORDS}` `{WORDS}` is code."), [])

    def test_the_line(self):
        self.assertEqual([line for line, _, _ in language.long_in(f"a\n\n{WORDS} more.")], [3])


class Limits(unittest.TestCase):
    def wrong(self, found, limits):
        return len(language.compare(found, limits))

    def test_without_a_limit_none_is_allowed(self):
        self.assertEqual(self.wrong({"base/a.h": ([(1, "whoever")], [])}, {}), 1)
        self.assertEqual(self.wrong({"docs/a.md": ([], [(1, 26, "...")])}, {}), 1)
        self.assertEqual(self.wrong({"base/a.h": ([], [])}, {}), 0)

    def test_a_count_only_falls(self):
        found = {"base/a.h": ([(1, "whoever")], []), "base/b.h": ([(1, "whoever")], [])}
        self.assertEqual(self.wrong(found, {"base": (2, 0)}), 0)
        self.assertEqual(self.wrong(found, {"base": (1, 0)}), 1)
        self.assertEqual(self.wrong(found, {"base": (3, 0)}), 1)
        self.assertEqual(self.wrong(found, {"base": (1, 0), "base/a.h": (1, 0)}), 0)  # the longest entry counts


if __name__ == "__main__":
    unittest.main()
