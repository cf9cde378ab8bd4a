"""Which folder may include which folder: read from the CMakeLists.txt files, which the build enforces.

A folder may include the DEPS and PRIVATE_DEPS of its library, and the DEPS of these in turn, because CMake passes
their include directories on. tidy.py checks the same, with messages that say what to do. docs/ARCHITECTURE.md has
the table.
"""
import os
import re

# Folders without a library of their own. A program, a test or a benchmark may include less than it links: a test of
# a part also links the neighbouring parts.
LMTPD, REPL = "lmtpd/*", "spool-repl/*"
WITHOUT_LIBRARY = {
    "lmtpd/app": ["base", "argv", "intake-log", "mail", "spool-state", LMTPD],
    "spool-milter/app": ["base", "spool-milter/core", LMTPD],
    "spool-repl/ctl": ["base", "intake-log", "mail", "tls", REPL],
    "bench/filter": [],
    "bench/message_cost": [],
    "bench/parts": ["base", "argv", LMTPD, REPL],
    "tests/unit/support": ["base", "intake-log"],
    "tests/unit/base": ["base"],
    "tests/unit/argv": ["base", "argv", "lmtpd/config"],
    "tests/unit/mail": ["mail"],
    "tests/unit/spool-state": ["spool-state"],
    "tests/unit/intake-log": ["base", "intake-log"],
    "tests/unit/spool-milter": ["base", "spool-milter/core", LMTPD],
    "tests/unit/lmtpd": ["base", "argv", "intake-log", "mail", "spool-state", LMTPD],
    "tests/unit/spool-repl": ["base", "intake-log", "mail", "spool-state", "tls", REPL],
    "tests/unit/tls": ["base", "tls"],
    "tests/unit/mailbench": ["base", "bench/mailbench"],
    "tests/lib": [],
    "tests/sim": ["base", REPL],
    "tests/fuzz": ["base", "argv", "intake-log", "mail", "spool-milter/core", "bench/mailbench", LMTPD, REPL],
    "tests/e2e": ["base", "argv", "bench/mailbench", LMTPD, REPL],
}
# The project's headers that are not installed, for a library that is installed alone.
LINKED = re.compile(r"\$<BUILD_INTERFACE:(\w+)>|\b(tl_\w+)\b")
IGNORED = {"tl_options"}


def sections(arguments, names):
    """`SOURCES a b DEPS c` by section."""
    parts = re.split(r"\b(" + "|".join(names) + r")\b", arguments)
    return {parts[i]: parts[i + 1] for i in range(1, len(parts), 2)}


def targets_in(text):
    return [a or b for a, b in LINKED.findall(text) if (a or b) not in IGNORED]


class Folders:
    """The libraries of a tree. `direct[folder]`: the folders that its CMakeLists.txt names. `edges[folder]`: all
    folders that it may include."""

    def __init__(self, root):
        self.root = root
        self.targets = {}  # target -> (folder, public targets, private targets)
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if f not in (".git", "build", "tests", ".cache")]
            if "CMakeLists.txt" in files:
                self.read(os.path.relpath(folder, root), os.path.join(folder, "CMakeLists.txt"))
        self.direct = {}
        self.edges = {}
        for folder, public, private in self.targets.values():
            self.direct[folder] = sorted({self.folder(t) for t in public + private} - {None, folder})
        for target, (folder, public, private) in self.targets.items():
            reached = self.reached(public + private, set())
            self.edges[folder] = sorted({self.targets[t][0] for t in reached} - {folder})
        for folder, allowed in WITHOUT_LIBRARY.items():
            self.direct[folder] = allowed
            self.edges[folder] = sorted({f for a in allowed for f in self.expand(a) if f != folder})

    def read(self, folder, path):
        with open(path, encoding="utf-8") as f:
            text = re.sub(r"#[^\n]*", "", f.read())
        for match in re.finditer(r"\btl_library\(\s*(\w+)\s+([^()]*(?:\([^()]*\)[^()]*)*)\)", text):
            parts = sections(match.group(2), ("SOURCES", "PRIVATE_DEPS", "DEPS"))
            self.targets[match.group(1)] = (folder, targets_in(parts.get("DEPS", "")), targets_in(parts.get("PRIVATE_DEPS", "")))
        for match in re.finditer(r"\badd_library\(\s*(tl_\w+)\s", text):
            links = re.search(r"target_link_libraries\(\s*" + match.group(1) + r"\s([^()]*)\)", text)
            parts = sections(links.group(1) if links else "", ("PUBLIC", "PRIVATE", "INTERFACE"))
            public = targets_in(parts.get("PUBLIC", "") + parts.get("INTERFACE", ""))
            self.targets[match.group(1)] = (folder, public, targets_in(parts.get("PRIVATE", "")))

    def folder(self, target):
        return self.targets[target][0] if target in self.targets else None

    def reached(self, names, seen):
        for name in names:
            if name in self.targets and name not in seen:
                seen.add(name)
                self.reached(self.targets[name][1], seen)
        return seen

    def libraries(self):
        return {t[0] for t in self.targets.values()}

    def expand(self, allowed):
        if not allowed.endswith("/*"):
            return [allowed]
        return [f for f in self.libraries() | set(WITHOUT_LIBRARY) if f.startswith(allowed[:-1])]

    def owner(self, path):
        owners = [f for f in self.edges if path.startswith(f + "/")]
        return max(owners, key=len) if owners else None

    def cycle(self):
        """A folder that depends on itself, or None. CMake links such libraries without an error."""
        for start in self.direct:
            seen, todo = set(), list(self.direct[start])
            while todo:
                folder = todo.pop()
                if folder == start:
                    return start
                if folder not in seen:
                    seen.add(folder)
                    todo += self.direct.get(folder, [])
        return None

    def column(self, folder):
        """The folder's entry in the table of ARCHITECTURE.md: the folders that it names, without their dependencies.
        """
        names = [f for f in self.direct[folder] if f != "base"] or self.direct[folder]
        brought = {g for f in names for g in self.edges.get(f, [])}
        return ", ".join(f"`{f}`" for f in names if f not in brought)
