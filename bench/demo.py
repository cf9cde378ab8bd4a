#!/usr/bin/python3
"""Two machines (network namespaces) with a volume that is replicated under protocol C, and ext4 on it. Dovecot serves
IMAP from it, and lmtpd delivers into it: by the built-in agent as shipped and with the intake log, then by dovecot-lda
with a command template. Each load also runs on a plain ext4, on a file of the same disk. All six loads run in alternation, in some
rounds. After each load every acknowledged message is looked for. At the end one message is read over IMAP, and the two
replicas are compared byte for byte. The rates end as bars, on the terminal and in an SVG file.
"""
import argparse, os, pathlib, shutil, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/lib"), str(ROOT / "bench/lib")]
import delivery, dovecot_conf, leftovers, mail
import twinloft as tl
from figures import bytes_of, cpu_seconds, in_rounds, spread, table, write_json
from twinloft import BIN, Failed, run

USERS = 200
MKFS = ("mkfs.ext4", "-q", "-m", "0", "-i", "4096")
AGENTS = {"built-in": '[delivery]\nagent = "maildir"\n',
          "intake log": '[delivery]\nagent = "maildir"\n[maildir]\ndurability = "intake-log"\n',
          "dovecot-lda": '[delivery]\nagent = "dovecot-lda"\n[agent.dovecot-lda]\ncommand = "{lda}"\n'}


def say(text):
    print(text, flush=True)


def dovecot(stage, directory, spool, port, ns):
    """A private Dovecot, with IMAP at 127.0.0.1:port in the namespace, and user look-ups for dovecot-lda."""
    lib = ROOT / "tests/e2e/lib/dovecot.sh"
    run("bash", "-c", f'. "{lib}" && dovecot_users && dovecot_config "{directory}" "{spool}" {port}')
    return dovecot_conf.start(stage, f"dovecot-{directory.name}", directory / "dovecot.conf", directory / "log", lambda name, command: stage.start(name, command, ns))


def lda_template(directory):
    return run("bash", "-c", f'. "{ROOT}/tests/e2e/lib/dovecot.sh" && dovecot_lda_template "{directory}"').stdout.strip()


IMAP_FETCH = """
import imaplib, sys
m = imaplib.IMAP4("127.0.0.1", int(sys.argv[1]))
m.login(sys.argv[2], "test")
m.select("INBOX", readonly=True)
newest = m.search(None, "ALL")[1][0].split()[-1]
sys.stdout.buffer.write(m.fetch(newest, "(BODY.PEEK[])")[1][0][1])
m.logout()
"""


