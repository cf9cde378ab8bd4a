#!/usr/bin/python3
"""Runs a command whose programs come late at single steps: between bind and listen, at a log line, a new thread, a rename.

    tests/lib/delays.py COMMAND...

A test that takes one step of a program for the sign of another fails. delays.c has the steps; it is built with cc, and
loaded into each program by LD_PRELOAD. A program that gets a new environment or a new root runs as always.
Exit: that of the command; 2 no command.
"""
import os, pathlib, signal, subprocess, sys, tempfile

SOURCE = pathlib.Path(__file__).with_name("delays.c")


def end(number, frame):
    sys.exit(128 + number)


def main():
    command = sys.argv[1:]
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    running = None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    # Programs of every user load the library.
    with tempfile.TemporaryDirectory(prefix="twinloft-delays-") as directory:
        library = pathlib.Path(directory) / "delays.so"
        pathlib.Path(directory).chmod(0o755)
        subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
        try:
            running = subprocess.Popen(command, env=dict(os.environ, LD_PRELOAD=str(library)))
            return running.wait()
        finally:
            if running and running.poll() is None:
                running.terminate()
                running.wait()


sys.exit(main())
