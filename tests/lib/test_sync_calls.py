"""How bench/lib/sync_calls.py reads what strace shows."""
import pathlib, sys, unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/lib"))
import sync_calls

DIRECTORIES = {"/s/mail/new", "/s/mail/tmp", "/s/queue/incoming"}


def read(*lines, directories=None):
    """The messages of a trace below /s."""
    reader = sync_calls.Reader("/s", dict(directories or {}))
    with mock.patch.object(sync_calls, "is_directory", DIRECTORIES.__contains__):
        return reader.read(sync_calls.events(lines)), reader


def reply(text, pid=7):
    return f'{pid} write(5<socket:[9]>, "{text}\\r\\n", 20) = 20'


BEGIN = (reply("250 2.1.0 ok"), reply("250 2.1.5 ok"), reply("354 go"))
END = reply("250 2.0.0 ok")


class Events(unittest.TestCase):
    def test_interrupted(self):
        """A write begins before the other thread's sync returns."""
        found = list(sync_calls.events(['7 fsync(3</s/a, b> <unfinished ...>', '8 write(5<socket:[9]>, "250 ok, \\"yes\\"\\r\\n", 10 <unfinished ...>', "8 <... write resumed>) = 10",
                                        "7 <... fsync resumed>)                   = 0", "9 fsync(3</s/c>) = -1 EIO (Input/output error)", "9 +++ exited with 0 +++"]))
        self.assertEqual([(e.pid, e.call) for e in found], [("8", "send"), ("8", "write"), ("7", "fsync")])
        self.assertEqual(found[2].words, ["3</s/a, b>"])

    def test_paths(self):
        self.assertEqual(sync_calls.path_of("3</s/new/#12>(deleted)"), "/s/new/#12")
        self.assertEqual(sync_calls.path_of("AT_FDCWD</s>"), "/s")
        self.assertIsNone(sync_calls.path_of("5<socket:[9]>"))


class Messages(unittest.TestCase):
    def test_all_synced(self):
        [m], reader = read(*BEGIN, '7 openat(AT_FDCWD</>, "/s/mail/tmp/a", O_WRONLY|O_CREAT|O_EXCL, 0600) = 3</s/mail/tmp/a>', '7 write(3</s/mail/tmp/a>, "x", 1) = 1',
                           "7 fsync(3</s/mail/tmp/a>) = 0", '7 rename("/s/mail/tmp/a", "/s/mail/new/a") = 0', "7 fdatasync(4</s/mail/new>) = 0", END)
        self.assertEqual(dict(m.before), {("fsync", "file"): 1, ("fdatasync", "directory"): 1})
        self.assertEqual((m.after, m.unsynced, m.never_synced), ({}, set(), set()))
        self.assertEqual(reader.general("/s/mail/tmp/1795916701.M296581P17662.vm"), "mail/tmp/NAME")

    def test_nothing_synced(self):
        [m], _ = read(*BEGIN, '7 pwrite64(3</s/mail/tmp/a>, "x", 1, 0) = 1', '7 link("/s/mail/tmp/a", "/s/mail/new/a") = 0', '7 unlink("/s/mail/tmp/a") = 0', END)
        self.assertEqual(m.unsynced, {"data of mail/tmp/N", "names in mail/new/"})

    def test_synced_late(self):
        """What is synced only after the 250, and a name that is never synced."""
        [m], _ = read(*BEGIN, '7 write(3</s/mail/new/ab>, "x", 1) = 1', '7 link("/s/mail/tmp/ab", "/s/mail/new/abc") = 0', END, "7 fsync(3</s/mail/new/ab>) = 0")
        self.assertEqual((dict(m.before), dict(m.after)), ({}, {("fsync", "file"): 1}))
        self.assertEqual(m.unsynced, {"data of mail/new/ab", "names in mail/new/"})
        self.assertEqual(m.never_synced, {"names in mail/new/, older than a later sync"})

    def test_other_name(self):
        """A file is written by one name, and synced by another."""
        [m], _ = read(*BEGIN, '7 write(3</s/stage>, "x", 1) = 1', '7 link("/s/stage", "/s/mail/new/ab") = 0', "7 fsync(4</s/mail/new/ab>) = 0", END)
        self.assertEqual(m.unsynced, {"names in mail/new/, older than a later sync"})

    def test_data_first(self):
        """sync_file_range does not flush the device. The sync of the directory does."""
        lines = [*BEGIN, '7 write(3</s/mail/new/#12>(deleted), "x", 1) = 1', "7 sync_file_range(3</s/mail/new/#12>(deleted), 0, 0, SYNC_FILE_RANGE_WRITE) = 0",
                 '7 linkat(3</s/mail/new/#12>(deleted), "", 4</s/mail/new>, "ab", AT_EMPTY_PATH) = 0']
        [m], _ = read(*lines, END)
        self.assertEqual(m.unsynced, {"data of mail/new/#N", "names in mail/new/"})
        [m], _ = read(*lines, "7 fsync(4</s/mail/new>) = 0", END)
        self.assertEqual(m.unsynced, set())

    def test_relative_names(self):
        """Postfix works in its queue directory."""
        [m], _ = read(reply("250 2.1.0 ok"), '8 openat(AT_FDCWD</s/queue>, "incoming/1.8", O_RDWR|O_CREAT|O_EXCL, 0600) = 3</s/queue/incoming/1.8>',
                      '8 rename("incoming/1.8", "incoming/ABCDEF0") = 0', reply("250 2.1.5 ok"), reply("354 go"), '8 write(3</s/queue/incoming/ABCDEF0>, "x", 1) = 1',
                      "8 fsync(3</s/queue/incoming/ABCDEF0>) = 0", END, directories={"8": "/s/queue"})
        self.assertEqual(m.unsynced, {"names in queue/incoming/, older than a later sync"})

    def test_several(self):
        messages, _ = read(*BEGIN, END, "7 sync() = 0", *BEGIN, "7 syncfs(3</s>) = 0", '7 write(3</t/log>, "x", 1) = 1', "7 fsync(3</t/log>) = 0", END)
        self.assertEqual([dict(m.before) for m in messages], [{}, {("syncfs", "file system"): 1}])
        self.assertEqual([dict(m.after) for m in messages], [{("sync", "file system"): 1}, {}])
        trace = sync_calls.Trace(messages, None, {})
        self.assertEqual((trace.mean("file system"), trace.mean("file system", "after"), trace.all_before), (0.5, 0.5, False))


if __name__ == "__main__":
    unittest.main()
