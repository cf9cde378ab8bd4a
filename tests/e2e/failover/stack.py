"""The machines of the test, the processes on them, and the actions of a cluster manager: promote, mount,
start lmtpd.
"""
import json, time

import mail
import twinloft as tl
from etcd import PROGRAMS as ETCD_PROGRAMS, Etcd
from switch import Switch
from twinloft import BIN, Failed, expect, run, wait_for

NEEDS = (*ETCD_PROGRAMS, "bridge", "e2fsck", "ip", "losetup", "mkfs.ext4", "nsenter", "tc", "/dev/fuse", "/dev/loop-control",
         *(tl.BIN / name for name in ("spool-repl", "lmtpd", "mailbench")))


class Clock:
    """Seconds from a fault to each later event."""

    def __init__(self):
        self.begin, self.marks = time.monotonic(), {}

    def mark(self, what):
        self.marks[what] = round(time.monotonic() - self.begin, 3)


class Stack:
    def __init__(self, stage, rng, options):
        self.stage, self.rng, self.options = stage, rng, options
        names = [chr(ord("a") + i) for i in range(options.nodes)]
        self.switch = Switch(stage, names)
        self.etcd = Etcd(stage, self.switch.witness_ns, self.switch.witness)
        # All replicas start as secondary: with a cluster manager, promotion is its task.
        self.v = tl.Volume(stage, size="1GiB", journal_size="64MiB", arena="96MiB", network=self.switch,
                           roles=["secondary"] * options.nodes,
                           extra=f'peer_timeout = "{options.peer_timeout}ms"\n[volume.mail.arbiter]\nkind = "etcd"\n'
                                 f'endpoints = ["{self.etcd.url()}"]\ntimeout = "1500ms"\n')
        self.nodes = names
        self.primary, self.lmtpd, self.load = None, dict.fromkeys(names), None
        self.accounts, self.loads, self.formatted = [], 0, False
        self.logs = options.durability == "intake-log"
        self.lmtpd_logs, self.delivered, self.dropped = [], 0, 0
        self.v.create()
        self.etcd.start()
        mail.make_users()

    # ---- one machine -----------------------------------------------------------------------------------------------

    def spool(self, node):
        return self.stage.dir / node / "spool"

    def crash(self, node):
        """kill -9 of the server processes on that machine. The load generator is not part of the machine."""
        for process in (self.v.nodes[node], self.lmtpd[node]):
            if process:
                process.kill()

    def clear(self, node):
        """Removes what a crash leaves behind, and a reboot would not: a mounted file system without a device.
        """
        self.lmtpd[node] = None
        self.stage.unmount(self.spool(node))

    def take_down(self, node):
        """Stops lmtpd and unmounts cleanly, as before a reboot of the machine."""
        code = self.lmtpd[node].stop()
        expect(code == 0, f"lmtpd on {node} does not stop cleanly: exit {code}")
        self.lmtpd[node] = None
        run("umount", self.spool(node))

    def bring_up(self, node, clock):
        """That node is primary: starts lmtpd there and sends the mail there."""
        spool, device = self.spool(node), self.v.device(node)
        if self.formatted:
            self.stage.mount(device, spool)
            clock.mark("mounted")
            self.replay(node, "--json")
        else:
            mail.make_spool(self.stage, self.v, device, spool, "-i", "8192")
            clock.mark("mounted")
            self.replay(node, "--create")
            self.formatted = True
        self.start_mail(node, clock)

    def configure(self, node, name):
        more = f'[maildir]\ndurability = "{self.options.durability}"\n'
        if self.logs:
            more += 'intake_log_size = "16MiB"\nintake_log_checkpoint = "1s"\n'
        # With "info", lmtpd says of each message what made it durable.
        return mail.write_config(self.stage, self.v.uuid, self.spool(node), name, more, "info" if self.logs else "warning")

    def replay(self, node, option):
        """As lmtpd-replay.service: once for each mount, before lmtpd starts. Or makes the log (--create)."""
        if not self.logs:
            return
        config, _ = self.configure(node, f"replay-{node}")
        r = run(BIN / "lmtpd", "replay", option, "--config", config, check=False)
        expect(r.returncode == 0, f"lmtpd replay {option} on {node}: exit {r.returncode}\n{r.stdout}")
        if option == "--json":
            said = json.loads(r.stdout[r.stdout.index("{"):])
            self.delivered += said["delivered"]
            self.dropped += said["dropped"]

    def start_mail(self, node, clock):
        """Starts lmtpd on the mounted spool, and sends the mail there."""
        self.loads += 1
        name = f"lmtpd-{node}{self.loads}"
        config, self.socket = self.configure(node, name)
        self.lmtpd[node] = mail.serve(self.stage, name, config, self.socket, self.v.ns[node])
        self.lmtpd_logs.append(self.lmtpd[node].log)
        clock.mark("lmtpd")
        self.primary = node
        self.start_load()
        wait_for(lambda: self.load.acknowledged() or self.load.process.check_alive(),
                 f"the first 250 of lmtpd on {node}; {self.describe()}")
        clock.mark("250")

    def start_load(self):
        n = len(self.accounts)
        self.load = mail.Load(self.stage, self.socket, f"mailbench{n}", 1 + n % 40 * 50, "--size", "uniform:1KiB-16KiB",
                              "--rate", str(self.options.rate), "--duration", "24h", clients=6)
        self.accounts.append(self.load.account)

    # ---- the cluster -----------------------------------------------------------------------------------------------

    def status(self, node):
        return self.v.status(node) if self.v.nodes[node] and self.v.nodes[node].alive() else None

    def describe(self):
        """The status of all nodes, for a failure's message."""
        parts = [f"{node}: {json.dumps(self.status(node))}" for node in self.nodes]
        return "\n".join(parts)

    def wait_status(self, node, condition, what):
        try:
            return wait_for(lambda: (s := self.status(node)) and condition(s) and s, f"{node}: {what}")
        except Failed as e:
            raise Failed(f"{e}\n{self.describe()}") from None

    def promote_one(self, candidates):
        """Asks the candidates in turn until one is promoted."""
        refusals = {}

        def granted():
            for node in candidates:
                s = self.status(node)
                if s and s["role"] == "Primary" and s["device"]:
                    return node
                r = self.v.ctl(node, "promote", check=False)
                if r.returncode == 0:
                    return node
                refusals[node] = r.stdout.strip()
        try:
            return wait_for(granted, f"one of {', '.join(candidates)} to be promoted")
        except Failed as e:
            raise Failed(f"{e}; refused: {refusals}\n{self.describe()}") from None

    def fail_over(self, candidates, clock):
        node = self.promote_one(candidates)
        clock.mark("promoted")
        self.bring_up(node, clock)
        return node

    def others(self, node):
        """The other nodes, in an order drawn from the seed."""
        rest = [n for n in self.nodes if n != node]
        self.rng.shuffle(rest)
        return rest

    def in_sync(self):
        """All replicas are members and have everything."""
        ids = sorted(self.v.replica.values())
        return self.wait_status(self.primary, lambda s: s["role"] == "Primary" and s["in_sync"] == ids and not s["degraded"] and
                                not s["suspended"] and all(p["disk"] == "UpToDate" or p["disk"] == "Behind" for p in s["peers"]),
                                "all replicas to be in sync")

    def begin(self):
        """All machines run, and one of them is primary and receives mail."""
        if self.primary is None:
            for node in self.nodes:
                self.v.serve(node)
            first = self.rng.choice(self.nodes)
            self.fail_over([first, *self.others(first)], Clock())
        else:
            self.start_load()
        self.in_sync()
        self.load.wait_for_more(self.options.messages)
        # again: on a slow machine a replica may have been lost and come back, and each test is one fault
        self.in_sync()

    def verify(self):
        """The load ends, and every acknowledged message is looked for on the survivor."""
        self.load.end()
        text = mail.verify(self.accounts, self.spool(self.primary))
        return next(int(line.split()[4]) for line in text.splitlines() if line.startswith("found whole and once"))

    def check_ways(self):
        """Messages went by the intake log. The first one into each Maildir never does. Returns what there is to say about it."""
        lines = [l for log in self.lmtpd_logs for l in log.read_text(errors="replace").splitlines() if "durable=" in l]
        by_log = sum('durable="intake-log"' in l or "durable=intake-log" in l for l in lines)
        by_files = len(lines) - by_log
        text = f"{by_log} messages by the intake log, {by_files} by their files"
        expect(by_log > 0, f"no message was delivered by the intake log: {text}")
        return f"{text}; replays have delivered {self.delivered} and dropped {self.dropped}"

    def rest(self):
        """All nodes stop cleanly, the file system is clean, and the replicas are equal."""
        node, self.primary = self.primary, None
        self.take_down(node)
        run("e2fsck", "-fn", self.v.device(node))
        self.v.stop_all(node, *self.others(node))
        return self.v.compare()

    def end_by_force(self):
        """Kills everything on every way out: no process may wait on a suspended device."""
        self.v.kill_all()
        for process in self.stage.processes:
            process.kill()
