"""How bench/lib/matrix_rows.py reads the file of bench/matrix, and what it refuses."""
import pathlib, sys, unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/lib"))
import matrix_rows

ROW = 'group = "g"\nserver = "lmtpd"\nplace = "loop"\n'


def parsed(*rows, top="", quick=False):
    text = top + "".join(f"[[row]]\n{row}\n" for row in rows)
    return matrix_rows.parse(text, "m.toml", quick)


class Rows(unittest.TestCase):
    def names(self, *rows, **more):
        return [row.name for row in parsed(*rows, **more).rows]

    def refused(self, what, *rows, **more):
        with self.assertRaisesRegex(ValueError, what) as caught:
            parsed(*rows, **more)
        self.assertTrue(str(caught.exception).startswith("m.toml: "), caught.exception)

    def test_defaults(self):
        matrix = parsed('name = "a"\n' + ROW, top='clients = 7\nsize = "8KiB"\nseconds = 1.5\n')
        [row] = matrix.rows
        self.assertEqual((row.clients, row.size, row.agent, row.setup.file_system, row.generator), (7, "8KiB", "maildir", "ext4", "mailbench"))
        self.assertEqual((matrix.rounds, matrix.seconds, matrix.warmup, matrix.users), (3, 1.5, 2, 200))
        self.assertEqual([(g.name, g.title, g.plots) for g in matrix.groups], [("g", "g", ("bars", "latency"))])

    def test_lists(self):
        self.assertEqual(self.names('name = "a"\nclients = [1, 40]\n' + ROW), ["a-c1", "a-c40"])
        rows = parsed('name = "a"\nrates = [0.2, 0.95]\n' + ROW).rows
        self.assertEqual([(row.name, row.family, row.share) for row in rows], [("a", "a", None), ("a-r20", "a", 0.2), ("a-r95", "a", 0.95)])
        self.assertEqual(parsed('name = "a"\nrates = [0.2]\n' + ROW).groups[0].plots, ("rate",))
        self.assertEqual(parsed('name = "a"\nclients = [2]\n' + ROW).groups[0].plots, ("clients",))

    def test_quick(self):
        rows = ('name = "a"\nquick = true\n' + ROW, 'name = "b"\n' + ROW, 'name = "c"\nclients = [1, 4, 12]\nquick = [1, 12]\n' + ROW)
        self.assertEqual(self.names(*rows, quick=True), ["a", "c-c1", "c-c12"])
        self.assertEqual(parsed(*rows, quick=True, top="[quick]\nseconds = 1\n").rounds, 1)
        self.refused("quick has a number", 'name = "a"\nclients = [1]\nquick = [2]\n' + ROW)
        self.refused("no row with quick = true", 'name = "a"\n' + ROW, quick=True)

    def test_setups(self):
        rows = parsed('name = "a"\nmount = "barrier=0"\nmkfs = ["-O", "fast_commit"]\ndurability = "intake-log"\nsettings = {intake_log_size = "16MiB"}\n' + ROW,
                      'name = "b"\nmkfs = ["-O", "fast_commit"]\nmount = "barrier=0"\n' + ROW).rows
        self.assertEqual(rows[0].setup, rows[1].setup)
        self.assertEqual(rows[0].settings, (("durability", "intake-log"), ("intake_log_size", "16MiB")))
        self.assertIn("ext4 -O fast_commit on a loop device", rows[0].text)
        self.assertIn("barrier=0", rows[0].text)

    def test_refused_values(self):
        for what, words in {"unknown key sever.*Known keys: name": 'sever = "x"', "unknown file_system 'zfs'. Choose from ext4, xfs": 'file_system = "zfs"',
                            "unknown generator": 'generator = "swaks"', "unknown durability 'no'": 'durability = "no"', "size = '4 KiB'. Write a size": 'size = "4 KiB"', "clients = 0. Write a number from 1": "clients = 0",
                            "clients = 'x'. Write a number": 'clients = ["x"]', "clients = True. Write a whole number": "clients = true",
                            "rates has 3": "rates = [3]", "mkfs has 1": "mkfs = [1]", "mount = 1. Write a text": "mount = 1", "delay is of the link": "delay = 1",
                            "Make two rows": "rates = [0.5]\nclients = [1]", "durability and settings": 'agent = "dovecot-lda"\ndurability = "fsync"',
                            "sends one size only": 'generator = "postal"\nsize = "mean:70KiB"', "only mailbench": 'generator = "postal"\nrates = [0.5]'}.items():
            self.refused(r"row 1 \(a\): .*" + what, f'name = "a"\n{words}\n{ROW}')
        self.refused("no place. Add place", 'name = "a"\ngroup = "g"\nserver = "lmtpd"')
        self.refused("unknown server 'exim'", 'name = "a"\ngroup = "g"\nserver = "exim"\nplace = "raw"')
        self.refused("unknown place 'D'", 'name = "a"\ngroup = "g"\nserver = "lmtpd"\nplace = "D"')
        self.refused("runs a program", 'name = "a"\ngroup = "g"\nserver = "agent"\nplace = "raw"')
        self.refused("postfix has no agent", 'name = "a"\ngroup = "g"\nserver = "postfix"\nplace = "raw"\nagent = "maildir"')
        self.refused("disk's own file system", 'name = "a"\ngroup = "g"\nserver = "lmtpd"\nplace = "raw"\nmount = "x"')
        self.refused("not a file name", 'name = "a/b"\n' + ROW)
        self.refused("not a file name", 'name = "a=b"\n' + ROW)
        self.refused("label = 'a=b'. Write", 'name = "a"\nlabel = "a=b"\n' + ROW)

    def test_refused_files(self):
        self.refused("two rows are called a-c1", 'name = "a"\nclients = [1]\n' + ROW, 'name = "a-c1"\n' + ROW)
        self.refused("two labels are called b in group g", 'name = "a"\nlabel = "b"\n' + ROW, 'name = "b"\n' + ROW)
        self.refused("two labels are called a-c1 in group g", 'name = "a"\nclients = [1]\n' + ROW, 'name = "b"\nlabel = "a-c1"\n' + ROW)
        self.refused("two groups are called g", 'name = "a"\n' + ROW, top='[[group]]\nname = "g"\n[[group]]\nname = "g"\n')
        self.refused("group h has no row", 'name = "a"\n' + ROW, top='[[group]]\nname = "h"\n')
        self.refused("base = 'b' is none of its rows", 'name = "a"\n' + ROW, top='[[group]]\nname = "g"\nbase = "b"\n')
        self.refused("unknown plot", 'name = "a"\n' + ROW, top='[[group]]\nname = "g"\nplots = ["pie"]\n')
        self.refused("unknown key round.", 'name = "a"\n' + ROW, top="round = 3\n")
        self.refused("rounds = 0", 'name = "a"\n' + ROW, top="rounds = 0\n")
        self.refused("Correct the TOML", "name = \n")
        self.refused("no row", top="rounds = 3\n")

    def test_selected(self):
        matrix = parsed('name = "a"\nrates = [0.2, 0.5]\n' + ROW, 'name = "b"\nclients = [1, 4]\n' + ROW.replace('"g"', '"h"'))
        self.assertEqual([row.name for row in matrix_rows.select(matrix, ["a-r50"]).rows], ["a", "a-r50"])
        self.assertEqual([row.name for row in matrix_rows.select(matrix, ["b"]).rows], ["b-c1", "b-c4"])
        self.assertEqual([group.name for group in matrix_rows.select(matrix, ["b*"]).groups], ["h"])
        with self.assertRaisesRegex(ValueError, "no row matches x"):
            matrix_rows.select(matrix, ["a", "x"])

    def test_shipped(self):
        text = (ROOT / "bench/matrix/default.toml").read_text()
        whole, quick = (matrix_rows.parse(text, "default.toml", is_quick) for is_quick in (False, True))
        self.assertEqual({row.server for row in whole.rows}, set(matrix_rows.SERVERS))
        self.assertEqual({row.generator for row in whole.rows}, set(matrix_rows.GENERATORS))
        self.assertEqual({row.setup.place for row in whole.rows}, {"raw", "loop", "none", "A", "B", "C"})
        self.assertTrue({row.name for row in quick.rows} < {row.name for row in whole.rows})
        self.assertEqual({plot for group in whole.groups for plot in group.plots}, set(matrix_rows.PLOTS))

    def test_bases(self):
        matrix = parsed('name = "a"\nclients = [1, 4]\n' + ROW, 'name = "b"\nclients = [1, 4]\n' + ROW, top='[[group]]\nname = "g"\nbase = "b"\n')
        self.assertEqual([matrix_rows.base_of(matrix.groups[0], row, matrix.rows).name for row in matrix.rows], ["b-c1", "b-c4", "b-c1", "b-c4"])


if __name__ == "__main__":
    unittest.main()
