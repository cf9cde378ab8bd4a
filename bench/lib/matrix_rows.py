"""The rows of bench/matrix, read from its TOML file. docs/matrix.md has the keys.

Pure: texts, rules and arithmetic. A ValueError says what is wrong, where, and what to do.
"""
import dataclasses, fnmatch, re, tomllib

import delivery_rows

SERVERS = {"lmtpd": "lmtpd", "dovecot": "Dovecot's LMTP, mail_fsync = always", "dovecot-optimized": "Dovecot's LMTP, mail_fsync = optimized",
           "postfix": "Postfix with virtual(8)", "cyrus": "Cyrus IMAP's lmtpd", "agent": "a bare loop of an agent"}
FILE_SYSTEMS, AGENTS, GENERATORS = ("ext4", "xfs"), ("maildir", "dovecot-lda"), ("mailbench", "smtp-source", "postal")
DURABILITY = ("fsync", "fsync-file", "group-sync", "intake-log")
PLOTS = ("bars", "latency", "seconds", "clients", "rate")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
LABEL = re.compile(r"[^-=\x00-\x1f][^=\x00-\x1f]{0,39}")
SIZE = re.compile(r"\d+([KMGT]iB|[kMGT]B|[KMGT])?|(uniform|mean):[0-9A-Za-z.,:-]+")

NUMBER = (int, float)
TOP = {"rounds": int, "seconds": NUMBER, "warmup": NUMBER, "users": int, "clients": int, "size": str, "quick": dict, "group": list, "row": list}
QUICK = {"rounds": int, "seconds": NUMBER, "warmup": NUMBER}
GROUP = {"name": str, "title": str, "text": str, "base": str, "plots": list, "trace": bool}
ROW = {"name": str, "label": str, "group": str, "server": str, "place": str, "file_system": str, "mkfs": list, "mount": str, "delay": NUMBER, "agent": str,
       "durability": str, "settings": dict, "size": str, "clients": (int, list), "rates": list, "generator": str, "quick": (bool, list)}
CHOICES = {"server": tuple(SERVERS), "place": tuple(delivery_rows.PLACES), "file_system": FILE_SYSTEMS, "agent": AGENTS, "generator": GENERATORS,
           "durability": DURABILITY}
TYPES = {int: "a whole number", str: "a text", list: "a list", dict: "a table", bool: "true or false", NUMBER: "a number",
         (int, list): "a whole number, or a list of them", (bool, list): "true, false, or a list of numbers"}
LIMITS = {"rounds": (1, 1000), "seconds": (0.2, 3600), "warmup": (0, 3600), "users": (1, 100_000), "clients": (1, 10_000), "delay": (0, 10_000)}


@dataclasses.dataclass(frozen=True)
class Row:
    name: str  # of files and in the report
    family: str  # the name in the file, without what a list has added
    group: str
    server: str
    setup: delivery_rows.Setup
    agent: str
    settings: tuple  # of lmtpd's [maildir], pairs of key and value
    size: str
    clients: int
    share: float | None  # of the closed-loop rate; None: a closed loop
    generator: str
    is_quick: bool
    label: str  # in charts; empty: the name

    @property
    def text(self):
        words = [SERVERS[self.server] + (f" with {self.agent}" if self.agent != "maildir" else ""), *(f"{key} = {value}" for key, value in self.settings)]
        words += [self.setup.text, f"messages of {self.size}, {self.clients} clients"]
        words += [f"{self.share:.0%} of the closed-loop rate"] if self.share else []
        return "; ".join(words + ([f"by {self.generator}"] if self.generator != "mailbench" else []))


@dataclasses.dataclass(frozen=True)
class Group:
    name: str
    title: str
    text: str = ""
    base: str = ""  # the row of the ratios
    plots: tuple = ()
    trace: bool = False  # its servers are traced


@dataclasses.dataclass(frozen=True)
class Matrix:
    rounds: int
    seconds: float
    warmup: float
    users: int
    groups: tuple
    rows: tuple

    def of(self, group):
        return [row for row in self.rows if row.group == group.name]


