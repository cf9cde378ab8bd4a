#!/usr/bin/env python3
"""Breaks the replication core on purpose, one mutation at a time, and checks whether the simulator notices.

    mutants.py [--seeds N] [--unit] [--jobs N] [--keep DIR] [--list | --check] [NAME ...]

The sources are copied to a temporary folder. The tree itself is never touched. Each mutation replaces exact pieces of
text. The changed files are compiled and linked with the rest, and up to N seeds (default 2000) run. A mutation is
caught if a checker reports a violation, an assertion stops the program, or the program does not end. A mutation that
the simulator misses goes to the unit tests of core and journal, and the output then names the failed test.

Exit 0: all mutations are caught, by the simulator or by a unit test. 1: a mutation is not caught. 2: a mutation no
longer applies or builds (the code has changed: change mutant_table.py), or the sources do not build.

--unit omits the simulator. --list prints the table. --check only checks that every mutation still applies, and has
its row in docs/simulator.md. If TWINLOFT_BUILD_LOCK names a file, builds hold a lock on that file.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import queue
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import mutation  # noqa: E402
from mutant_table import CORE, MUTANTS  # noqa: E402

COPIED = ["base", "cmake", "spool-repl/format", "spool-repl/ports", "spool-repl/core", "spool-repl/journal", "tests/sim",
          "tests/unit/spool-repl/core", "tests/unit/spool-repl/journal", "tests/unit/spool-repl/support"]
UNIT_TESTS = ["repl_core_test", "repl_journal_test"]
MEMORY_MAX = 8 << 30  # bytes of a mutant
TOP = """cmake_minimum_required(VERSION 3.25)
project(mutants LANGUAGES C CXX)
set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
include(cmake/Twinloft.cmake)
enable_testing()
find_package(GTest REQUIRED)
foreach(folder base spool-repl/format spool-repl/ports spool-repl/core spool-repl/journal tests/sim tests/unit/spool-repl/core
        tests/unit/spool-repl/journal)
  add_subdirectory(${folder})
endforeach()
"""


def limit_memory():
    """For a mutant that does not end, and allocates."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))


class Failed(Exception):
    """A command that must succeed has failed. The text has its output."""


