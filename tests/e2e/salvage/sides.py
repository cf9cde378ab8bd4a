"""A replicated spool whose two sides split: a file system, lmtpd and mail on each side, and the content of
their Maildirs.
"""
import collections, email, os, smtplib

import mail
import twinloft as tl
from twinloft import expect, run, wait_for

DOMAIN = "example.org"
USERS = ("ann", "bob")


class FileSystem:
    def __init__(self, name, size, mkfs, check, mount_options=()):
        self.name, self.size, self.mkfs, self.check, self.mount_options = name, size, mkfs, check, mount_options


EXT4 = FileSystem("ext4", "96MiB", ("mkfs.ext4", "-q", "-b", "4096"), ("e2fsck", "-fn"))
# 300 MiB is the minimum of mkfs.xfs. Both sides are mounted on one machine here, with the same UUID.
XFS = FileSystem("xfs", "304MiB", ("mkfs.xfs", "-q"), ("xfs_repair", "-n"), ("-o", "nouuid"))


class Sides:
    def __init__(self, stage, fs):
        self.stage, self.fs = stage, fs
        self.v = tl.Volume(stage, size=fs.size, journal_size="64MiB", arena="96MiB",
                           extra='peer_timeout = "1s"\non_peer_loss = "continue"\n')
        self.lmtpd, self.socket, self.started = {}, {}, 0
        stage.on_close(self.v.kill_all)
        self.v.create()

    def spool(self, node):
        return self.stage.dir / f"spool-{node}"

    def maildir(self, node, user):
        return self.spool(node) / DOMAIN / user / "Maildir"

    # ---- one side --------------------------------------------------------------------------------------------------

    def make_spool(self, node):
        run(*self.fs.mkfs, self.v.device(node))
        self.mount(node)
        spool = self.spool(node)
        (spool / ".twinloft-spool").write_text(self.v.uuid + "\n")
        os.chown(spool, *tl.uid_of("vmail"))
        run("sync", "-f", spool)

    def mount(self, node):
        self.stage.mount(self.v.device(node), self.spool(node), *self.fs.mount_options)

    def start_lmtpd(self, node):
        self.started += 1
        self.lmtpd[node], self.socket[node] = mail.start_lmtpd(self.stage, self.v.uuid, self.spool(node),
                                                               f"lmtpd-{node}{self.started}", self.v.ns[node])

    def stop_mail(self, node):
        expect(self.lmtpd.pop(node).stop() == 0, f"lmtpd on {node} does not stop cleanly")

    def deliver(self, node, user, *subjects):
        """As an MTA does: a message has the same content at every attempt."""
        with smtplib.LMTP(str(self.socket[node])) as lmtp:
            for subject in subjects:
                text = (f"From: Sender <sender@{DOMAIN}>\r\nTo: {user}@{DOMAIN}\r\nSubject: {subject}\r\n"
                        f"Message-ID: <{subject}@{DOMAIN}>\r\nDate: Mon, 5 Jan 2026 10:00:00 +0000\r\n\r\n" + f"{subject} " * 300 + "\r\n")
                lmtp.sendmail(f"sender@{DOMAIN}", [f"{user}@{DOMAIN}"], text)

    def delete(self, node, user, *subjects):
        for path, subject in self.files(node, user):
            if subject in subjects:
                path.unlink()
        run("sync", "-f", self.spool(node))

    def files(self, node, user):
        return [(path, email.message_from_bytes(path.read_bytes())["Subject"])
                for box in ("new", "cur") for path in sorted((self.maildir(node, user) / box).iterdir())]

    def mail_of(self, node):
        """The number of copies of each message, for each user."""
        return {user: collections.Counter(subject for _, subject in self.files(node, user)) for user in USERS}

    # ---- both ------------------------------------------------------------------------------------------------------

    def in_sync(self, node):
        return wait_for(lambda: (s := self.v.status(node)) and s["role"] == "Primary" and s["in_sync"] == [1, 2] and
                        s["peers"][0]["disk"] == "UpToDate" and s, f"both to be in sync, {node} primary")

    def at_rest(self, node):
        """All writes are in the data areas of both replicas: nothing is in flight."""
        run("sync", "-f", self.spool(node))
        def both():
            states = [self.v.status(n) for n in ("a", "b")]
            places = {s["lsn"][which] for s in states if s for which in ("tail", "last")}
            return all(states) and len(places) == 1
        wait_for(both, "every write to be in the data areas of both sides")

    def cut_link(self):
        """Cuts the link silently."""
        run("ip", "-n", self.v.ns["a"], "link", "set", "tl0", "down")

    def join_link(self):
        run("ip", "-n", self.v.ns["a"], "link", "set", "tl0", "up")

    def see_split_brain(self):
        for node in ("a", "b"):
            wait_for(lambda: (s := self.v.status(node)) and s["peers"][0]["split_brain"], f"{node} to see the split brain")
            shown = lambda: self.v.ctl(node, "status", check=False).stdout
            # Not while the next connection is being tried.
            wait_for(lambda: all(words in shown() for words in ("SPLIT BRAIN", "StandAlone")), f"status of {node} to show the split brain")
            expect("split-brain" in self.kinds(node), f"{node} has no event of the split brain")

    def kinds(self, node):
        return [line.split()[2 if line.split()[2] != "!" else 3] for line in self.v.ctl(node, "events").stdout.splitlines()]
