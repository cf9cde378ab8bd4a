#!/usr/bin/env python3
"""A run is a pure function of its seed. Each seed gives the same trace, byte for byte, in its own process and in a
process that has run other seeds. Content and addresses of memory do not matter.

    same_twice.py REPL_SIM [FIRST [SEEDS]]
"""
import os
import subprocess
import sys


def trace(program, first, seeds, perturb):
    done = subprocess.run([program, "--first", str(first), "--seeds", str(seeds), "--trace"], capture_output=True,
                          text=True, env=dict(os.environ, MALLOC_PERTURB_=str(perturb)))
    if done.returncode != 0:
        sys.exit(f"seed {first}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def first_difference(a, b):
    for number, (left, right) in enumerate(zip(a.splitlines(), b.splitlines()), 1):
        if left != right:
            return f"line {number}:\n  {left}\n  {right}"
    return "one of them ends before the other"


def main():
    program = sys.argv[1]
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    seeds = int(sys.argv[3]) if len(sys.argv) > 3 else 12
    together = trace(program, first, seeds, 0)
    if together.count("digest ") != seeds:
        sys.exit("not every seed ends in a digest")
    alone = "".join(trace(program, seed, 1, 85) for seed in range(first, first + seeds))
    if together != alone:
        sys.exit(f"two runs differ at {first_difference(together, alone)}")
    print(f"{seeds} seeds from {first}: the same again")


if __name__ == "__main__":
    main()
