"""Clients that read the mail of a power cut's load: by the files themselves, or by a Dovecot and IMAP.

Both note what they have deleted, and when the deletion was durable. A message that was deleted before a cut must not come back.
"""
import imaplib, os, pathlib, re, sys, threading, time, zlib

import dovecot_conf
import twinloft as tl
from twinloft import Failed, run

SYNC_S = 2.5  # a sync makes the names of all messages durable, which would hide faults of the log
AGE_S = 0.5  # a reader that moves a message between its name and its mark may make a duplicate: docs/decisions/intake-log.md
FIELD = re.compile(rb"^X-Mailbench-Id: *(\S+)", re.M)


class Readers:
    """deleted: message id -> the size of the account when the deletion was durable. An account that is larger at a cut was
    written after that. linked: ids of messages that have two names, or had them for a moment: Dovecot copies and moves by links.
    """

    def __init__(self, spool, account):
        self.spool, self.account = spool, account
        self.deleted, self.linked, self.counts = {}, set(), {}
        self.error, self.not_durable = None, []
        self.lock, self.ended = threading.Lock(), threading.Event()
        self.threads = []

    def start(self):
        for visit in self.visitors():
            self.threads.append(threading.Thread(target=self.until_the_end, args=(visit,), daemon=True))
        self.threads.append(threading.Thread(target=self.until_the_end, args=(self.sync, SYNC_S), daemon=True))
        for thread in self.threads:
            thread.start()

    def until_the_end(self, step, pause=0.05):
        try:
            while not self.ended.wait(pause):
                step()
        except Exception as e:
            self.error = e

    def stop(self):
        """Waits for work of each kind first: a load may be short, and a machine slow."""
        tl.wait_for(lambda: self.error or all(kind in self.counts for kind in self.KINDS), "the readers to do work of each kind", 300)
        self.ended.set()
        for thread in self.threads:
            thread.join()
        self.sync()
        if self.error:
            raise Failed(f"the readers have failed: {self.error!r}")

    def maildirs(self):
        for maildir in self.spool.glob("*/*/Maildir"):
            if all((maildir / part).is_dir() for part in ("new", "cur", "tmp")):  # else it is being made
                yield maildir

    def note(self, what, deleted=(), linked=()):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + max(1, len(deleted))
            self.deleted.update(dict.fromkeys(deleted, sys.maxsize))
            self.not_durable += deleted
            self.linked.update(linked)

    def sync(self):
        with self.lock:
            before, self.not_durable = self.not_durable, []
        run("sync", "-f", self.spool)
        size = self.account.stat().st_size
        self.deleted.update(dict.fromkeys(before, size))

    def told(self):
        return {"deleted": self.deleted, "linked": sorted(self.linked)}

    def close(self):
        pass


