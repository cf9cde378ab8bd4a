"""What a mail server syncs for a message, before its 250 and after it: read from what strace shows of one client's messages.

A call counts once it has returned, and a reply where it begins. A message begins with the reply to MAIL. Its 250 is the first one
on the same socket after the 354. Syncs by io_uring, and writes to mapped memory, are not seen.
"""
import collections, dataclasses, os, re, statistics

SYNCS = ("fsync", "fdatasync", "syncfs", "sync", "sync_file_range")
NAMES = ("rename", "renameat", "renameat2", "link", "linkat")
REMOVALS = ("unlink", "unlinkat")
WRITES = ("write", "writev", "pwrite64", "pwritev", "pwritev2")
SENDS = ("write", "writev", "sendto", "sendmsg")
CALLS = (*SYNCS, *NAMES, *REMOVALS, *WRITES, "sendto", "sendmsg", "openat", "mkdir", "mkdirat", "chdir", "fchdir")

_LINE = re.compile(r"^(\d+) +(.*)$")
_WHOLE = re.compile(r"^(\w+)\((.*)\) += (-?\d+)(?:<(.*?)>)?")
_BEGUN = re.compile(r"^(\w+)\((.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$")
_WORD = re.compile(r'(?:"(?:\\.|[^"\\])*"(?:\.\.\.)?|<[^>]*>|\[[^\]]*\]|\{[^}]*\}|[^,"<\[{])+')
_PLACE = re.compile(r"^(?:AT_FDCWD|\d+)<(/.*?)>(?:\(deleted\))?$")
_REPLY = re.compile(r'"(?:[^"]*\\n)?(354|250)[ -]')
_UNIQUE = re.compile(r"[0-9a-z]{20,}|.*(\d.*){12,}")


@dataclasses.dataclass(frozen=True)
class Event:
    pid: str
    call: str
    words: list  # the arguments as strace shows them
    result: str = ""  # what a returned descriptor names


def events(lines):
    """The calls without an error, in the order of their returns. Each write gives a "send" before, where it begins."""
    begun = {}
    for pid, text in (found.groups() for line in lines if (found := _LINE.match(line))):
        if found := _BEGUN.match(text):
            begun[pid] = text.removesuffix(" <unfinished ...>")
            if found[1] in SENDS:
                yield Event(pid, "send", _WORD.findall(found[2]))
            continue
        resumed = _RESUMED.match(text)
        if resumed:
            text = begun.pop(pid, "") + resumed[2]
        if not (found := _WHOLE.match(text)) or int(found[3]) < 0:
            continue
        words = [word.strip() for word in _WORD.findall(found[2])]
        if found[1] in SENDS and not resumed:
            yield Event(pid, "send", words)
        yield Event(pid, found[1], words, found[4] or "")


def path_of(word):
    """What a descriptor names, shown as 7</path>. None: it is no file."""
    found = _PLACE.match(word)
    return found and found[1]


def is_directory(path):
    return os.path.isdir(path)  # directories outlive the trace; a file may have another name by now


class Unsynced:
    """What is written or named, and not yet synced by a call of its own. Paths."""

    def __init__(self):
        self.data, self.ranged = set(), set()  # ranged: the data was written back, but the device is not flushed
        self.names = {}  # path -> when the name was made
        self.first_name = {}  # of a file with several: other name -> its first one
        self.now = self.last_sync = 0

    def _file(self, path):
        return self.first_name.get(path, path)

    def wrote(self, path):
        self.data.add(self._file(path))

    def named(self, path):
        self.now += 1
        self.names[path] = self.now

    def linked(self, old, new):
        self.first_name[new] = self._file(old)
        self.named(new)

    def renamed(self, old, new):
        self.removed(new)
        for files in (self.data, self.ranged):
            if old in files:
                files.add(new)
        self.first_name |= {name: new for name, first in self.first_name.items() if first == old}
        if old in self.first_name:
            self.first_name[new] = self.first_name[old]
        self.removed(old)
        self.named(new)

    def removed(self, path):
        self.names.pop(path, None)
        self.first_name.pop(path, None)
        if path not in self.first_name.values():
            self.data.discard(path)
            self.ranged.discard(path)

    def wrote_back(self, path):
        """sync_file_range."""
        if self._file(path) in self.data:
            self.data.discard(self._file(path))
            self.ranged.add(self._file(path))

    def synced(self, path):
        self.now += 1
        self.last_sync = self.now
        self.ranged.clear()  # every sync flushes the device
        self.data.discard(self._file(path))
        self.names = {name: when for name, when in self.names.items() if os.path.dirname(name) != path}

    def synced_all(self):
        self.__init__()

    def texts(self, general):
        """general: shortens a path."""
        of_names = {f"names in {general(os.path.dirname(name))}/" + (", older than a later sync" if when < self.last_sync else "")
                    for name, when in self.names.items()}
        return {*(f"data of {general(path)}" for path in self.data | self.ranged), *of_names}


@dataclasses.dataclass
class Message:
    """before, after: the syncs before and after the 250: a Counter of (call, "file" | "directory" | "file system").
    unsynced, never_synced: what had no sync of its own at the 250, and at the end of all work for the message. "older than a later
    sync": ext4 commits older changes of names with each sync."""
    before: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    after: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    unsynced: set = dataclasses.field(default_factory=set)
    never_synced: set = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class Trace:
    messages: list
    flushes: float | None  # of the block device, for a message
    calls: dict            # the syncs: text -> mean for a message

    def mean(self, kind, when="before"):
        """The syncs of that kind, for a message. sync_file_range is not counted: it flushes no device."""
        return statistics.mean(sum(n for (call, k), n in getattr(m, when).items() if k == kind and call != "sync_file_range") for m in self.messages)

    @property
    def all_before(self):
        return not any(m.after for m in self.messages)

    def summary(self):
        """All figures as JSON has them."""
        means = {f"{kind}_syncs_{when}": self.mean(kind, when) for kind in ("file", "directory", "file system") for when in ("before", "after")}
        return {"messages": len(self.messages), "flushes": self.flushes, **means, "calls": self.calls,
                "unsynced": self.texts(), "never_synced": self.texts("never_synced")}

    def texts(self, which="unsynced"):
        """The texts of the messages, with the share of the messages that have each."""
        count = collections.Counter(text for m in self.messages for text in getattr(m, which))
        return {text: n / len(self.messages) for text, n in count.most_common()}


