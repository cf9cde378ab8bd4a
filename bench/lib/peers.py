"""Other mail servers as peers of lmtpd in a benchmark of delivery. Each is private: its own configuration, sockets and processes.

PEERS has the classes by name. bench/lib/cyrus.py has Cyrus IMAP.
"""
import json, os, pathlib, shutil

import dovecot_conf, filters, mail, postfix
import twinloft as tl
from process_group import ProcessGroup

DOMAIN = "example.org"
WAKER = "waker"  # waker1 is a mailbox for messages that only start processes


def count_messages(spool, users, first=1):
    """The number of messages in the Maildirs of the users `first` and so on."""
    mailboxes = (pathlib.Path(spool) / DOMAIN / f"user{n}/Maildir" for n in range(first, first + users))
    return sum(len(os.listdir(box / part)) for box in mailboxes for part in ("new", "cur") if (box / part).exists())


class Peer:
    """A mail server that accepts mail for user%u@example.org, from 4 KiB to 2 MiB.

    stage: its processes end with it. spool_directory: on a block device of its own; all that the server keeps of a message is
    there. clients: so many connections at once.

    address, tcp_address: where it listens, for mailbench; tcp_address is always HOST:PORT. protocol: of both, "lmtp" or "smtp".
    spool: the directory for `mailbench verify`. maildir_format: as for `mailbench verify`. None: the store has another format,
    and all mailboxes are read over `imap`, an Imap.
    root: the directory that the server has as its root, if it is not the machine's.
    configuration: the texts of its configuration, by file name. version: in words.
    """
    protocol, maildir_format, imap = "lmtp", "%d/%n/Maildir", None
    title, needs, root = "", (), ""

    def __init__(self, stage, name, spool_directory, clients):
        self.stage, self.name, self.clients = stage, name, clients
        self.spool_directory, self.dir = pathlib.Path(spool_directory), stage.dir / name
        self.spool = self.spool_directory / "mail"
        stage.dir.chmod(0o755)
        self.group = ProcessGroup(stage, name)
        self.process = None

    def start(self):
        raise NotImplementedError

    def stop(self):
        self.process.stop()
        self.group.kill_rest()

    def users(self, count, first=1):
        """Mail for the users `first` and so on is accepted from now on. Call it after start()."""

    def queue_directories(self):
        """They hold no file once everything is delivered."""
        return []

    def messages(self, count, first=1):
        """The number of messages of these users."""
        return count_messages(self.spool, count, first)

    def verify_words(self):
        """Where `mailbench verify` finds the mail."""
        if self.imap:
            return ["--imap", self.imap.address, "--imap-user", self.imap.user, "--imap-password-file", self.imap.password_file]
        queues = [word for directory in self.queue_directories() for word in ("--queue", directory)]
        return ["--spool", self.spool, "--maildir-format", self.maildir_format, *(["--wait", "2min", *queues] if queues else [])]

    def verify(self, account):
        """Every message that the account has as acknowledged is there, whole, and once. Returns mailbench's report."""
        report = self.stage.dir / f"{self.name}.verify.json"
        r = tl.run(tl.BIN / "mailbench", "verify", "--account", account, *self.verify_words(), "--json", report, check=False, timeout=600)
        tl.expect(r.returncode == 0, f"mailbench verify ({self.name}): exit {r.returncode}\n{r.stdout}")
        return json.loads(report.read_text())

    def is_idle(self):
        return not any(files for directory in self.queue_directories() for _, _, files in os.walk(directory))

    def empty(self):
        """Removes all mail, also its users' mailboxes. It is stopped. Call users() after the next start()."""
        for domain in self.spool.iterdir():
            shutil.rmtree(domain)

    def cpu_seconds(self):
        """User and system time of all its processes, also of those that have ended."""
        return self.group.cpu_seconds()

    def pids(self):
        return self.group.pids()

    def make_spool(self):
        self.spool.mkdir()
        os.chown(self.spool, *tl.uid_of("vmail"))

    def wait_listening(self, *more):
        for address in (self.address, self.tcp_address, *more):
            tl.wait_for(lambda: tl.accepts(address) or self.process.check_alive(), f"{self.name} to listen on {address}")


