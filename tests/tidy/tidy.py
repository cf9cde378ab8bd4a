#!/usr/bin/env python3
"""Checks the rules of docs/ARCHITECTURE.md that a compiler does not check.

    tidy.py [--root DIR] [--write-folders]

Prints one line for each violation, `file:line: [rule] what to do`, and exits 1 if there is one. The rules are the
tables below and the dependencies in each folder's CMakeLists.txt. A change of a rule is a change of the design.
No file can switch a rule off. --write-folders writes the dependencies into docs/ARCHITECTURE.md.
"""
import argparse
import os
import re
import sys
from dataclasses import dataclass

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from folders import Folders

# --- Tables -----------------------------------------------------------------------------------------------------------

# Folders whose public headers have another path.
HEADER_FOLDERS = {"mailbench": "bench/mailbench", "intake_log": "intake-log"}

# Programs outside of the project, which include installed headers.
OUTSIDE = ["tests/e2e/argv_install"]


@dataclass(frozen=True)
class Ban:
    rule: str
    names: tuple
    called: bool  # only if '(' follows
    owners: tuple  # folders that may use it
    advice: str


BANS = [
    Ban("shell", ("system", "popen", "wordexp"), True, (), "starts a shell; run the program with an argument vector"),
    Ban("wall-clock", ("time", "gettimeofday", "clock_gettime", "timespec_get", "ftime"), True, ("base",),
        "reads a clock; take a twinloft::Clock"),
    Ban("wall-clock", ("system_clock",), False, ("base",), "reads the time of day; take a twinloft::Clock"),
    Ban("random", ("rand", "srand", "rand_r", "drand48", "getrandom", "getentropy", "arc4random"), True, ("base",),
        "cannot be repeated from a seed; take a twinloft::Random"),
    Ban("random", ("random_device",), False, ("base",), "cannot be repeated from a seed; take a twinloft::Random"),
    Ban("raw-sync", ("fsync", "fdatasync", "syncfs", "sync_file_range", "io_uring_prep_fsync"), True,
        ("base", "spool-repl/io", "tests"),
        "may succeed on a file system that has failed; use base/durable.h"),
    Ban("passed-descriptors", ("CMSG_DATA", "SCM_RIGHTS"), False, ("base",),
        "may leave unexpected descriptors open; use base/passed_fds.h"),
    Ban("program", ("posix_spawn", "posix_spawnp"), True, ("base", "tests"),
        "passes on descriptors and signals, and has no time limit; use base/program.h"),
]

# Functions that libstdc++ has added after g++ 12, or will add. A call without a namespace may find them by its arguments. It can
# then mean one thing with the library of Debian 12, and another with that of Debian 13.
NEWER_NAMES = (
    "print", "println", "vprint_unicode", "vprint_nonunicode", "vprint_unicode_buffered", "vprint_nonunicode_buffered",
    "format", "format_to", "format_to_n", "formatted_size", "vformat", "vformat_to", "make_format_args", "visit_format_arg",
    "runtime_format", "dynamic_format", "forward_like", "start_lifetime_as", "start_lifetime_as_array", "is_within_lifetime",
    "add_sat", "sub_sat", "mul_sat", "div_sat", "saturate_cast", "saturating_add", "saturating_sub", "saturating_mul",
    "is_sufficiently_aligned", "breakpoint", "breakpoint_if_debugging", "is_debugger_present", "observable_checkpoint",
    "submdspan", "submdspan_extents", "make_hazard_pointer", "rcu_synchronize", "rcu_barrier", "rcu_retire",
    "from_stream", "clock_cast", "current_zone", "locate_zone", "get_leap_second_info")

SHELLS = re.compile(r"^(/usr)?/bin/(ba|da|k|z)?sh(\s|$)")
# Only absolute paths: not the end of a longer path, and not a literal that is appended to a path.
MACHINE_PATH = re.compile(r"(?<![\w.})$*-])/(?:work/[\w.]|root/\.\w|home/\w+/\.\w)")
DASHES = re.compile(r"\s*// ?-{5,}\s*")
APPENDED = re.compile(r"\+\s*[\"']$")
LINES_MAX = 700  # a C++ file must have fewer
CPP = (".cc", ".h", ".c", ".cpp", ".hpp")
TEXT = CPP + (".py", ".sh", ".cmake", ".txt", ".md", ".json", ".toml", ".conf", ".in", ".yml", ".yaml", ".html", ".sql",
              ".service", "")
SUPPORT = "tests/unit/support"  # shared by the unit tests of several folders
ARCHITECTURE = "docs/ARCHITECTURE.md"
FOLDER_ROW = re.compile(r"^\| `([\w/-]+)/` \|(.*)\|([^|]*)\|$")
SKIPPED = {".git", "build", "__pycache__", ".cache"}

# --- Reading C++ ------------------------------------------------------------------------------------------------------

