#!/usr/bin/env python3
"""`soak` runs until it is stopped, and prints its first seed. Without a given seed, each run begins at another one.

    soak_test.py FOLDER_OF_REPL_SIM
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

SOAK = pathlib.Path(__file__).resolve().parent / "soak"


def soak(folder, *words):
    """Runs soak until some seeds have ended, then stops it. Returns the first seed and the number of seeds."""
    for seconds in (2, 10, 60):
        process = subprocess.Popen([SOAK, "--jobs", "2", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env=dict(os.environ, TWINLOFT_BIN=folder))
        time.sleep(seconds)
        ended = process.poll() is not None
        process.send_signal(signal.SIGTERM)
        out = process.communicate()[0]
        found = re.search(r"(\d+) seeds from (\d+), no violation", out)
        if ended or process.returncode != 0 or not found:
            sys.exit(f"exit {process.returncode}, {'by itself' if ended else 'when stopped'}:\n{out}")
        if int(found.group(1)) > 0:
            return int(found.group(2)), int(found.group(1))
    sys.exit("no seed within a minute")


def main():
    folder = sys.argv[1]
    first, seeds = soak(folder, "--first", "1")
    if first != 1:
        sys.exit(f"it was to begin at 1, and began at {first}")
    one, another = soak(folder), soak(folder)
    if one[0] == another[0]:
        sys.exit(f"two runs began at {one[0]}")
    print(f"stopped after {seeds}, {one[1]} and {another[1]} seeds")


if __name__ == "__main__":
    main()