class FileReaders(Readers):
    """Flags, moves and deletes files as IMAP servers do: a quarter each; a quarter stays as it is."""
    KINDS = ("flagged", "moved", "deleted")

    def visitors(self):
        return [self.visit_all]

    def visit_all(self):
        for maildir in self.maildirs():
            self.visit(maildir)

    def visit(self, maildir):
        before = time.time() - AGE_S
        for file in os.scandir(maildir / "new"):
            if self.ended.is_set() or file.stat().st_ctime > before:
                continue
            choice = zlib.crc32(file.name.encode()) % 4
            if choice == 1:
                os.rename(file.path, maildir / "cur" / f"{file.name}:2,S")
                self.note("flagged")
            elif choice == 2:
                self.move(maildir, file)
            elif choice == 3:
                message = FIELD.search(pathlib.Path(file.path).read_bytes())[1].decode()
                os.unlink(file.path)
                self.note("deleted", [message])

    def move(self, maildir, file):
        folder = maildir / ".Kept"
        for part in ("cur", "new", "tmp"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        os.rename(file.path, folder / "cur" / f"{file.name}:2,")
        self.note("moved")


class ImapReaders(Readers):
    """Clients of a Dovecot over the spool. A sixth of the messages each: flagged, moved, copied, deleted; the rest stays. Now and
    then a folder gets another name.
    """
    KINDS = ("flagged", "moved", "copied", "deleted")
    CLIENTS = 3
    FOLDERS_RENAMED_EVERY = 4  # moves

    def __init__(self, spool, account, stage):
        super().__init__(spool, account)
        self.stage, self.dir, self.port = stage, stage.dir / "dovecot", tl.free_port()
        self.sessions = {}

    def visitors(self):
        self.start_dovecot()
        return [lambda number=number: self.visit_share(number) for number in range(self.CLIENTS)]

    def start_dovecot(self):
        self.dir.mkdir()
        self.dir.chmod(0o755)
        uid, gid = tl.uid_of("vmail")
        config = self.dir / "dovecot.conf"
        config.write_text(f"""{dovecot_conf.begin()}base_dir = {self.dir}/run
state_dir = {self.dir}/state
log_path = {self.dir}/log
ssl = no
{dovecot_conf.by_version("disable_plaintext_auth = no", "auth_allow_cleartext = yes")}
{dovecot_conf.protocols("imap")}{dovecot_conf.maildir()}namespace inbox {{
  inbox = yes
}}
{dovecot_conf.no_password()}{dovecot_conf.static_users(uid, gid, f"{self.spool}/%d/%n")}service imap-login {{
  inet_listener imap {{
{dovecot_conf.listener("127.0.0.1", self.port)}  }}
  inet_listener imaps {{
    port = 0
  }}
}}
""")
        self.process = dovecot_conf.start(self.stage, "dovecot", config, self.dir / "log")

    def close(self):
        for session in self.sessions.values():
            session.client.logout()
        if self.process.stop() != 0:
            raise Failed("Dovecot does not stop cleanly")

    def visit_share(self, number):
        for maildir in self.maildirs():
            user = f"{maildir.parent.name}@{maildir.parent.parent.name}"
            if zlib.crc32(user.encode()) % self.CLIENTS != number:
                continue
            if self.ended.is_set():
                return
            if user not in self.sessions:
                session = Session(self, user)
                with self.lock:
                    self.sessions[user] = session
            self.sessions[user].visit()


class Session:
    """One user's client. It acts on a message that it has seen AGE_S ago."""

    def __init__(self, readers, user):
        self.readers, self.user, self.seen, self.done, self.moves = readers, user, {}, set(), 0
        self.client = imaplib.IMAP4("127.0.0.1", readers.port, timeout=180)
        self.must(self.client.login(user, "any"))
        for folder in ("Kept", "Copied"):
            self.must(self.client.create(folder))

    @staticmethod
    def must(answer):
        if answer[0] != "OK":
            raise Failed(f"Dovecot answers {answer}")
        return answer[1]

    def uid(self, *words):
        return self.must(self.client.uid(*words))

    def visit(self):
        now = time.monotonic()
        self.must(self.client.select("INBOX"))
        uids = self.uid("SEARCH", "ALL")[0].split()
        for uid in uids:
            if now - self.seen.setdefault(uid, now) >= AGE_S and uid not in self.done:
                self.done.add(uid)
                self.act(uid.decode(), zlib.crc32(uid + self.user.encode()) % 6)
        if self.moves >= ImapReaders.FOLDERS_RENAMED_EVERY:
            self.moves = 0
            self.must(self.client.rename("Kept", f"Kept-{len(self.done)}"))
            self.must(self.client.create("Kept"))
            self.readers.note("folders renamed")

    def act(self, uid, choice):
        if choice == 0:
            self.uid("STORE", uid, "+FLAGS", r"(\Seen \Flagged)")
            self.readers.note("flagged")
        elif choice == 1:
            self.readers.note("moved", linked=[self.message(uid)])
            self.uid("MOVE", uid, "Kept")
            self.moves += 1
        elif choice == 2:
            self.readers.note("copied", linked=[self.message(uid)])
            self.uid("COPY", uid, "Copied")
        elif choice == 3:
            message = self.message(uid)
            self.uid("STORE", uid, "+FLAGS", r"(\Deleted)")
            self.must(self.client.expunge())
            self.readers.note("deleted", [message])

    def message(self, uid):
        answer = self.uid("FETCH", uid, "(BODY.PEEK[HEADER.FIELDS (X-Mailbench-Id)])")
        return FIELD.search(answer[0][1])[1].decode()