def parse(text, where, quick=False):
    """The Matrix of a TOML file named `where`. quick: its shorter form."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise ValueError(f"{where}: {e}. Correct the TOML") from None
    _check(found, TOP, where)
    settings = {"rounds": 3, "seconds": 5, "warmup": 2, "users": 200, "clients": 12, "size": "4KiB"} | found
    if quick:
        _check(found.get("quick", {}), QUICK, f"{where}: [quick]")
        settings |= {"rounds": 1} | found.get("quick", {})
    rows = [row for number, words in enumerate(found.get("row", []), 1) for row in _expand(words, settings, f"{where}: row {number}")]
    _no_duplicates([row.name for row in rows], where, "row")
    shown = {(row.group, row.family, row.label or row.family) for row in rows} | {(row.group, row.name, row.name) for row in rows if row.name != row.family}
    _no_duplicates(sorted(f"{label} in group {group}" for group, _, label in shown), where, "label")
    groups = _groups(found.get("group", []), rows, where)
    rows = tuple(row for row in rows if row.is_quick or not quick)
    groups = tuple(group for group in groups if any(row.group == group.name for row in rows))
    if not rows:
        raise ValueError(f"{where}: no row{' with quick = true' if quick else ''}. Add a [[row]]")
    return Matrix(*(settings[key] for key in ("rounds", "seconds", "warmup", "users")), groups, rows)


def _check(words, keys, where):
    """Every key is known, and its value has the type and the range."""
    if not isinstance(words, dict):
        raise ValueError(f"{where}: not a table. Write it as [[...]] with KEY = VALUE")
    for key, value in words.items():
        if key not in keys:
            raise ValueError(f"{where}: unknown key {key}. Known keys: {', '.join(keys)}")
        kind = keys[key]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or isinstance(value, bool) and bool not in kinds:
            raise ValueError(f"{where}: {key} = {value!r}. Write {TYPES[kind]}")
        _check_value(key, value, where)


def _check_value(key, value, where):
    if key in CHOICES and value not in CHOICES[key]:
        raise ValueError(f"{where}: unknown {key} {value!r}. Choose from {', '.join(CHOICES[key])}")
    if key == "name" and not NAME.fullmatch(value):
        raise ValueError(f"{where}: the name {value!r} is not a file name. Use letters, digits, '.', '_', '+' and '-'")
    if key == "size" and not SIZE.fullmatch(value):
        raise ValueError(f"{where}: size = {value!r}. Write a size as for mailbench --size, such as 4KiB or mean:70KiB")
    for one in value if isinstance(value, list) else [value]:
        if key in LIMITS and not (isinstance(one, NUMBER) and not isinstance(one, bool) and LIMITS[key][0] <= one <= LIMITS[key][1]):
            raise ValueError(f"{where}: {key} = {one!r}. Write a number from {LIMITS[key][0]} to {LIMITS[key][1]}")
        if key == "rates" and not (isinstance(one, NUMBER) and 0 < one <= 2):
            raise ValueError(f"{where}: rates has {one!r}. Write shares of the closed-loop rate, above 0 and at most 2")
        if key == "mkfs" and not isinstance(one, str):
            raise ValueError(f"{where}: mkfs has {one!r}. Write a list of texts, a word each")
        if key == "plots" and one not in PLOTS:
            raise ValueError(f"{where}: unknown plot {one!r}. Choose from {', '.join(PLOTS)}")


def _expand(words, settings, where):
    """A [[row]] as one Row, one for each number of clients, or one for each share and one for the closed loop."""
    if isinstance(words, dict) and isinstance(words.get("name"), str):
        where += f" ({words['name']})"
    _check(words, ROW, where)
    for key in ("name", "group", "server", "place"):
        if key not in words:
            raise ValueError(f"{where}: no {key}. Add {key} = \"...\"")
    _check_together(words, where)
    if "label" in words and not LABEL.fullmatch(words["label"]):
        raise ValueError(f"{where}: label = {words['label']!r}. Write 1 to 40 characters, without =, and no - at the begin")
    clients, rates, quick = words.get("clients", settings["clients"]), words.get("rates"), words.get("quick", False)
    row = Row(words["name"], words["name"], words["group"], words["server"], _setup(words), words.get("agent", "maildir"), _settings(words),
              words.get("size", settings["size"]), clients, None, words.get("generator", "mailbench"), bool(quick),
              words.get("label", ""))
    chosen = lambda number: number in quick if isinstance(quick, list) else quick
    if isinstance(clients, list):
        return [dataclasses.replace(row, name=f"{row.name}-c{n}", clients=n, is_quick=chosen(n)) for n in clients]
    return [row, *(dataclasses.replace(row, name=f"{row.name}-r{round(share * 100)}", share=share, is_quick=chosen(share)) for share in rates or [])]


def _check_together(words, where):
    """Keys that exclude each other, or need each other."""
    is_lmtpd, is_built_in = words["server"] == "lmtpd", words.get("agent", "maildir") == "maildir"
    if words["server"] == "agent" and is_built_in:
        raise ValueError(f"{where}: server = \"agent\" runs a program. Add agent = \"dovecot-lda\"")
    if words["server"] not in ("lmtpd", "agent") and "agent" in words:
        raise ValueError(f"{where}: {words['server']} has no agent. Remove the key, or set server = \"lmtpd\"")
    if ("durability" in words or "settings" in words) and not (is_lmtpd and is_built_in):
        raise ValueError(f"{where}: durability and settings are of lmtpd's built-in agent. Remove them")
    if words["place"] == "raw" and words.keys() & {"file_system", "mkfs", "mount"}:
        raise ValueError(f"{where}: place = \"raw\" is the disk's own file system. Remove file_system, mkfs and mount")
    if "delay" in words and words["place"] not in ("A", "B", "C"):
        raise ValueError(f"{where}: delay is of the link between two replicas. Set place to A, B or C")
    if "rates" in words and isinstance(words.get("clients"), list):
        raise ValueError(f"{where}: rates and a list of clients. Make two rows")
    if words.get("generator", "mailbench") != "mailbench" and ("rates" in words or words["server"] == "agent"):
        raise ValueError(f"{where}: only mailbench has an open loop, and runs agents. Remove generator")
    if words.get("generator", "mailbench") != "mailbench" and ":" in words.get("size", ""):
        raise ValueError(f"{where}: {words['generator']} sends one size only. Write a size such as 4KiB")
    if isinstance(words.get("quick"), list) and not set(words["quick"]) <= set(_listed(words)):
        raise ValueError(f"{where}: quick has a number that neither clients nor rates has. Choose from {_listed(words) or 'true and false'}")


def _listed(words):
    return words.get("rates") or (words.get("clients") if isinstance(words.get("clients"), list) else [])


def _setup(words):
    return delivery_rows.Setup(words["place"], words.get("file_system", "ext4"), tuple(words.get("mkfs", ())), words.get("mount", ""), words.get("delay"))


def _settings(words):
    return (*((("durability", words["durability"]),) if "durability" in words else ()), *words.get("settings", {}).items())


def _groups(tables, rows, where):
    """In the order of the tables, and then of the rows whose group has none."""
    for number, words in enumerate(tables, 1):
        _check(words, GROUP, f"{where}: group {number}")
        if "name" not in words:
            raise ValueError(f"{where}: group {number}: no name. Add name = \"...\"")
    _no_duplicates([words["name"] for words in tables], where, "group")
    of_rows = list(dict.fromkeys(row.group for row in rows))
    if unused := [words["name"] for words in tables if words["name"] not in of_rows]:
        raise ValueError(f"{where}: group {unused[0]} has no row. Remove it, or name it in a row")
    named = {words["name"]: words for words in tables}
    return tuple(_group(named.get(name, {"name": name}), [row for row in rows if row.group == name], where) for name in [*named, *(n for n in of_rows if n not in named)])


def _group(words, rows, where):
    base, families = words.get("base", ""), {row.family for row in rows}
    if base and base not in families:
        raise ValueError(f"{where}: group {words['name']}: base = {base!r} is none of its rows. Choose from {', '.join(sorted(families))}")
    plots = words.get("plots") or (["rate"] if any(row.share for row in rows) else ["clients"] if any(row.name != row.family for row in rows) else ["bars", "latency"])
    return Group(words["name"], words.get("title", words["name"]), words.get("text", ""), base, tuple(plots), words.get("trace", False))


def _no_duplicates(names, where, what):
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{where}: two {what}s are called {twice[0]}. Rename one")


def select(matrix, patterns):
    """The rows whose name or family matches one of the patterns. An open loop needs its closed loop."""
    def wanted(row):
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in (row.name, row.family))
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for row in matrix.rows for name in (row.name, row.family)):
            raise ValueError(f"no row matches {pattern}. --list prints the rows")
    open_loops = {row.family for row in matrix.rows if row.share and wanted(row)}
    rows = tuple(row for row in matrix.rows if wanted(row) or row.name in open_loops)
    return dataclasses.replace(matrix, rows=rows, groups=tuple(g for g in matrix.groups if any(row.group == g.name for row in rows)))


def replace(matrix, **words):
    """With other settings, under the same limits."""
    _check(words, {key: TOP[key] for key in words}, "the command line")
    return dataclasses.replace(matrix, **words)


def base_of(group, row, rows):
    """The row that this row's ratios are to: the base of its group, with the same number of clients or share if there are several. None:
    there is none."""
    if not group.base or row.share:
        return None
    found = [other for other in rows if other.family == group.base and not other.share]
    alike = [other for other in found if other.clients == row.clients]
    return (alike or found or [None])[0]
