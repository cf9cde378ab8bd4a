"""Mail servers that deliver into a Spool, in one form for loads: lmtpd, the peers of bench/lib/peers.py, and an agent alone."""
import concurrent.futures, json, os, subprocess

import delivery, filters, generators, machine, mail, peers
import twinloft as tl
from process_group import ProcessGroup
from twinloft import BIN, Failed, run

LDA = "{program} -c {config} -e -f %from% -a %to% -d %user%"
BY_LDA = '''[delivery]
agent = "dovecot-lda"
[agent.dovecot-lda]
command = "{command}"
deliveries = {clients}
'''


class Target:
    """A mail server on a spool. It runs from begin() to end().

    address: for mailbench, from begin() on. protocol: "lmtp" or "smtp". tcp_address: HOST:PORT, or None. directory: of the Maildirs.
    spool_directory: all that is kept of a message is below it. configuration: texts by file name. is_running: for its user, to note.
    """
    protocol, tcp_address, configuration, is_running = "lmtp", None, {}, False
    title, version, root = "", "", ""  # root: as of peers.Peer

    def __init__(self, stage, spool, name, clients):
        self.stage, self.spool, self.name, self.clients = stage, spool, name, clients
        self.directory = self.spool_directory = spool.directory
        self.groups = []

    def begin(self, users, first):
        """Starts it. It accepts mail for these users."""
        raise NotImplementedError

    def end(self):
        """Stops it, and removes the mail."""
        raise NotImplementedError

    def load(self, name, options, size, first, users, more=()):
        """mailbench's report, of one run."""
        return delivery.load(self.stage, name, self.address, options, size, first, users, protocol=self.protocol, more=more)

    def fill(self, users, first):
        """Each user has a mailbox with one message then."""
        delivery.fill(self.address, first, users, self.protocol)
        self.drain()

    def verify(self, name):
        return delivery.verify(self.stage, name, self.directory)

    def drain(self):
        """Waits until everything accepted is delivered."""
        tl.wait_for(self.is_idle, f"{self.name} to deliver what it has queued", 600)

    def is_idle(self):
        return True

    def messages(self, users, first):
        return peers.count_messages(self.directory, users, first)

    def cpu_seconds(self):
        return sum(group.cpu_seconds() for group in self.groups)

    def pids(self):
        return [pid for group in self.groups for pid in group.pids()]


class Dovecot:
    """The Dovecot that dovecot-lda asks for its users."""

    def __init__(self, stage, spool, name, clients):
        self.group = ProcessGroup(stage, f"{name}-users")
        self._dovecot = filters.Dovecot(stage, f"{name}-users", spool.directory, lmtp=clients, starts=False)
        self.command = LDA.format(program=filters.DOVECOT_LDA, config=self._dovecot.config)
        self.configuration = {"dovecot.conf": self._dovecot.config.read_text()}

    def start(self):
        self._dovecot.start(self.group.start)

    def stop(self):
        self._dovecot.process.stop()
        self.group.kill_rest()


class Lmtpd(Target):
    """agent: maildir or dovecot-lda. settings: of [maildir], pairs of key and value."""

    def __init__(self, stage, spool, name, clients, agent="maildir", settings=()):
        super().__init__(stage, spool, name, clients)
        self.settings, self.version = settings, machine.first_line(BIN / "lmtpd", "--version")
        self.title = "lmtpd" if agent == "maildir" else f"lmtpd with {agent}"
        self.dovecot = Dovecot(stage, spool, name, clients) if agent == "dovecot-lda" else None
        self.groups = [ProcessGroup(stage, name), *([self.dovecot.group] if self.dovecot else [])]
        self.more = '[delivery]\nagent = "maildir"\n'
        if self.dovecot:
            self.more = BY_LDA.format(command=self.dovecot.command, clients=clients)
        elif settings:
            self.more += "[maildir]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings)
        self.tcp_address = f"127.0.0.1:{tl.free_port()}"
        self.config, self.address = self._write(name, f'[[listen]]\naddress = "{self.tcp_address}"\n')
        self.configuration = {"lmtpd.toml": self.config.read_text(), **(self.dovecot.configuration if self.dovecot else {})}

    def _write(self, name, more=""):
        return mail.write_config(self.stage, self.spool.volume_id, self.spool.directory, name, self.more + more)

    def begin(self, users, first):
        if self.dovecot:
            self.dovecot.start()
        if dict(self.settings).get("durability") == "intake-log" and self.spool.log_settings != self.settings:
            self._make_log()
        said = run(BIN / "lmtpd", "check-config", "--config", self.config, check=False)
        tl.expect(said.returncode == 0, f"check-config of {self.name}: {said.stdout}")
        self.process = self.groups[0].start(self.name, [BIN / "lmtpd", "serve", "--config", self.config])
        mail.wait_listening(self.process, self.address, self.config)

    def _make_log(self):
        if self.spool.log_settings is not None:
            run(BIN / "lmtpd", "replay", "--retire", "--config", self.config)
        run(BIN / "lmtpd", "replay", "--create", "--config", self.config)
        self.spool.log_settings = self.settings

    def end(self):
        if self.process.stop() != 0:
            raise Failed(f"lmtpd does not stop cleanly: {self.process.log.read_text()[-2000:]}")
        if self.dovecot:
            self.dovecot.stop()
        self.spool.empty()