def fetch_over_imap(v, spool, port, user):
    """The newest message of a user over IMAP must be, except for line ends, a file of the user's Maildir."""
    r = subprocess.run(["nsenter", f"--net=/run/netns/{v.ns['a']}", "--", sys.executable, "-c", IMAP_FETCH, str(port),
                        user], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if r.returncode != 0:
        raise Failed(f"IMAP: {r.stderr.decode()}")
    wanted = r.stdout.replace(b"\r\n", b"\n")
    name, domain = user.split("@")
    files = [f for d in ("new", "cur") for f in (spool / domain / name / "Maildir" / d).iterdir()]
    if not any(f.read_bytes().replace(b"\r\n", b"\n") == wanted for f in files):
        raise Failed(f"the message of {user} that IMAP gives is not one of its {len(files)} files")
    subject = next(l for l in wanted.split(b"\n") if l.lower().startswith(b"subject:")).decode()
    return len(r.stdout), subject


class Loads:
    """The six loads, each on its place: a directory, a volume, and a Dovecot that finds users."""

    def __init__(self, stage, v, options, places):
        self.stage, self.v, self.options, self.places = stage, v, options, places
        self.cases = [(label, place) for label in AGENTS for place in places]

    def measure(self, case, number):
        """One load. Its mail is removed. The mail of the last agent's last round stays, to be read over IMAP."""
        label, place = case
        directory, volume, dovecot_dir = self.places[place]
        name = f"{label}, {place}, {number}"
        p, socket_path = mail.start_lmtpd(self.stage, volume, directory, f"lmtpd-{self.cases.index(case)}-{number}", self.v.ns["a"],
                                          AGENTS[label].format(lda=lda_template(dovecot_dir)))
        before = [cpu_seconds(self.v.nodes[n].pid) for n in "ab"]
        r = delivery.load(self.stage, name, socket_path, self.options, self.options.size, self.first_user(label, number), USERS)
        r["verify"] = delivery.verify(self.stage, name, directory)
        after = [cpu_seconds(self.v.nodes[n].pid) for n in "ab"]
        r["replication_cpu_s"] = [round(b - a, 2) for a, b in zip(before, after)]
        if p.stop() != 0:
            raise Failed(f"lmtpd does not stop cleanly: {p.log.read_text()[-2000:]}")
        if number + 1 < self.options.rounds or label != list(AGENTS)[-1]:
            shutil.rmtree(directory / "example.org")
        return r

    def first_user(self, label, number):
        return 1 + (number * len(AGENTS) + list(AGENTS).index(label)) * USERS


def report(found):
    """The agents beside each other, with medians and the spread of the rounds."""
    rows = []
    for label in AGENTS:
        plain, replicated = found[label, "plain"], found[label, "replicated"]
        rate = lambda r: r["messages_per_minute"]
        ms = lambda rounds: " / ".join(spread([r["latency_ms"][key] for r in rounds]) for key in ("p50", "p99"))
        rows.append([label, spread(map(rate, plain), "{:,.0f}"), spread(map(rate, replicated), "{:,.0f}"),
                     spread([rate(c) / rate(p) for p, c in zip(plain, replicated)], "{:.2f}"), ms(plain), ms(replicated)])
    return table(["agent", "plain ext4, m/min", "replicated (C), m/min", "ratio", "p50 / p99 plain, ms", "p50 / p99 replicated, ms"], rows)


def plain_ext4(stage, size):
    """A directory on an ext4 without a replica, on an allocated and written file: as the disk of one machine."""
    file, directory = stage.dir / "plain.ext4", stage.dir / "plain"
    run("dd", "if=/dev/zero", f"of={file}", "bs=1M", f"count={bytes_of(size) >> 20}", "oflag=direct", "status=none")
    device = run("losetup", "-f", "--show", "--direct-io=on", "--sector-size", "4096", file).stdout.strip()
    stage.on_close(run, "losetup", "-d", device)
    # Without this the kernel sends no flush to the file: the last user of the number may have left its setting.
    pathlib.Path(f"/sys/block/{pathlib.Path(device).name}/queue/write_cache").write_text("write back")
    run(*MKFS, "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", device)
    stage.mount(device, directory, "-o", "noatime")
    return directory


def picture(stage, found, file):
    """The rates as bars, in an SVG file and as text."""
    pathlib.Path(file).parent.mkdir(parents=True, exist_ok=True)
    reports = [f"{label}, {place}={stage.dir / f'{label}, {place}, {n}.json'}" for (label, place), r in found.items() for n in range(len(r))]
    return run(BIN / "mailbench", "plot", "--kind", "bars", "--title", "Messages a minute, two replicas on one machine",
               "--text", "--output", file, *reports).stdout


def demo(stage, options):
    started = time.monotonic()
    say("Two machines, a volume, ext4 ...")
    v = tl.Volume(stage, size=options.volume, journal_size="512MiB", arena="512MiB", protocol="C")
    v.create()
    v.serve("b")
    v.serve("a")
    v.wait_connected()
    device, spool = v.device(), stage.dir / "spool"
    run(*MKFS, "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
    stage.mount(device, spool, "-o", "noatime")
    plain = plain_ext4(stage, options.volume)
    (spool / ".twinloft-spool").write_text(v.uuid + "\n")
    imap_dir, plain_dir, port = stage.dir / "dc", stage.dir / "dp", 1143
    imap = dovecot(stage, imap_dir, spool, port, v.ns["a"])
    plain_dovecot = dovecot(stage, plain_dir, plain, "", v.ns["a"])
    uid, gid = tl.uid_of("vmail")
    for directory in (spool, plain):
        os.chown(directory, uid, gid)
    say(run(BIN / "spool-repl", "status", "--config", v.config["a"]).stdout)

    say(f"Six loads of {options.seconds} s in each of {options.rounds} round(s), {options.clients} clients, messages of {options.size} ...")
    loads = Loads(stage, v, options, {"plain": (plain, None, plain_dir), "replicated": (spool, v.uuid, imap_dir)})
    found = in_rounds(options.rounds, loads.cases, loads.measure, lambda r: f"{r['messages_per_minute']:,.0f} messages a minute")
    verified = sum(r["verify"]["acknowledged_found"] for rounds in found.values() for r in rounds)
    size, subject = fetch_over_imap(v, spool, port, f"user{loads.first_user(list(AGENTS)[-1], options.rounds - 1)}@example.org")
    say(f"\nOne message over IMAP: {size} bytes, {subject}")

    for p in (imap, plain_dovecot):
        p.stop()
    run("umount", spool)
    run("umount", plain)
    for node in "ab":
        if v.nodes[node].stop() != 0:
            raise Failed(f"spool-repl on {node} does not stop cleanly: "
                         f"{v.nodes[node].log.read_text()[-2000:]}")
    compared = v.compare()
    say(f"Replicas compared byte for byte: {compared:,} bytes, equal")
    say(f"Acknowledged messages looked for in the spool: {verified:,}, all there, whole, and once\n")
    say(f"Median (least to most) of {options.rounds} round(s):\n\n{report(found)}")
    say("\n" + picture(stage, found, options.svg))
    say(f"As a picture: {options.svg}")
    say(f"\n{time.monotonic() - started:.0f} s")
    write_json(options, found)


def main():
    parser = argparse.ArgumentParser(prog="bench/demo", description=__doc__)
    parser.add_argument("--seconds", type=int, default=6, help="length of each load (6)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the six loads, in alternation (3)")
    parser.add_argument("--warmup", type=int, default=2, help="seconds of warm-up before each load (2)")
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--size", default="mean:35KiB", help="size of messages, as for mailbench")
    parser.add_argument("--volume", default="5GiB", help="size of the replicated volume; each replica and the plain ext4 need this much")
    parser.add_argument("--directory", dest="dir", default="/var/tmp", help="directory for disks, logs and the plain spool")
    parser.add_argument("--json", help="write all figures to this file")
    parser.add_argument("--svg", default="build/demo.svg", help="the file for the bars (build/demo.svg)")
    parser.add_argument("--keep", action="store_true", help="leave logs and disks behind")
    options = parser.parse_args()
    if options.rounds < 1 or options.seconds < 1:
        parser.error("at least one round, of a second")
    leftovers.sweep(options.dir)
    directory = tempfile.mkdtemp(prefix="tld", dir=options.dir)
    os.chmod(directory, 0o755)
    stage = tl.Stage(directory)
    if not options.keep:
        stage.on_close(shutil.rmtree, directory)
    try:
        demo(stage, options)
        return 0
    except Failed as e:
        say(f"FAILED: {e}")
        for p in stage.processes:
            text = p.log.read_text()[-1500:]
            if text:
                say(f"--- {p.name}\n{text}")
        return 1
    finally:
        stage.close()


sys.exit(main())