class Imap:
    """All mailboxes over IMAP, with the words of mailbench's --imap, --imap-user and --imap-password-file. It is in clear text."""

    def __init__(self, address, user, password_file):
        self.address, self.user, self.password_file = address, user, password_file


class Lmtpd(Peer):
    """lmtpd with its built-in agent as shipped, to compare with."""
    title, needs = "lmtpd", ("setpriv",)

    def __init__(self, stage, name, spool_directory, clients):
        super().__init__(stage, name, spool_directory, clients)
        self.make_spool()
        self.tcp_address = f"127.0.0.1:{tl.free_port()}"
        self.config, self.address = mail.write_config(stage, None, self.spool, name, log_level="info")
        with open(self.config, "a") as file:
            file.write(f'[[listen]]\naddress = "{self.tcp_address}"\n')
        self.configuration = {self.config.name: self.config.read_text()}
        self.version = f"lmtpd {tl.run(tl.BIN / 'lmtpd', '--version').stdout.split()[-1]}"

    def start(self):
        self.process = self.group.start(self.name, [tl.BIN / "lmtpd", "serve", "--config", self.config])
        self.wait_listening()


class Dovecot(Peer):
    """Dovecot's LMTP: a process for each client waits. mail_fsync = always also syncs what can be rebuilt: log and cache of the index."""
    title, needs, fsync = "Dovecot LMTP, `mail_fsync = always`", ("dovecot",), "always"

    def __init__(self, stage, name, spool_directory, clients):
        super().__init__(stage, name, spool_directory, clients)
        self.make_spool()
        port = tl.free_port()
        self.tcp_address = f"127.0.0.1:{port}"
        tcp = f"service lmtp {{\n  inet_listener lmtp {{\n{dovecot_conf.listener('127.0.0.1', port)}  }}\n}}\n"
        # The index of all folders is for clients that ask for many of them. Each event for the statistics is a write to a socket.
        faster = "mailbox_list_index = no\n" + dovecot_conf.by_version("stats_writer_socket_path =\n", "")
        self._dovecot = filters.Dovecot(stage, name, self.spool, lmtp=clients, fsync=self.fsync, more=faster + tcp, starts=False)
        self.address = self._dovecot.lmtp
        self.configuration = {"dovecot.conf": self._dovecot.config.read_text()}
        self.version = f"Dovecot {tl.run('dovecot', '--version').stdout.split()[0]}"

    def start(self):
        self._dovecot.start(self.group.start)
        self.process = self._dovecot.process
        self.wait_listening()


class DovecotOptimized(Dovecot):
    """Dovecot's default, which is as durable for mail: the message, its directory entry and the list of UIDs are synced."""
    title, fsync = "Dovecot LMTP, `mail_fsync = optimized`", "optimized"


# In order: what makes it private, what it accepts, and what makes it fast.
POSTFIX_MAIN = """compatibility_level = 3.6
queue_directory = {queue}
data_directory = {dir}/data
maillog_file = {dir}/log
maillog_file_prefixes = {dir}
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = mx.example.net
mydestination =
alias_maps =
smtp_dns_support_level = disabled
smtpd_peername_lookup = no

virtual_mailbox_domains = example.org
virtual_mailbox_maps = texthash:{dir}/etc/mailboxes
virtual_mailbox_base = {spool}
virtual_uid_maps = static:{uid}
virtual_gid_maps = static:{gid}
virtual_mailbox_limit = 0
message_size_limit = 10485760
smtpd_relay_restrictions = reject_unauth_destination
smtpd_recipient_restrictions =
local_header_rewrite_clients =
notify_classes =

default_process_limit = {processes}
max_use = 1000000
max_idle = 1h
in_flow_delay = 0
smtpd_client_connection_count_limit = 0
smtpd_client_connection_rate_limit = 0
smtpd_client_message_rate_limit = 0
smtpd_client_recipient_rate_limit = 0
smtpd_error_sleep_time = 0
virtual_destination_concurrency_limit = {deliveries}
virtual_initial_destination_concurrency = {deliveries}
smtputf8_enable = no
"""
POSTFIX_MASTER = f"""127.0.0.1:{{port}} inet n - n - - smtpd
virtual   unix - n n - - virtual
{postfix.SERVICES}"""