TOKEN = re.compile(r"""
    (?P<line>//(?:\\\r?\n|[^\n])*)
  | (?P<block>/\*.*?(?:\*/|\Z))
  | (?P<raw>\b(?:u8|[uUL])?R"(?P<delim>[^\s()\\]{0,16})\(.*?(?:\)(?P=delim)"|\Z))
  | (?P<include>(?m:^[ \t]*\#[ \t]*include[ \t]*[<"][^>"\n]*[>"]))
  | (?P<number>\b\d(?:'?[\w.])*)
  | (?P<string>"(?:\\.|[^"\\\n])*"?)
  | (?P<char>'(?:\\.|[^'\\\n])*'?)
""", re.VERBOSE | re.DOTALL)


def blank(text):
    return re.sub(r"[^\n]", " ", text)


@dataclass
class Source:
    code: str  # comments and literals replaced by blanks, lines kept
    includes: list  # (line, bracket, path)
    literals: list  # (line, text)


def read_cpp(text):
    includes, literals, out, last = [], [], [], 0
    for match in TOKEN.finditer(text):
        kind, token = match.lastgroup, match.group()
        if kind == "delim":
            kind = "raw"
        out.append(text[last:match.start()])
        last = match.end()
        line = text.count("\n", 0, match.start()) + 1
        if kind == "number":
            out.append(token)
            continue
        if kind == "include":
            bracket, path = re.search(r'([<"])([^>"\n]*)', token).groups()
            includes.append((line, bracket, path))
        elif kind == "string":
            literals.append((line, token[1:-1]))
        elif kind == "raw":
            literals.append((line, token[token.index("(") + 1:].rsplit(")", 1)[0]))
        out.append(blank(token))
    out.append(text[last:])
    return Source("".join(out), includes, literals)


# --- Rules ------------------------------------------------------------------------------------------------------------

KEYWORDS = {"return", "else", "do", "case", "throw", "co_return", "co_await", "co_yield", "and", "or", "not"}


def is_call(code, start):
    """Whether the name at `start`, followed by '(', calls the C library's function: not a member, and not a declaration."""
    before = code[:start].rstrip()
    if before.endswith((".", "->")):
        return False
    if before.endswith("::"):
        scope = re.search(r"(\w*)\s*::$", before).group(1)
        if scope not in ("", "std") and scope not in KEYWORDS:
            return False
        before = re.sub(r"(\bstd)?\s*::$", "", before).rstrip()
    word = re.search(r"\w+$", before)
    if word:
        return word.group() in KEYWORDS  # `Status fsync(int fd)` is a declaration
    return not re.search(r"[\w>]>$|\w[*&]$", before)  # `Result<int> time()` and `char* time()` are declarations too


