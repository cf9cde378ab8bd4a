"""Replaces a piece of a source text, for tests that break the product on purpose. Blanks and line ends are
equivalent, so that a new layout of the source requires no change of the tables of mutations."""
import contextlib, fcntl, os, re, shutil


def pattern_of(piece):
    words = piece.split()
    inner = r"\s+".join(re.escape(w) for w in words)
    # A blank that the formatter may insert or omit at a line break.
    inner = re.sub(r"(\\\(|<|\\\[|\\\{)(?=[^\\s])", r"\1\\s*", inner)
    ends = r"\s*" if piece[-1:].isspace() else ""
    return re.compile((r"[ \t]*" if piece[:1].isspace() else "") + inner + ends)


def replace_once(text, old, new):
    """The changed text, or None and the number of occurrences of `old`."""
    found = list(pattern_of(old).finditer(text))
    if len(found) != 1:
        return None, len(found)
    return text[:found[0].start()] + new + text[found[0].end():], 1


class DoesNotApply(Exception):
    """The old text of a mutation is missing in its file, or occurs several times."""


def applied(name, file, text, edits):
    """The text of the file after all edits, which are pairs of texts. Raises DoesNotApply."""
    for old, new in edits:
        changed, times = replace_once(text, old, new)
        if changed is None:
            raise DoesNotApply(f"mutant {name}: its text occurs {times} times in {file}: {old}")
        text = changed
    return text


def copy_sources(root, to):
    shutil.copytree(root, to, ignore=shutil.ignore_patterns("build", ".git", "__pycache__"))


@contextlib.contextmanager
def build_lock():
    """Held while a mutant is built, if TWINLOFT_BUILD_LOCK names a file: builds of this machine take turns."""
    path = os.environ.get("TWINLOFT_BUILD_LOCK")
    if not path:
        yield
        return
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def differences(page, heading, names):
    """The differences between the mutations and the table below a heading of the documentation: missing rows, and
    rows without a mutation."""
    section = page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `?([a-z][\w-]*)`? \|", section, re.M)[1:]  # after the heading of the table
    return [f"{n} has no row in the table" for n in names if n not in rows] + [f"no mutation is {r}" for r in rows if r not in names]