class OfPeer(Target):
    """A server of bench/lib/peers.py, in a directory of its own on the spool."""

    def __init__(self, stage, spool, name, clients, server):
        super().__init__(stage, spool, name, clients)
        self.spool_directory = spool.peers / name
        self.spool_directory.mkdir()
        self.peer = peers.classes()[server](stage, name, self.spool_directory, clients)
        self.protocol, self.address, self.tcp_address = self.peer.protocol, self.peer.address, self.peer.tcp_address
        self.directory, self.configuration = self.peer.spool, self.peer.configuration
        self.root = self.peer.root
        self.title, self.version, self.groups = self.peer.title, self.peer.version, [self.peer.group]

    def begin(self, users, first):
        self.peer.start()
        self.peer.users(users, first)

    def verify(self, name):
        return self.peer.verify(self.stage.dir / f"{name}.account")

    def is_idle(self):
        return self.peer.is_idle()

    def messages(self, users, first):
        return self.peer.messages(users, first)

    def end(self):
        self.peer.stop()
        self.peer.empty()
        self.spool.settle()


class Agent(Target):
    """dovecot-lda without a mail server: mailbench starts it for each message."""
    title = "dovecot-lda alone"

    def __init__(self, stage, spool, name, clients):
        super().__init__(stage, spool, name, clients)
        self.dovecot = Dovecot(stage, spool, name, clients)
        self.groups, self.configuration, self.address = [self.dovecot.group], self.dovecot.configuration, None
        self._agents = 0.0  # CPU seconds of its processes

    def begin(self, users, first):
        self.dovecot.start()

    def load(self, name, options, size, first, users, more=()):
        found = delivery.lda(self.stage, name, self.dovecot.command, options, size, first, users, ["--value", f"home={self.directory}/%d/%n", *more])
        self._agents += found["agent_cpu_us_per_message"] * sum(found["exit_codes"].values()) / 1e6
        return found

    def fill(self, users, first):
        uid, gid = tl.uid_of("vmail")
        def one(number):
            user = f"user{number}@example.org"
            values = {"%from%": "fill@example.org", "%to%": user, "%user%": user}
            words = ["setpriv", "--reuid", str(uid), "--regid", str(gid), "--clear-groups", *(values.get(word, word) for word in self.dovecot.command.split())]
            done = subprocess.run(words, input="Subject: fill\n\nfill\n", env={"HOME": f"{self.directory}/example.org/user{number}", "PATH": os.environ["PATH"]},
                                  text=True, capture_output=True)
            tl.expect(done.returncode == 0, f"dovecot-lda for {user}: exit {done.returncode}: {done.stderr[-500:]}")
        with concurrent.futures.ThreadPoolExecutor(self.clients) as pool:
            list(pool.map(one, range(first, first + users)))

    def cpu_seconds(self):
        return super().cpu_seconds() + self._agents

    def end(self):
        self.dovecot.stop()
        self.spool.empty()


def make(stage, spool, name, clients, server, agent="maildir", settings=()):
    """server: lmtpd, agent, or a peer's name."""
    if server == "lmtpd":
        return Lmtpd(stage, spool, name, clients, agent, settings)
    return Agent(stage, spool, name, clients) if server == "agent" else OfPeer(stage, spool, name, clients, server)


def needs(server, agent="maildir"):
    """Programs that it needs, besides this project's."""
    lda = ["dovecot", filters.DOVECOT_LDA]
    if server in ("lmtpd", "agent"):
        return [*(lda if agent == "dovecot-lda" or server == "agent" else []), *(["setpriv"] if server == "agent" else [])]
    return list(peers.classes()[server].needs)


def run_generator(target, generator, options, size_bytes, users, first):
    """Messages per minute of a generator other than mailbench, and how many it sent. None for the rate: it cannot load this server.
    None for the number: it has no account."""
    if generator == "postal":
        rate = generators.run_postal(target.stage, target.tcp_address, target.protocol, options.seconds, size_bytes >> 10, options.clients, users, first,
                                     warmup=options.warmup)
        return rate, None
    return generators.run_smtp_source_for(target.stage, target.address, target.protocol, options.seconds, size_bytes, options.clients, first)
