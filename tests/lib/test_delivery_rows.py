"""How bench/lib/delivery_rows.py reads the names of rows."""
import argparse, json, pathlib, sys, tempfile, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/lib"))
import delivery_rows, figures


class Rows(unittest.TestCase):
    def test_names(self):
        for name, wanted in {"raw": ("raw", "raw", None, ""), "loop-fsync-file": ("loop", "loop", None, "fsync-file"),
                             "C-log": ("C", "C", None, "log"), "C+1ms-log": ("C+1ms", "C", 1.0, "log"), "A+0ms": ("A+0ms", "A", 0.0, ""),
                             "C+0.5ms-dovecot": ("C+0.5ms", "C", 0.5, "dovecot")}.items():
            row = delivery_rows.parse(name)
            self.assertEqual((row.place, row.protocol, row.delay, row.way), wanted)
            self.assertIn(delivery_rows.WAYS[row.way], row.text)

    def test_links(self):
        self.assertTrue(delivery_rows.parse("C+1ms-log").secured)
        row = delivery_rows.parse("C+clear-log")
        self.assertEqual((row.place, row.protocol, row.delay, row.secured, row.way), ("C+clear", "C", None, False, "log"))
        self.assertIn("clear text", row.text)

    def test_refused(self):
        for name in ("", "D", "C-", "C-fast", "raw+1ms", "raw+clear", "C+ms", "Clog", "C-log-log"):
            with self.assertRaisesRegex(ValueError, "PLACE-WAY"):
                delivery_rows.parse(name)

    def test_settings(self):
        row = delivery_rows.parse("C+1ms-log:intake_log_size=16MiB:intake_log_checkpoint=1s")
        self.assertEqual((row.place, row.way), ("C+1ms", "log"))
        self.assertEqual(row.pairs, (("durability", "intake-log"), ("intake_log_size", "16MiB"), ("intake_log_checkpoint", "1s")))
        self.assertEqual(delivery_rows.parse("C").pairs, ())
        for name in ("C-lda:size=1", "C-log:", "C-log:size", "C-log:size=", 'C-log:size="1"'):
            with self.assertRaises(ValueError):
                delivery_rows.parse(name)

    def test_ratios(self):
        found = {"a": [{"per_minute": 10}, {"per_minute": 9}], "b": [{"per_minute": 5}, {"per_minute": 3}]}
        self.assertEqual(delivery_rows.ratios(found, "a", "b"), [2, 3])
        self.assertEqual(delivery_rows.ratios(found, "a", "c"), [])

    def test_flushes(self):
        self.assertEqual(delivery_rows.flushes_of("".join(f" {n:8}" for n in range(1, 18)) + "\n"), 16)

    def test_written(self):
        """Rows are among the settings in the file of --json, and a key of two parts is one text."""
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / "figures.json"
            figures.write_json(argparse.Namespace(json=str(file), rows=[delivery_rows.parse("C+1ms-log")]),
                               {"C+1ms-log": [{"per_minute": 5}], (8, "idle"): []})
            written = json.loads(file.read_text())
        self.assertEqual(written["settings"]["rows"][0]["name"], "C+1ms-log")
        self.assertEqual(written["found"], {"C+1ms-log": [{"per_minute": 5}], "8, idle": []})
        self.assertIn("kernel", written["machine"])


if __name__ == "__main__":
    unittest.main()