class Reader:
    """Makes messages of events. below: the directory of what must be durable; other files are left out."""

    def __init__(self, below, directories):
        """directories: the working directory of each process at the start."""
        self.below, self.directories = str(below), directories
        self.messages, self.calls, self.unsynced = [], collections.Counter(), Unsynced()
        self.socket, self.stage = None, "none"  # of the current message: "none", "envelope", "data", "acknowledged"
        self.synchronous = set()  # opened with O_SYNC or O_DSYNC

    def read(self, all_of_them):
        for event in all_of_them:
            if event.call in ("chdir", "fchdir", "openat"):
                self._directory(event)
            if event.call == "send":
                self._reply(event)
            elif self.messages:
                self._change(event)
        self._end()
        return self.messages

    def general(self, path):
        """The path below the directory, with N for each number or unique part."""
        inside = os.path.relpath(path, self.below).split("/")
        return "/".join("NAME" if _UNIQUE.fullmatch(p) else "N" if re.fullmatch("[0-9A-F]{6,}|[0-9a-z]", p) else re.sub(r"\d+", "N", p) for p in inside)

    def _directory(self, event):
        if event.call == "openat":
            found = path_of(event.words[0]) if event.words[0].startswith("AT_FDCWD<") else None
        else:
            found = path_of(event.words[0]) if event.call == "fchdir" else self._path(event, None, event.words[0])
        if found:
            self.directories[event.pid] = found

    def _path(self, event, directory, name):
        """The path of a name as an argument. directory: the argument before it, if it has one."""
        start = directory and path_of(directory) or self.directories.get(event.pid, "/")
        inside = name.split('"')[1] if '"' in name else ""
        return os.path.normpath(os.path.join(start, inside)) if inside else start  # none: AT_EMPTY_PATH

    def _is_kept(self, path):
        return path is not None and (path + "/").startswith(self.below + "/")

    def _end(self):
        if self.messages:
            self.messages[-1].never_synced = self.unsynced.texts(self.general)
        self.unsynced = Unsynced()

    def _reply(self, event):
        found = _REPLY.search(",".join(event.words[1:])) if "<socket:" in event.words[0] else None
        if not found or self.stage in ("envelope", "data") and self.socket != event.words[0]:
            return
        if self.stage in ("none", "acknowledged") and found[1] == "250":
            self._end()
            self.messages.append(Message())
            self.socket, self.stage = event.words[0], "envelope"
        elif found[1] == "354":
            self.stage = "data"
        elif self.stage == "data":
            self.stage = "acknowledged"
            self.messages[-1].unsynced = self.unsynced.texts(self.general)

    def _change(self, event):
        if event.call in SYNCS:
            self._sync(event)
        elif event.call in NAMES:
            self._name(event)
        elif event.call in WRITES:
            self._write(event)
        elif event.call == "openat":
            self._open(event)
        elif event.call in ("mkdir", "mkdirat", "unlink", "unlinkat"):
            directory, name = event.words[:2] if event.call.endswith("at") else (None, event.words[0])
            path = self._path(event, directory, name)
            if self._is_kept(path):
                (self.unsynced.named if event.call.startswith("mkdir") else self.unsynced.removed)(path)

    def _count(self, call, kind, path):
        is_after = self.stage == "acknowledged"
        (self.messages[-1].after if is_after else self.messages[-1].before)[call, kind] += 1
        self.calls[" ".join(filter(None, [call, path and self.general(path), is_after and "after the 250"]))] += 1

    def _sync(self, event):
        path = path_of(event.words[0]) if event.words else None
        if event.call in ("sync", "syncfs"):
            self._count(event.call, "file system", None)
            self.unsynced.synced_all()
        elif self._is_kept(path):
            self._count(event.call, "directory" if is_directory(path) else "file", re.sub(r"/#\d+$", "/(no name)", path))
            (self.unsynced.wrote_back if event.call == "sync_file_range" else self.unsynced.synced)(path)

    def _name(self, event):
        words = event.words if "at" in event.call.removeprefix("rename") or event.call == "linkat" else [None, event.words[0], None, event.words[1]]
        old, new = self._path(event, *words[:2]), self._path(event, *words[2:4])
        if self._is_kept(new):
            (self.unsynced.linked if event.call.startswith("link") else self.unsynced.renamed)(old, new)

    def _open(self, event):
        path, flags = event.result, event.words[2]
        if not self._is_kept(path):
            return
        if "O_DSYNC" in flags or "O_SYNC" in flags:
            self.synchronous.add(path)
        # O_EXCL: the file is new. Without it, it may have been there, such as a lock.
        if "O_CREAT" in flags and "O_EXCL" in flags:
            self.unsynced.named(path)

    def _write(self, event):
        path = path_of(event.words[0])
        if not self._is_kept(path):
            return
        if path in self.synchronous or "RWF_DSYNC" in event.words[-1] or "RWF_SYNC" in event.words[-1]:
            self._count("synchronous write", "file", path)
            self.unsynced.ranged.clear()
        else:
            self.unsynced.wrote(path)
