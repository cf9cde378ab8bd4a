#!/usr/bin/env python3
"""Checks that the C++ sources are formatted as .clang-format says. A fixed version of clang-format defines the
result.

    format.py [--root DIR] [--write]

Exits 1 and names the files that differ. --write formats these files.
"""
import argparse
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tidy  # noqa: E402

PROGRAM = "clang-format-19"
AT_ONCE = 50  # number of files in one call


def differing(root, files):
    """The members of `files` that are not formatted."""
    out = subprocess.run([PROGRAM, "--dry-run", *files], cwd=root, capture_output=True, text=True, check=True).stderr
    marked = {line.split(":", 1)[0] for line in out.splitlines() if "[-Wclang-format-violations]" in line}
    return [f for f in files if f in marked]


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(argv)
    if not shutil.which(PROGRAM):
        print(f"format: {PROGRAM} is not installed: apt-get install {PROGRAM}", file=sys.stderr)
        return 2
    files = [f for f in tidy.Tidy(args.root).files if f.endswith(tidy.CPP)]
    if not files:
        print(f"format: no C++ file under {args.root}: is --root right?", file=sys.stderr)
        return 2
    wrong = [f for at in range(0, len(files), AT_ONCE) for f in differing(args.root, files[at:at + AT_ONCE])]
    if args.write and wrong:
        subprocess.run([PROGRAM, "-i", *wrong], cwd=args.root, check=True)
    for f in wrong:
        print(f"{f}: {'was not formatted' if args.write else 'run tests/tidy/format.py --write'}")
    print(f"format: {len(files)} files, {len(wrong)} not as .clang-format asks for", file=sys.stderr)
    return 1 if wrong and not args.write else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
