#!/usr/bin/python3
"""Runs a command whose programs come late at single steps: between bind and listen, at a log line, a new thread, a rename.

    tests/lib/delays.py COMMAND...

A test that takes one step of a program for the sign of another may fail. delays.c has the steps; it is built with cc, and
loaded into each program by LD_PRELOAD. A program with a new environment runs as always. In a new root, its loader says
that the library is missing.
Exit: that of the command; 1 the library cannot be made or loaded, 2 no command.
"""
import os, pathlib, subprocess, sys, tempfile

from running import running

SOURCE = pathlib.Path(__file__).with_name("delays.c")


def make(library):
    """Builds the library for programs of every user, and loads it once."""
    library.parent.chmod(0o755)
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    library.chmod(0o755)
    said = subprocess.run(["true"], env=dict(os.environ, LD_PRELOAD=str(library)), stderr=subprocess.PIPE, text=True).stderr
    if said:
        sys.exit(f"{sys.argv[0]}: {library} cannot be loaded: {said}")


def main():
    command = sys.argv[1:]
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="twinloft-delays-") as directory:
        library = pathlib.Path(directory) / "delays.so"
        make(library)
        with running(command, env=dict(os.environ, LD_PRELOAD=str(library))) as process:
            return process.wait()


sys.exit(main())
