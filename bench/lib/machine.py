"""What a measurement ran on, in words."""
import os, pathlib, re

import twinloft as tl
from twinloft import BIN, run


def describe(directory):
    """Names and texts. directory: where the measurement keeps its files."""
    cpu = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.M)
    memory = int(re.search(r"^MemTotal:\s*(\d+)", _read("/proc/meminfo"), re.M)[1]) >> 20
    system = os.uname()
    return {"kernel": f"{system.sysname} {system.release} {system.machine}", "system": _release(),
            "processors": f"{os.cpu_count()} x {cpu[1].strip() if cpu else 'unknown'}", "memory": f"{memory} GiB", **_disk(directory)}


def versions():
    """Of this project's programs and of the tools for file systems. Servers add theirs."""
    tools = {"mkfs.ext4": ("mkfs.ext4", "-V"), "mkfs.xfs": ("mkfs.xfs", "-V")}
    ours = {name: (BIN / name, "--version") for name in ("lmtpd", "spool-repl", "mailbench")}
    return {name: text for name, command in {**ours, **tools}.items() if (text := first_line(*command))}


def first_line(*command):
    """What a program prints first. Empty: it is not there."""
    if tl.lacking([command[0]]):
        return ""
    lines = run(*command, check=False).stdout.splitlines()
    return lines[0].strip() if lines else ""


def _disk(directory):
    source, kind, options = run("findmnt", "-n", "-o", "SOURCE,FSTYPE,OPTIONS", "-T", directory).stdout.split(None, 2)
    block = pathlib.Path("/sys/class/block") / pathlib.Path(source).name
    words = [source]
    for file, text in (("size", "{:.0f} GiB"), ("queue/write_cache", "cache: {}"), ("queue/rotational", "rotational: {}"), ("queue/scheduler", "scheduler: {}")):
        found = _read(block / file).strip()
        words += [text.format(int(found) / 2 ** 21 if file == "size" else found)] if found else []
    return {"disk": ", ".join(words), "file system": f"{kind} ({options.strip()})"}


def _release():
    found = re.search(r'^PRETTY_NAME="?([^"\n]+)', _read("/etc/os-release"), re.M)
    return found[1] if found else "unknown"


def _read(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""
