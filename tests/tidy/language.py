#!/usr/bin/env python3
"""Checks the English of the tree: banned expressions everywhere, and long sentences in README and docs/.

    language.py [--root DIR] [--list [PATH ...]]

A banned expression makes the reader guess the meaning of a pronoun, or replaces the field's word by an invented
one. A sentence of documentation has at most 25 words. Code blocks, tables, headings and addresses have no such
limit. LIMITS has the counts that each folder may still have. A count below its limit is an error too: lower the
limit. --list names each place instead, in PATH only.
"""
import argparse
import collections
import os
import re
import sys

WORDS_MAX = 25

# Each with a replacement.
BANNED = {
    "whoever": "name the replica, the client, the caller",
    "that one": "repeat the noun",
    "the other one": "repeat the noun, or say peer",
    "put off": "deferred",
    "puts off": "defers",
    "stands still": "is suspended, is blocked",
    "stand still": "are suspended, are blocked",
    "is told": "gets, is notified",
    "are told": "get, are notified",
    "taken for": "mistaken for, treated as",
    "goes on without": "continues without",
    "go on without": "continue without",
    "to be had": "available",
}

# Folder -> (banned expressions, long sentences). A file belongs to the longest entry that is a prefix of its path.
# Without an entry, the limit is zero.
LIMITS = {}

TEXT = (".cc", ".h", ".c", ".py", ".sh", ".cmake", ".txt", ".md", ".toml", ".conf", ".in", ".sql", ".service", ".yml", "")
SKIPPED = {".git", "build", "__pycache__", ".cache"}
OWN = {"tests/tidy/language.py", "tests/tidy/test_language.py", "LICENSE"}  # the first two contain the banned expressions; the licence is quoted

# Between two words of an expression: blanks, a line end with the mark of the next comment or quotation, or the
# boundary of two literals.
GAP = r"""(?:[ \t]+|[ \t]*"?[ \t]*\r?\n[ \t]*(?://[/!]?<?|\#|\*|>|"|f")?[ \t]*)"""
BANNED_RE = re.compile(
    r"(?<![\w-])(" + "|".join(re.escape(b).replace(r"\ ", GAP) for b in BANNED) + r")(?![\w-])", re.IGNORECASE)


def banned_in(text):
    """Returns (line, expression) for each banned expression."""
    for match in BANNED_RE.finditer(text):
        words = re.findall(r"[A-Za-z]+", re.sub(r'\bf"', '"', match.group()))
        yield text.count("\n", 0, match.start()) + 1, " ".join(words).lower()


def blocks(text):
    """Returns (line, prose) for each paragraph and list item of a Markdown text."""
    fenced, start, lines = False, 0, []
    for number, line in enumerate(text.split("\n") + [""], 1):
        bare = re.sub(r"^\s*(>\s*)*", "", line)
        if re.match(r"(```|~~~)", bare):
            fenced = not fenced
            bare = ""
        elif fenced or re.match(r"(\||#|\[[^\]]+\]:\s)", bare) or line.startswith("    ") and not lines:
            bare = ""
        item = re.match(r"([-*+]|\d+\.)\s+", bare)
        if lines and (not bare or item):
            yield start, " ".join(lines)
            lines = []
        if bare:
            if not lines:
                start = number
            lines.append(bare[item.end():] if item else bare)


def sentences(prose):
    """The sentences of a paragraph. Code and an address count as one word, the target of a link as none."""
    prose = re.sub(r"``.+?``|`[^`]+`", "CODE", prose)
    prose = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", prose)
    prose = re.sub(r"<?https?://\S+", "ADDRESS", prose)
    prose = re.sub(r"\b(e\.g|i\.e|cf|vs|no|approx)\.", r"\1", prose)
    return [s for s in re.split(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_\[]*[A-Z0-9])|(?<=[.!?])$|(?<=:)\s+(?=[A-Z])", prose) if s.strip()]


def long_in(text):
    """Returns (line, words, sentence) for each sentence that is too long."""
    for line, prose in blocks(text):
        for sentence in sentences(prose):
            words = len([w for w in sentence.split() if re.search(r"\w", w)])
            if words > WORDS_MAX:
                yield line, words, sentence


def files(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED)
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root)
            if os.path.splitext(name)[1] in TEXT and path not in OWN and not os.path.islink(os.path.join(root, path)):
                yield path


def read(root, path):
    with open(os.path.join(root, path), "rb") as f:
        data = f.read()
    return "" if b"\0" in data else data.decode("utf-8", "replace")


def owner(path, limits):
    owners = [f for f in limits if path == f or path.startswith(f + "/")]
    return max(owners, key=len) if owners else None


def is_documentation(path):
    return path.endswith(".md") and (path.startswith("docs/") or "/" not in path)


def count(root):
    """Path -> ([(line, expression)], [(line, words, sentence)])"""
    found = {}
    for path in files(root):
        text = read(root, path)
        found[path] = (list(banned_in(text)), list(long_in(text)) if is_documentation(path) else [])
    return found


def compare(found, limits):
    """The violations, as text."""
    sums = collections.Counter()
    wrong = []
    for path, (banned, long) in found.items():
        folder = owner(path, limits)
        if folder:
            sums[folder, 0] += len(banned)
            sums[folder, 1] += len(long)
            continue
        wrong += [f"{path}:{line}: [language] \"{b}\": {BANNED[b]}" for line, b in banned]
        wrong += [f"{path}:{line}: [language] a sentence of {words} words; {WORDS_MAX} at most" for line, words, _ in long]
    for folder, allowed in limits.items():
        for kind, name in enumerate(("banned expressions", "long sentences")):
            if sums[folder, kind] > allowed[kind]:
                wrong.append(f"{folder}: [language] {sums[folder, kind]} {name}, {allowed[kind]} at most; see --list {folder}")
            elif sums[folder, kind] < allowed[kind]:
                wrong.append(f"{folder}: [language] {sums[folder, kind]} {name}; lower its limit of {allowed[kind]} in language.py")
    return wrong


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("paths", nargs="*", metavar="PATH")
    args = parser.parse_args(argv)
    found = count(args.root)
    if not found:
        print(f"language: no file under {args.root}: is --root right?", file=sys.stderr)
        return 2
    if args.list:
        for path, (banned, long) in found.items():
            if not args.paths or owner(path, args.paths):
                for line, b in banned:
                    print(f"{path}:{line}: \"{b}\": {BANNED[b]}")
                for line, words, sentence in long:
                    print(f"{path}:{line}: {words} words: {sentence}")
        return 0
    wrong = compare(found, LIMITS)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    totals = [sum(len(f[kind]) for f in found.values()) for kind in (0, 1)]
    print(f"language: {len(found)} files, {totals[0]} banned expressions, {totals[1]} long sentences, {len(wrong)} violations",
          file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