class Postfix(Peer):
    """Postfix: mail comes by SMTP, and virtual(8) writes Maildirs.

    Its 250 is for the synced file in the queue; delivery comes later. So the queue is on the spool's device.
    """
    title, needs, protocol = "Postfix virtual(8)", ("postfix",), "smtp"

    def __init__(self, stage, name, spool_directory, clients):
        super().__init__(stage, name, spool_directory, clients)
        self.make_spool()
        self.queue, self.etc = self.spool_directory / "queue", self.dir / "etc"
        for directory in (self.queue, self.etc, self.dir / "data"):
            directory.mkdir(parents=True)
        self.dir.chmod(0o755)
        shutil.chown(self.dir / "data", "postfix")
        port, (uid, gid) = tl.free_port(), tl.uid_of("vmail")
        self.address = self.tcp_address = f"127.0.0.1:{port}"
        main = POSTFIX_MAIN.format(queue=self.queue, dir=self.dir, spool=self.spool, uid=uid, gid=gid, processes=4 * clients + 100,
                                   deliveries=max(20, 2 * clients))
        self.configuration = {"main.cf": main, "master.cf": POSTFIX_MASTER.format(port=port)}
        for file, text in self.configuration.items():
            (self.etc / file).write_text(text)
        (self.etc / "mailboxes").touch()
        self.numbers = set()  # of the users
        tl.run("postfix", "-c", self.etc, "check")  # makes the directories of the queue
        stage.tell(self.dir / "log")
        self.version = f"Postfix {tl.run('postconf', '-d', '-h', 'mail_version').stdout.strip()}"

    def start(self):
        master = pathlib.Path(tl.run("postconf", "-c", self.etc, "-h", "daemon_directory").stdout.strip()) / "master"
        self.process = self.group.start(self.name, [master, "-c", self.etc, "-s"])
        self.wait_listening()

    def users(self, count, first=1):
        self.numbers |= set(range(first, first + count))
        names = [f"{WAKER}1", *(f"user{n}" for n in sorted(self.numbers))]
        (self.etc / "mailboxes").write_text("".join(f"{name}@{DOMAIN} {DOMAIN}/{name}/Maildir/\n" for name in names))
        # Each process reads the file at its start. After a reload, older processes would still refuse these users for a moment.
        self.stop()
        self.start()
        self._wake()

    def _wake(self):
        """Starts the processes. Each starts at its first use, and the first ones wait two seconds for postlogd."""
        tl.run(tl.BIN / "mailbench", "load", "--protocol", "smtp", "--to", self.address, "--clients", self.clients, "--messages", 4 * self.clients, "--user-format",
               f"{WAKER}%u@{DOMAIN}", "--connect-timeout", "120s", "--no-account", "--quiet")
        tl.wait_for(self.is_idle, f"{self.name} to deliver its first messages")

    def queue_directories(self):
        return [self.queue / name for name in ("maildrop", "incoming", "active", "deferred")]


def classes():
    """The peers by name."""
    import cyrus  # it is made of this module's parts
    return {"lmtpd": Lmtpd, "dovecot": Dovecot, "dovecot-optimized": DovecotOptimized, "postfix": Postfix, "cyrus": cyrus.Cyrus}
