"""The rows of bench/delivery: PLACE or PLACE-WAY. A place is where the spool is; a way is which program delivers, and how. Settings
of [maildir] may follow the way: `C-log:intake_log_size=16MiB`.

Pure: names, texts and arithmetic.
"""
import dataclasses, re

PLACES = {"raw": "a directory of the disk's own file system", "loop": "ext4 on a loop device on a file of that disk",
          "none": "ext4 on a volume without a second replica", **{p: f"ext4 on a volume under protocol {p}" for p in "ABC"}}
WAYS = {"": "lmtpd's built-in agent as shipped", "fsync-file": 'durability = "fsync-file", the older order',
        "group-sync": 'durability = "group-sync"', "log": 'durability = "intake-log"', "lda": "lmtpd with dovecot-lda by template",
        "dovecot": "Dovecot's own LMTP, without lmtpd"}
DURABILITY = {"fsync-file": "fsync-file", "group-sync": "group-sync", "log": "intake-log"}
NAME = re.compile(r"(?P<place>raw|loop|none|[ABC](\+((?P<delay>[0-9.]+)ms|(?P<clear>clear)))?)(-(?P<way>[a-z-]+))?(?P<settings>(:[a-z_]+=[0-9A-Za-z]+)*)")


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a spool lies on. Rows with equal ones share a spool."""
    place: str  # raw, loop, none, A, B or C
    file_system: str = "ext4"
    mkfs: tuple = ()  # further words for mkfs
    mount: str = ""  # further options of the mount, after noatime
    delay: float | None = None  # milliseconds that a proxy adds to a round trip; 0: the proxy alone
    secured: bool = True  # TLS between the replicas

    @property
    def text(self):
        if self.place == "raw":
            return PLACES["raw"]
        words = [PLACES[self.place].replace("ext4", " ".join([self.file_system, *self.mkfs]), 1)]
        words += [f"mounted with {self.mount}"] if self.mount else []
        words += [] if self.delay is None else [f"a proxy adds {self.delay:g} ms to a round trip"]
        return ", ".join(words + ([] if self.secured else ["the link in clear text"]))


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    place: str           # "C+1ms": with a longer cable
    protocol: str        # "C"; raw, loop: the place itself
    delay: float | None  # milliseconds that a proxy adds to a round trip; 0: the proxy alone
    secured: bool        # TLS between the replicas
    way: str
    settings: tuple      # pairs of key and value

    @property
    def text(self):
        more = "" if self.delay is None else f", with a proxy that adds {self.delay:g} ms to a round trip"
        more += "" if self.secured else ", the link in clear text"
        return "; ".join([f"{PLACES[self.protocol]}{more}", WAYS[self.way], *(f"{key} = {value}" for key, value in self.settings)])

    @property
    def pairs(self):
        """The settings of [maildir]."""
        durability = (("durability", DURABILITY[self.way]),) if self.way in DURABILITY else ()
        return durability + self.settings


def parse(name):
    """Errors: ValueError in words."""
    found = NAME.fullmatch(name)
    if not found or (found["way"] or "") not in WAYS:
        raise ValueError(f"no row {name}: PLACE or PLACE-WAY; places: {', '.join(PLACES)}, C+1ms (any number), C+clear; ways: {', '.join(w for w in WAYS if w)}")
    settings = tuple(tuple(one.split("=")) for one in found["settings"].split(":")[1:])
    if settings and found["way"] in ("lda", "dovecot"):
        raise ValueError(f"no row {name}: settings are of the built-in agent")
    place, delay = found["place"], found["delay"]
    return Row(name, place, place.split("+")[0], None if delay is None else float(delay), not found["clear"],
               found["way"] or "", settings)


def flushes_of(stat):
    """The completed flushes of a block device, from the text of /sys/block/NAME/stat (Documentation/block/stat.rst: the 16th field)."""
    return int(stat.split()[15])


def ratios(found, name, other, key="per_minute"):
    """Of the same rounds. Empty: `other` was not measured."""
    return [mine[key] / its[key] for mine, its in zip(found[name], found[other])] if other in found else []
