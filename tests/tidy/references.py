#!/usr/bin/env python3
"""Checks that the names in the documentation exist: `Class::member`, `Suite.Test`, and paths of the tree.

    references.py [--root DIR]

Prints one line for each missing name, `file:line: [reference] name`, and exits 1 if there is one. Ignores code
blocks.
"""
import argparse
import glob
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import counts  # noqa: E402
import language  # noqa: E402
import tidy  # noqa: E402

CODE = tidy.CPP + (".py", "")
MEMBER = re.compile(r"([A-Z]\w+)::(~?\w+)(?:\(\))?")
TEST = re.compile(r"([A-Z]\w+)\.([A-Z]\w+)(\*|\.\.\.)?")
PATH = re.compile(r"(?:[\w.-]+/)+[\w.*-]*")


class Names:
    """The names in the sources: the words of each class's body, and all words."""

    def __init__(self, root, files):
        self.root = root
        self.words = set()
        self.classes = {}
        for path in files:
            if os.path.splitext(path)[1] not in CODE or path.startswith("docs/"):
                continue
            text = language.read(root, path)
            self.words.update(re.findall(r"\w+", text))
            if path.endswith(tidy.CPP):
                self.read_classes(tidy.read_cpp(text).code)
        self.folders = {f.split("/")[0] for f in files if "/" in f}

    def read_classes(self, code):
        for match in counts.CLASS.finditer(code):
            body = code[match.end():counts.closing(code, match.end() - 1)]
            self.classes.setdefault(match.group(1).split("::")[-1], set()).update(re.findall(r"\w+", body))

    def has(self, name):
        if member := MEMBER.fullmatch(name):
            return member.group(2).lstrip("~") in self.classes.get(member.group(1), ())
        if test := TEST.fullmatch(name):
            begins = test.group(2)
            whole = begins in self.words or test.group(3) and any(w.startswith(begins) for w in self.words)
            return test.group(1) in self.words and bool(whole)
        if PATH.fullmatch(name) and name.split("/")[0] in self.folders:
            return self.has_path(name.rstrip("/"))
        return True

    def has_path(self, path):
        """Whether the path exists, or is a header without its include path, or a program with a source of that name."""
        folder, name = os.path.split(path)
        places = (path, path + ".cc", f"{folder}/src/{name}", f"{folder}/include/twinloft/{folder}/{name}", f"conf/{path}")
        return any(glob.glob(os.path.join(self.root, p)) for p in places)


def named_in(text):
    """Returns (line, name) for each name in backticks of a Markdown text."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield from ((number, name) for name in re.findall(r"`([^`]+)`", line))


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    root = parser.parse_args(argv).root
    files = list(language.files(root))
    pages = [f for f in files if language.is_documentation(f)]
    names = Names(root, files)
    gone = [(p, line, name) for p in pages for line, name in named_in(language.read(root, p)) if not names.has(name)]
    for path, line, name in gone:
        print(f"{path}:{line}: [reference] {name} is not there")
    if not pages:
        print(f"references: no page under {root}: is --root right?", file=sys.stderr)
        return 2
    print(f"references: {len(pages)} pages, {len(gone)} names that are gone", file=sys.stderr)
    return 1 if gone else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
