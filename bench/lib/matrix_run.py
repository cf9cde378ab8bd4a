"""Runs the rows of a matrix: group by group, in alternation within a group, each run with new users, verified, and then emptied."""
import argparse, contextlib, json, shutil, sys, time

import matrix_rows, quiet, spools, sync_trace, targets
import twinloft as tl
from figures import bytes_of

CONFIGURATION_OF = ("dovecot.conf", "main.cf", "master.cf", "imapd.conf", "cyrus.conf", "lmtpd.toml")
TRACED_USERS, TRACED_MESSAGES = 10, 20


class Skipped(Exception):
    """A row that cannot run here, in words."""


class Runner:
    """out: the directory of the report. Raw results are written at once. traces, configurations, versions: for the report."""

    def __init__(self, lab, matrix, out):
        self.lab, self.matrix, self.raw = lab, matrix, out / "raw"
        self.raw.mkdir(parents=True)
        self.spools, self.targets, self.made, self.first_user = {}, {}, 0, 1 + TRACED_USERS
        self.broken = {}  # setup -> why it has no spool
        self.closed = {}  # family -> messages a second of its closed loop in round 1
        self.traces, self.configurations, self.versions = [], {}, {}
        self.watch = quiet.Watch(lab.stage.dir, self.cpu_seconds, len(matrix.rows) * matrix.rounds)

    def cpu_seconds(self):
        """Of all servers and replicas."""
        return sum(group.cpu_seconds() for target in self.targets.values() for group in target.groups) + sum(
            seconds for spool in self.spools.values() for seconds in spool.cpu().values())

    def run(self):
        groups = self.matrix.groups
        for number, group in enumerate(groups):
            rows = self.matrix.of(group)
            if group.trace:
                for row in distinct_servers(rows):
                    self.attempt(row, 0, self.trace)
            for round_number in range(1, self.matrix.rounds + 1):
                for row in rows:
                    self.attempt(row, round_number, self.measure)
            self.close_unused([row.setup for other in groups[number + 1:] for row in self.matrix.of(other)])

    def attempt(self, row, number, step):
        """A row that fails does not end the matrix. The report says that it has failed."""
        begin = time.monotonic()
        found = {}
        try:
            found = step(row, number)
        except Skipped as e:
            found = {"matrix": {"skipped": str(e)}}
        except Exception as e:
            found = {"matrix": {"failed": str(e) if isinstance(e, tl.Failed) else f"{type(e).__name__}: {e}"}}
            self.discard(row)
        told = found.pop("told", None) or next(iter(found["matrix"].values()))
        print(f"{row.group}, {f'round {number}' if number else 'trace'}, {row.name}: {told} ({time.monotonic() - begin:.1f} s)", file=sys.stderr, flush=True)
        if number:
            found["matrix"] |= {"row": row.name, "round": number}
            (self.raw / f"{row.name}-{number}.json").write_text(json.dumps(found, indent=1) + "\n")

    def spool(self, row):
        """The row's spool, made at its first use. One that could not be made is not tried again: its parts are there until the end."""
        if row.setup in self.broken:
            raise tl.Failed(self.broken[row.setup])
        if row.setup not in self.spools:
            self.made += 1
            try:
                self.spools[row.setup] = spools.Spool(self.lab, f"s{self.made}", row.setup)
            except Exception as e:
                self.broken[row.setup] = f"no spool: {e}"
                raise
        return self.spools[row.setup]

    def target(self, row):
        """The row's server, made at its first use. Rows with the same server on the same spool share it."""
        key = (row.setup, row.server, row.agent, row.settings, row.clients)
        if key not in self.targets:
            if missing := tl.lacking(targets.needs(row.server, row.agent)):
                raise Skipped(f"this machine has no {', '.join(missing)}")
            spool = self.spool(row)
            self.made += 1
            target = targets.make(spool.stage.inner(f"t{self.made}"), spool, f"t{self.made}", row.clients, row.server, row.agent, row.settings)
            self.targets[key] = target
            if target.version:
                self.versions[target.title] = target.version
            self.configurations.setdefault(", ".join([target.title, *(f"{key} = {value}" for key, value in row.settings)]), {
                file: text.replace(str(self.lab.stage.dir), "/run/bench") for file, text in target.configuration.items() if file in CONFIGURATION_OF})
        return self.targets[key]

    def discard(self, row):
        """Ends what a failed run has left. The next run of the row begins with a new server."""
        for key, target in list(self.targets.items()):
            if key[0] == row.setup and target.is_running:
                del self.targets[key]
                target.stage.close()
                with contextlib.suppress(OSError, tl.Failed):  # the file system itself may have failed: the next row says so
                    target.spool.empty()
                    if target.spool_directory.parent == target.spool.peers:
                        shutil.rmtree(target.spool_directory)

    def close_unused(self, still_used):
        for setup in [setup for setup in self.spools if setup not in still_used]:
            self.targets = {key: target for key, target in self.targets.items() if key[0] != setup}
            self.spools.pop(setup).close()

    def next_users(self):
        first, self.first_user = self.first_user, self.first_user + self.matrix.users
        return first

    def trace(self, row, _):
        target = self.target(row)
        target.is_running = True
        target.begin(TRACED_USERS, 1)
        found = sync_trace.trace(target.stage, target, target.spool.device, TRACED_MESSAGES)
        target.end()
        target.is_running = False
        title = ", ".join([target.title, *(f"`{key} = \"{value}\"`" for key, value in row.settings)])
        self.traces.append({"cells": sync_trace.cells(title, target.version, found), "calls": found.calls})
        return {"matrix": {}, "told": f"{found.flushes:.1f} flushes a message"}

    def measure(self, row, number):
        rate, target = self.offered(row), self.target(row)
        spool, first, name = target.spool, self.next_users(), f"{row.name}-{number}"
        target.is_running = True
        target.begin(self.matrix.users, first)
        if row.generator == "mailbench":  # for the others, all messages of a mailbox count
            target.fill(self.matrix.users, first)
        spool.settle()
        noise = self.watch.before()
        replicas = spool.cpu()
        report, cost = self.loaded(row, target, name, first, rate)
        checked = self.check(row, target, name, first, report)
        spool.settle()  # delivered mail is home when the counters are read
        cost["cpu"] |= {node: seconds - replicas[node] for node, seconds in spool.cpu().items()}
        target.end()
        target.is_running = False
        per_minute = self.rate(target, report, checked, cost["seconds"])
        if number == 1 and not row.share:
            self.closed[row.family] = per_minute / 60
        found = max(1, checked["found"])
        latency = checked.pop("delay_ms", None) or report.get("latency_ms", {})
        return report | {"told": f"{per_minute:,.0f} messages a minute", "matrix": {
            "per_minute": per_minute, "offered_per_minute": rate and rate * 60, "p50_ms": latency.get("p50"), "p99_ms": latency.get("p99"), **checked,
            "flushes": None if cost["flushes"] is None else cost["flushes"] / found, "cpu_us": {who: seconds * 1e6 / found for who, seconds in cost["cpu"].items()},
            "noise": noise | cost["noise"], "ended": time.strftime("%Y-%m-%d %H:%M:%S")}}

    def loaded(self, row, target, name, first, rate):
        """The generator's report, and what the load cost until all of it was delivered."""
        self.watch.begin()
        server, flushes, begin = target.cpu_seconds(), target.spool.flushes(), time.monotonic()
        report = self.load(row, target, name, first, rate)
        target.drain()
        took, noise = time.monotonic() - begin, self.watch.end()
        flushes = None if flushes is None else target.spool.flushes() - flushes
        return report, {"cpu": {"server": target.cpu_seconds() - server}, "flushes": flushes, "seconds": took, "noise": noise}

    def offered(self, row):
        """Messages a second of an open loop, the same in all rounds. None: a closed loop."""
        if not row.share:
            return None
        if row.family not in self.closed:
            raise Skipped("its closed loop has no rate in round 1")
        return round(self.closed[row.family] * row.share, 1)

    def load(self, row, target, name, first, rate):
        """The report of the row's generator, in mailbench's form."""
        m = self.matrix
        options = argparse.Namespace(clients=row.clients, seconds=m.seconds, warmup=m.warmup)
        if row.generator == "mailbench":
            return target.load(name, options, row.size, first, m.users, ["--rate", rate] if rate else [])
        if missing := tl.lacking([row.generator]):
            raise Skipped(f"this machine has no {', '.join(missing)}")
        rate, acknowledged = targets.run_generator(target, row.generator, options, bytes_of(row.size), m.users, first)
        return {"kind": row.generator, "version": 1, "messages_per_minute": rate, "acknowledged": acknowledged, "settings": {"clients": row.clients}}

    def check(self, row, target, name, first, report):
        """What became of the messages. mailbench has an account of each. The others only have a number, or none."""
        if row.generator == "mailbench":
            verified = target.verify(name)
            # Of an MTA, the latency is that of delivery: from its 250 to the file.
            of_mta = {key: verified[key] for key in ("delivered_per_minute", "delay_ms") if key in verified and target.protocol == "smtp"}
            return {"found": verified["acknowledged_found"], "verified": True, **of_mta}
        found = target.messages(self.matrix.users, first)
        if report["messages_per_minute"] is None:
            return {"found": found, "verified": False}
        tl.expect(report["acknowledged"] in (None, found), f"{found} messages are there, {report['acknowledged']} were acknowledged")
        return {"found": found, "verified": False}

    @staticmethod
    def rate(target, report, checked, took):
        """Messages a minute. Of an MTA: delivered ones, since its 250 is no delivery."""
        if report["messages_per_minute"] is None:
            raise Skipped(f"the server refuses the commands of {report['kind']}")
        if target.protocol == "lmtp":
            return report["messages_per_minute"]
        return checked.get("delivered_per_minute") or checked["found"] * 60 / took


def distinct_servers(rows):
    """A row of each server with its settings; a loop of an agent is no server."""
    found = {}
    for row in rows:
        if row.server != "agent" and row.agent == "maildir":
            found.setdefault((row.server, row.settings), row)
    return list(found.values())
