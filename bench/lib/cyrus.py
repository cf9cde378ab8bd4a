"""Cyrus IMAP's lmtpd as a peer of lmtpd (bench/lib/peers.py).

Its package conflicts with dovecot-imapd, so Cyrus runs in an unpacked root. The spool and the directory of its files are mounted
there too. A path names the same file inside and outside.
"""
import imaplib, os, shutil

import debian_root
import twinloft as tl
from peers import DOMAIN, Imap, Peer

BINARIES = "/usr/lib/cyrus/bin"
USER, UID, GID = "cyrus", 61131, 8  # of the group mail
# Durability is as shipped. duplicatesuppression: without it, lmtpd writes no Message-ID to deliver.db, so this is the faster
# setting. The mailboxes' database is with the mail. Locks and the list of processes are lost with a crash anyway; Debian has them
# in /run.
IMAPD = """configdirectory: {base}/config
defaultpartition: default
partition-default: {base}/mail
sievedir: {base}/sieve
proc_path: {dir}/proc
mboxname_lockpath: {dir}/lock
lmtpsocket: {dir}/lmtp
idlesocket: {dir}/idle
notifysocket: {dir}/notify
cyrus_user: {user}
admins: {user}
allowplaintext: yes
sasl_pwcheck_method: alwaystrue
sasl_mech_list: PLAIN
virtdomains: userid
defaultdomain: example.org
altnamespace: no
unixhierarchysep: no
unix_group_enable: no
duplicatesuppression: no
hashimapspool: true
umask: 077
"""
CYRUS = """START {{
  recover cmd="{binaries}/ctl_cyrusdb -C {dir}/imapd.conf -r"
}}
SERVICES {{
  imap cmd="imapd -C {dir}/imapd.conf -U 1000" listen="{imap}" proto="tcp4" prefork=0 maxchild=100
  lmtpunix cmd="lmtpd -C {dir}/imapd.conf -a -U 1000000 -T 0" listen="{dir}/lmtp" prefork={clients} maxchild={most}
  lmtp cmd="lmtpd -C {dir}/imapd.conf -a -U 1000000 -T 0" listen="{tcp}" proto="tcp4" prefork=0 maxchild={most}
}}
EVENTS {{
  checkpoint cmd="{binaries}/ctl_cyrusdb -C {dir}/imapd.conf -c" period=30
}}
"""
PASSWORD = "any"


class Cyrus(Peer):
    """Cyrus IMAP's lmtpd: a process for each client waits. Every user has an INBOX before the load."""
    title, needs, maildir_format = "Cyrus IMAP lmtpd", debian_root.NEEDS, None

    def __init__(self, stage, name, spool_directory, clients):
        super().__init__(stage, name, spool_directory, clients)
        self.dir.mkdir()
        self._own(self.dir)
        self._make_root()
        self._make_store()
        self.address, self.tcp_address = self.dir / "lmtp", f"127.0.0.1:{tl.free_port()}"
        self.imap = Imap(f"127.0.0.1:{tl.free_port()}", "%u", self.dir / "password")
        self.imap.password_file.write_text(PASSWORD + "\n")
        words = {"base": self.spool_directory, "dir": self.dir, "user": USER, "binaries": BINARIES, "clients": clients, "most": 4 * clients + 20,
                 "imap": self.imap.address, "tcp": self.tcp_address}
        self.configuration = {"imapd.conf": IMAPD.format(**words), "cyrus.conf": CYRUS.format(**words)}
        for file, text in self.configuration.items():
            (self.dir / file).write_text(text)
        self.version = f"Cyrus IMAP {debian_root.version(self._root.dir, 'cyrus-imapd')}"

    @staticmethod
    def _own(path):
        path.chmod(0o755)
        os.chown(path, UID, GID)

    def _make_root(self):
        stage = self.stage.inner(f"{self.name}-root")
        self._root = debian_root.Root(stage, "cyrus", ["cyrus-imapd"])
        self._root.user(USER, UID, GID)
        for directory in (self.dir, self.spool_directory):
            stage.mount(directory, self._root.dir / directory.relative_to("/"), "--bind")
        self.root = str(self._root.dir)

    def _make_store(self):
        """Directories as Debian's cyrus-makedirs makes them."""
        for directory in ("mail", "sieve", "config", "config/db", "config/socket", "config/log", "config/msg", "config/user", "config/quota"):
            (self.spool_directory / directory).mkdir()
            self._own(self.spool_directory / directory)

    def start(self):
        command = ["cyrmaster", "-C", self.dir / "imapd.conf", "-M", self.dir / "cyrus.conf", "-p", self.dir / "pid", "-D"]
        self.process = self.group.start(self.name, self._root.inside(*command))
        self.wait_listening(self.imap.address)

    def login(self, number):
        """A connection to the mailboxes of a user. None: of the administrator."""
        host, port = self.imap.address.rsplit(":", 1)
        client = imaplib.IMAP4(host, int(port), timeout=60)
        client.login(f"user{number}@{DOMAIN}" if number else USER, PASSWORD)
        return client

    def users(self, count, first=1):
        """The administrator makes each INBOX. One that Cyrus makes itself (autocreate_quota) has a quota, even if it is without a
        limit, and each delivery would write and sync its file."""
        client = self.login(None)
        for number in range(first, first + count):
            said = client.create(f"user.user{number}")
            tl.expect(said[0] == "OK", f"Cyrus IMAP makes no INBOX for user{number}: {said}")
        client.logout()

    def messages(self, count, first=1):
        total = 0
        for number in range(first, first + count):
            client = self.login(number)
            total += int(client.select("INBOX", readonly=True)[1][0])
            client.logout()
        return total

    def empty(self):
        """The lists of mailboxes and messages are removed with the mail."""
        for directory in ("mail", "sieve", "config"):
            shutil.rmtree(self.spool_directory / directory)
        self._make_store()