class Tidy:
    def __init__(self, root):
        self.root = os.path.abspath(root)
        self.found = []
        self.files = sorted(self.walk())
        self.known = set(self.files)
        self.folders = Folders(self.root)

    def walk(self):
        for folder, folders, files in os.walk(self.root):
            folders[:] = [f for f in folders if f not in SKIPPED]
            for name in files:
                if name in SKIPPED:  # in a worktree, .git is a file
                    continue
                path = os.path.join(folder, name)
                if os.path.splitext(name)[1] in TEXT and not os.path.islink(path):
                    yield os.path.relpath(path, self.root)

    def report(self, path, line, rule, message):
        self.found.append((path, line, rule, message))

    def run(self):
        for path in self.files:
            with open(os.path.join(self.root, path), "rb") as f:
                data = f.read()
            if b"\0" in data:
                continue
            text = data.decode("utf-8", "replace")
            self.check_machine_paths(path, text)
            if path.endswith(CPP):
                self.check_cpp(path, text)
        self.check_folders()
        return self.found

    def check_folders(self):
        cycle = self.folders.cycle()
        if cycle:
            self.report(f"{cycle}/CMakeLists.txt", 1, "folder", f"{cycle} depends on itself by what its DEPS name")
        if ARCHITECTURE not in self.known:
            return
        rows = set()
        for number, line in enumerate(self.read(ARCHITECTURE).split("\n"), 1):
            row = FOLDER_ROW.match(line)
            if row and row.group(1) in self.folders.direct:
                rows.add(row.group(1))
                if line != self.folder_row(row):
                    self.report(ARCHITECTURE, number, "folder", f"does not say what {row.group(1)} may use; run tests/tidy/tidy.py --write-folders")
        for folder in self.folders.libraries() - rows:
            self.report(ARCHITECTURE, 1, "folder", f"has no row for {folder}")

    def folder_row(self, row):
        return f"| `{row.group(1)}/` |{row.group(2)}| {self.folders.column(row.group(1))} |".replace("|  |", "| |")

    def write_folders(self):
        lines = self.read(ARCHITECTURE).split("\n")
        for i, line in enumerate(lines):
            row = FOLDER_ROW.match(line)
            if row and row.group(1) in self.folders.direct:
                lines[i] = self.folder_row(row)
        with open(os.path.join(self.root, ARCHITECTURE), "w", encoding="utf-8") as f:
            f.write("\n".join(lines))

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as f:
            return f.read()

    def check_machine_paths(self, path, text):
        for match in MACHINE_PATH.finditer(text):
            if APPENDED.search(text[max(0, match.start() - 80):match.start()]):
                continue
            self.report(path, text.count("\n", 0, match.start()) + 1, "machine-path",
                        "names a folder of the machine it was written on")

    def check_cpp(self, path, text):
        lines = text.split("\n")
        for number, line in enumerate(lines, 1):
            if "\t" in line:
                self.report(path, number, "tab", "holds a tab; indent with blanks, write \\t in literals")
            if DASHES.fullmatch(line):
                self.report(path, number, "dashes", "is the rest of a section's title that was wrapped; a title is \"// ---- words\"")
        count = len(lines) - (1 if text.endswith("\n") else 0)
        if count >= LINES_MAX:
            self.report(path, count, "length", f"has {count} lines, {LINES_MAX} or more; split it by subject")
        source = read_cpp(text)
        folder = self.folders.owner(path)
        if folder is None:
            self.report(path, 1, "folder", "is in no folder that has a library; see tests/tidy/folders.py")
            return
        for line, bracket, include in source.includes:
            self.check_include(path, folder, line, bracket, include)
        self.check_bans(path, source)

    def check_include(self, path, folder, line, bracket, include):
        if include.startswith("twinloft/"):
            if under(path, OUTSIDE):
                return
            if bracket == "<":
                self.report(path, line, "include-edge", f"write \"{include}\" in quotes: it is a header of this project")
            target = self.header_folder(include)
            if target is None:
                self.report(path, line, "include-edge", f"{include} is a header of no known folder")
            elif target != folder and target not in self.folders.edges[folder]:
                allowed = ", ".join(self.folders.edges[folder]) or "nothing"
                self.report(path, line, "include-edge",
                            f"{folder} must not include {target}; it may include {allowed}")
        elif bracket == '"':
            self.check_private(path, folder, line, include)

    def check_private(self, path, folder, line, include):
        """A private header belongs to the same folder. A unit test, a fuzzer or a benchmark of a part may use those of the folder that it mirrors.
        Every unit test may use those of tests/unit/support."""
        homes = [(os.path.dirname(path), folder), (folder + "/src", folder)]
        if path.startswith(("tests/unit/", "tests/fuzz/", "bench/parts/")):
            mirrored = path.split("/", 2)[2]
            mirrored = self.folders.owner(HEADER_FOLDERS.get(mirrored.split("/")[0], mirrored))
            if mirrored:
                homes += [(mirrored, mirrored), (mirrored + "/src", mirrored)]
        for home, of in homes:
            target = os.path.normpath(os.path.join(home, include))
            shared = path.startswith("tests/unit/") and os.path.dirname(target) == SUPPORT
            if target in self.known and (shared or self.folders.owner(target) == of):
                return
        self.report(path, line, "private-header",
                    f"\"{include}\" is no header of {folder}; use the other folder's public headers")

    def header_folder(self, include):
        parts = include.split("/")[1:-1]
        while parts:
            name = "/".join(parts)
            name = HEADER_FOLDERS.get(name, name)
            if name in self.folders.edges:
                return name
            parts.pop()
        return None

    def check_bans(self, path, source):
        for ban in BANS:
            if under(path, ban.owners):
                continue
            tail = r"\s*\(" if ban.called else r"\b"
            for match in re.finditer(r"\b(" + "|".join(ban.names) + r")" + tail, source.code):
                if ban.called and not is_call(source.code, match.start()):
                    continue
                line = source.code.count("\n", 0, match.start()) + 1
                self.report(path, line, ban.rule, f"{match.group(1)} {ban.advice}")
        for match in re.finditer(r"\b(" + "|".join(NEWER_NAMES) + r")\s*\(", source.code):
            if not is_call(source.code, match.start()):
                continue
            line = source.code.count("\n", 0, match.start()) + 1
            self.report(path, line, "newer-name", f"{match.group(1)} without a namespace may become std::{match.group(1)} with a newer "
                        "library; name the namespace (fmt::), or give the function another name")
        for line, literal in source.literals:
            if SHELLS.match(literal):
                self.report(path, line, "shell", f"{literal.split()[0]} is a shell; run the program itself")


def under(path, folders):
    return any(path == f or path.startswith(f + "/") for f in folders)


def main(argv):
    parser = argparse.ArgumentParser(description="Checks include edges, banned calls and file hygiene.")
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    parser.add_argument("--write-folders", action="store_true", help=f"write the dependencies into {ARCHITECTURE}")
    args = parser.parse_args(argv)
    tidy = Tidy(args.root)
    if args.write_folders:
        tidy.write_folders()
        return 0
    for path, line, rule, message in tidy.run():
        print(f"{path}:{line}: [{rule}] {message}")
    if not any(f.endswith(CPP) for f in tidy.files):
        print(f"tidy: no C++ file under {tidy.root}: is --root right?", file=sys.stderr)
        return 2
    print(f"tidy: {len(tidy.files)} files, {len(tidy.found)} violations", file=sys.stderr)
    return 1 if tidy.found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