class Tree:
    """The sources, built once. The objects of a mutant are linked before the libraries that they come from."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.build_folder = self.folder / "build"
        for part in COPIED:
            shutil.copytree(ROOT / part, self.folder / part, dirs_exist_ok=True)
        (self.folder / "CMakeLists.txt").write_text(TOP)
        self.env = dict(os.environ, CCACHE_BASEDIR=str(self.folder), CCACHE_NOHASHDIR="1")
        with mutation.build_lock():
            self.run(["cmake", "-S", str(self.folder), "-B", str(self.build_folder), "-G", "Ninja",
                      "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"])
            self.run(["ninja", "-C", str(self.build_folder), "repl_sim", *UNIT_TESTS])
        self.compile = {c["file"]: c["command"] for c in
                        json.loads((self.build_folder / "compile_commands.json").read_text())}
        self.link = {name: self.link_command(name) for name in ("repl_sim", *UNIT_TESTS)}
        self.program = self.build_folder / "bin/repl_sim"

    def link_command(self, name):
        listed = subprocess.run(["ninja", "-C", str(self.build_folder), "-t", "commands", name], env=self.env,
                                capture_output=True, text=True, check=True).stdout
        return listed.strip().splitlines()[-1]

    def run(self, command, cwd=None):
        done = subprocess.run(command, env=self.env, cwd=cwd, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)} fails:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")

    def mutant(self, m):
        """Compiles and links a mutant. Returns the path of the program."""
        folder = self.folder / "mutants" / m.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file, edits in m.edits().items():
            self.compiled(folder, self.folder / file, mutated(m, file, edits, (self.folder / file).read_text()))
        return self.linked(folder, "repl_sim")

    def linked(self, folder, name):
        words = [w for w in shlex.split(self.link[name]) if w not in (":", "&&") and "ccache" not in os.path.basename(w)]
        at = words.index("-o")
        words[at + 1] = str(folder / name)
        self.run(words[:at] + sorted(map(str, folder.glob("*.o"))) + words[at:], cwd=self.build_folder)
        return folder / name

    def compiled(self, folder, source, text):
        changed, output = folder / source.name, str(folder / (source.stem + ".o"))
        changed.write_text(text)
        words = [w for w in shlex.split(self.compile[str(source)]) if "ccache" not in os.path.basename(w)]
        words[words.index("-o") + 1] = output
        words[words.index("-c") + 1] = str(changed)
        self.run(words + ["-Wno-error", "-w", f"-I{source.parent}"], cwd=self.build_folder)

    def first_violation(self, program, seeds, jobs):
        """The line in which the simulator reports a violation, or None."""
        done = subprocess.run([str(program), "--seeds", str(seeds), "--jobs", str(jobs), "--patience", "60"],
                              capture_output=True, text=True, preexec_fn=limit_memory)
        if done.returncode == 0:
            return None
        if found := re.findall(r"^seed \d+: .*", done.stdout, re.M):
            return found[-1][:160]
        print(f"mutants: repl_sim ends with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}", file=sys.stderr)
        sys.exit(2)


    def failing_test(self, m):
        """The name of the first unit test that fails or does not end, or None."""
        names = UNIT_TESTS[:1] if any(file.startswith(CORE) for file in m.edits()) else UNIT_TESTS
        for name in names:
            program = self.linked(self.folder / "mutants" / m.name, name)
            try:
                done = subprocess.run([str(program), "--gtest_fail_fast"], capture_output=True, text=True, timeout=600,
                                      preexec_fn=limit_memory)
                output, code = done.stdout, done.returncode
            except subprocess.TimeoutExpired as late:
                output, code = (late.stdout or b"").decode(), 1
            if code == 0:
                continue
            failed = re.findall(r"^\[  FAILED  \] (\S+?),? .*\(\d+ ms\)$", output, re.M)
            begun = failed or re.findall(r"^\[ RUN      \] (\S+)", output, re.M)[-1:]
            return f"unit test {begun[0]}" if begun else f"{name} ends with {code}"
        return None


def mutated(m, file, edits, text):
    try:
        return mutation.applied(m.name, file, text, edits)
    except mutation.DoesNotApply as why:
        print(why, file=sys.stderr)
        sys.exit(2)


def build_all(tree, chosen, jobs, programs):
    """Puts each program into the queue in order, or the reason why it does not build. Releases the lock from time to
    time, since other builds wait for it."""
    def build(m):
        try:
            return tree.mutant(m)
        except Exception as why:
            return why

    for first in range(0, len(chosen), 12):
        with mutation.build_lock(), concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for program in pool.map(build, chosen[first:first + 12]):
                programs.put(program)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--unit", action="store_true")
    parser.add_argument("--keep", help="work in this folder and leave it")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    chosen = [m for m in MUTANTS if not args.names or m.name in args.names]
    if unknown := set(args.names) - {m.name for m in MUTANTS}:
        parser.error("no such mutant: " + ", ".join(sorted(unknown)))
    for m in chosen:
        for file, edits in m.edits().items():
            mutated(m, file, edits, (ROOT / file).read_text())
        if args.list:
            print(f"{m.name:30} {m.what}")
    if args.check:
        page = (ROOT / "docs/simulator.md").read_text()
        for difference in (found := mutation.differences(page, "Mutants", [m.name for m in MUTANTS])):
            print(f"docs/simulator.md: {difference}", file=sys.stderr)
        return 2 if found else 0
    if args.list:
        return 0
    missed, unbuilt = [], []
    with contextlib.ExitStack() as stack:
        folder = args.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="twinloft-mutants-"))
        tree = Tree(folder)
        if not args.unit and (found := tree.first_violation(tree.program, min(args.seeds, 200), args.jobs)):
            sys.exit(f"mutants: without any mutation: {found}")
        for name in UNIT_TESTS:
            tree.run([str(tree.build_folder / "bin" / name)])
        programs = queue.Queue()
        threading.Thread(target=build_all, args=(tree, chosen, args.jobs, programs), daemon=True).start()
        for m in chosen:
            program = programs.get()
            if isinstance(program, Exception):
                print(f"{m.name:30} does not build: {program}", flush=True)
                unbuilt.append(m.name)
                continue
            found = None if args.unit else tree.first_violation(program, args.seeds, args.jobs)
            found = found or tree.failing_test(m)
            verdict = "caught" if found else "harmless" if m.harmless else "NOT CAUGHT"
            print(f"{m.name:30} {verdict}  {found or m.what}", flush=True)
            if not found and not m.harmless:
                missed.append(m.name)
    print(f"{len(chosen)} mutants, {len(missed)} not caught{': ' if missed else ''}{', '.join(missed)}")
    if unbuilt:
        print(f"{len(unbuilt)} do not build: {', '.join(unbuilt)}")
    return 2 if unbuilt else 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as why:
        print(f"mutants: {why}", file=sys.stderr)
        sys.exit(2)
