"""The targets of a load (places): the plain file, volumes under each protocol, their front ends, file systems on them.

A name is PROTOCOL-FRONT or raw[-FRONT]: `raw`, `none-nbd`, `A-nbd`, `C-device`, `C-ext4`, `raw-loop`, `raw-xfs` ... All places of
a run exist at the same time, so that a round can change from one to the next without a start. All places except
the measured one are idle. The stage removes everything at the end.
"""
import pathlib, sys

import budget, fio
import twinloft as tl
from figures import bytes_of, cpu_seconds, written_bytes

CABLE = pathlib.Path(__file__).resolve().parent / "cable.py"
EXT4 = ["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
FILE_SYSTEMS = {"ext4": EXT4, "xfs": ["mkfs.xfs", "-q"]}
RAW = ("raw", "raw-loop", "raw-ext4", "raw-xfs")
PROTOCOLS = ("none", "A", "B", "C")
FRONTS = ("nbd", "device", "ext4", "xfs")
NAMES = RAW + tuple(f"{p}-{f}" for f in FRONTS for p in PROTOCOLS)


class Lab:
    """Two machines: two namespaces with a cable between them, and an address of each for every volume."""

    def __init__(self, stage, options):
        self.stage, self.options, self.volumes = stage, options, 0
        self.ns = None
        self.journals = None
        if options.journals == "tmpfs":
            self.journals = stage.dir / "journals"
            stage.mount("tmpfs", self.journals, "-t", "tmpfs")
        elif options.journals:
            self.journals = pathlib.Path(options.journals) / stage.dir.name
            self.journals.mkdir(parents=True)
            stage.on_close(tl.run, "rm", "-rf", self.journals)

    def network(self):
        """The addresses for another volume."""
        if self.ns is None:
            tag = f"tlb{self.stage.dir.name[-6:]}"
            self.ns = {n: tag + n for n in "ab"}
            self.stage.namespaces(*self.ns.values())
        self.volumes += 1
        net = f"10.91.{100 + self.volumes}"
        for i, node in enumerate("ab", 1):
            tl.run("ip", "-n", self.ns[node], "addr", "add", f"{net}.{i}/24", "dev", "tl0")
        return Network(self.ns, {"a": f"{net}.1", "b": f"{net}.2"})

    def volume(self, name, protocol, fuse, delay=None, more="", programs=None, secured=True):
        """A served volume with connected replicas. delay: of a longer cable between them, in milliseconds. programs: the
        directory of another build, which serves it. secured: as for tl.Volume."""
        before, tl.BIN = tl.BIN, pathlib.Path(programs) if programs else tl.BIN
        try:
            return self._volume(name, protocol, fuse, delay, more, secured)
        finally:
            tl.BIN = before

    def _volume(self, name, protocol, fuse, delay, more, secured):
        stage = self.stage.inner(name)
        sizes = {"size": bytes_of(self.options.size), "journal_size": self.options.journal, "arena": self.options.arena}
        if protocol == "none":
            v = tl.Volume(stage, **sizes, fuse=fuse, nbd=True, netns=False, roles=("primary",), extra=more)
        else:
            v = tl.Volume(stage, **sizes, fuse=fuse, nbd=True, network=self.network(), protocol=protocol, extra=more,
                          secured=secured)
        for node in v.replica:
            self._move_journal(v, node, name)
        if protocol != "none" and delay is not None:
            self._lay_cable(v, stage, delay)
        v.create()
        for node in sorted(v.replica, reverse=True):
            v.serve(node)
            self._limit(v, node, stage, name)
        stage.on_close(v.kill_all)
        v.wait_connected()
        return v

    def _move_journal(self, v, node, name):
        if self.journals:
            text = v.config[node].read_text()
            v.config[node].write_text(text.replace(str(v.stage.dir / node / "journal"), str(self.journals / f"{name}-{node}")))

    def _lay_cable(self, v, stage, delay):
        """The replica with the lower id connects to its peer, so its configuration names the end of the cable."""
        direct = v.address["b"]
        end = direct.rsplit(":", 1)[0] + ":7711"
        stage.start("cable", [sys.executable, CABLE, end, direct, str(delay)], v.ns["b"])
        text = v.config["a"].read_text()
        tl.expect(text.count(f'address = "{direct}"') == 1, "the peer's address is not where it was")
        v.config["a"].write_text(text.replace(f'address = "{direct}"', f'address = "{end}"'))

    def _limit(self, v, node, stage, name):
        if self.options.budget:
            group = budget.Budget(stage, f"{name}-{node}", stage.dir, int(self.options.budget * 1e6))
            group.add(v.nodes[node].pid)


class Network:
    def __init__(self, ns, ip):
        self.ns, self.ip = ns, ip


class Place:
    """words: arguments for fio. size: number of bytes that fio works on. volume: None without a volume."""

    def __init__(self, name, words, size, volume=None, is_nbd=False, group=None):
        self.name, self.words, self.size, self.volume, self.is_nbd, self.budget = name, words, size, volume, is_nbd, group

    def counters(self):
        """The CPU seconds and the written bytes of each replica until now. Call settle() first."""
        if not self.volume:
            return {}
        return {n: (cpu_seconds(p.pid), written_bytes(p.pid)) for n, p in self.volume.nodes.items()}

    def journal_bytes(self):
        """The bytes that were written to the journal since the start."""
        return self.volume.status("a")["since_start"]["journal_bytes"]

    def traffic(self):
        """The records, and the packets that each replica has sent, until now. Empty without a second replica."""
        if not self.volume or None in self.volume.ns.values():
            return {}
        sent = {n: tl.run("ip", "netns", "exec", ns, "cat", "/sys/class/net/tl0/statistics/tx_packets").stdout
                for n, ns in self.volume.ns.items()}
        return {"records": self.volume.status("a")["since_start"]["records"], **{n: int(count) for n, count in sent.items()}}

    def settle(self):
        """Whether every replica has everything in its data area."""
        if self.volume:
            tl.wait_for(lambda: is_settled(self.volume), f"{self.name} to come to rest", 600)


def is_settled(v):
    all_of_them = [v.status(n) for n in v.replica]
    if not all(all_of_them):
        return False
    newest = all_of_them[0]["lsn"]["last"]
    return all(s["dirty_blocks"] == 0 and s["lsn"]["last"] == s["lsn"]["commit"] == newest for s in all_of_them)


def _raw(lab, name, size):
    """The plain file, a loop device on that file, or a file system on that loop device."""
    stage = lab.stage.inner(name)
    if name == "raw":
        file = stage.dir / "raw"
        tl.run("fallocate", "-l", size, file)
        rate = lab.options.raw_budget
        group = budget.Budget(stage, name, stage.dir, int(rate * 1e6)) if rate else None
        return _filled(lab, Place(name, [f"--filename={file}", "--ioengine=libaio"], size, group=group))
    tl.expect(not lab.options.budget, f"{name} has no budget: the kernel itself writes for a loop device. Leave it out")
    loop, device = filled_loop(lab, stage, name, size)
    return loop if name == "raw-loop" else _file_system(lab, stage, name, device, size)


def filled_loop(lab, stage, name, size):
    """A loop device on an allocated and written file, with direct I/O and sectors of 4096 bytes, as spool-repl's."""
    file = stage.dir / "raw"
    tl.run("fallocate", "-l", size, file)
    device = tl.run("losetup", "-f", "--show", "--direct-io=on", "--sector-size", "4096", file).stdout.strip()
    stage.on_close(tl.run, "losetup", "-d", device)
    # Without this the kernel sends no flush to the file: the last user of the number may have left its setting.
    pathlib.Path(f"/sys/block/{pathlib.Path(device).name}/queue/write_cache").write_text("write back")
    return _filled(lab, Place(name, _device_words(device), size)), device


def _device_words(device):
    return [f"--filename={device}", "--ioengine=libaio", "--allow_mounted_write=0"]


def _filled(lab, place):
    fio.prefill(place, lab.stage.dir)
    return place


def _file_system(lab, stage, name, device, size, volume=None):
    """An allocated and written file on the file system: 70 % of the device."""
    kind, mounted = name.split(",")[0].rsplit("-", 1)[1], stage.dir / "mounted"
    tl.run(*FILE_SYSTEMS[kind], device)
    stage.mount(device, mounted, "-o", "noatime")
    words = [f"--filename={mounted}/file", "--ioengine=libaio", "--fallocate=native"]
    return _filled(lab, Place(name, words, size * 7 // 10 >> 20 << 20, volume))


def on_nbd(lab, v, name):
    """Fills the target, once."""
    nbd = Place(name, ["--ioengine=nbd", f"--uri={v.status('a')['nbd']}"], bytes_of(lab.options.size), v, True)
    if not hasattr(v, "is_filled"):
        v.is_filled = _filled(lab, nbd)
    return nbd


def _on_volume(lab, v, name, front):
    nbd = on_nbd(lab, v, name)
    if front == "nbd":
        return nbd
    if front == "device":
        return Place(name, _device_words(v.device()), nbd.size, v)
    return _file_system(lab, v.stage, name, v.device(), nbd.size, v)


class Variant:
    """The set-up of a volume besides its protocol. delay, programs, secured: as for Lab.volume(). setting: a line of the
    configuration, KEY=VALUE."""

    def __init__(self, delay=None, setting=None, programs=None, secured=True):
        self.delay, self.setting, self.programs, self.secured = delay, setting, programs, secured
        self.words = [*([] if delay is None else [f"cable {delay:g} ms"]), *([setting] if setting else []),
                      *([f"of {programs}"] if programs else []), *([] if secured else ["clear text"])]

    def of(self, protocol):
        """A volume without a second replica has no cable, and so no delay."""
        return Variant(None, self.setting, self.programs) if protocol == "none" else self


def make(lab, names, variants):
    """A list of Place, all written once. A volume exists once for each variant that makes a difference to it."""
    places, volumes, size = [], {}, bytes_of(lab.options.size)
    for name in names:
        protocol, _, front = name.partition("-")
        if protocol == "raw":
            places.append(_raw(lab, name, size))
            continue
        for variant in {str(v.words): v for v in (w.of(protocol) for w in variants)}.values():
            # NBD and the bare device share a volume. A file system has its own volume.
            key = ", ".join([f"{protocol}-{front}" if front in FILE_SYSTEMS else protocol, *variant.words])
            if key not in volumes:
                fuse = front != "nbd" or f"{protocol}-device" in names
                volumes[key] = lab.volume(f"v{len(volumes)}-{protocol}", protocol, fuse, variant.delay,
                                           (variant.setting or "").replace("=", " = "), variant.programs, variant.secured)
            places.append(_on_volume(lab, volumes[key], ", ".join([name, *variant.words]), front))
        print(f"{name} is there", file=sys.stderr, flush=True)
    for place in places:
        place.settle()
    return places
