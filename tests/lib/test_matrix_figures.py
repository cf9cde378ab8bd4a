"""The report of bench/matrix from canned runs: medians, ratios of the same round, marks, Markdown and the page."""
import html.parser, json, pathlib, sys, tempfile, unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/lib"), str(ROOT / "bench/lib")]
import matrix_figures, matrix_page, matrix_plots, matrix_report, quiet

QUIET = {"waited_s": 0.5, "idle_before": True, "probe_ms": 1.0, "speed_us": 10.0, "foreign": 0.01, "steal": 0.0, "idle": 0.2}

USUAL = {"probe_ms": 1.0, "speed_us": 10.0}


def run(rate, noise=QUIET, **more):
    return {"per_minute": rate, "p50_ms": rate / 10, "p99_ms": rate / 5, "flushes": 1.5, "found": 10, "cpu_us": {"server": 200.0}, "noise": noise, **more}


def row(name, group="g", base="b", **more):
    return {"name": name, "family": name, "group": group, "server": "lmtpd", "generator": "mailbench", "clients": 4, "share": None, "label": "", "text": f"the row {name}", "base": base, **more}


def group(name="g", **more):
    return {"name": name, "title": "A <group>", "text": "", "base": "b", "plots": ["bars"], "trace": False, **more}


MATRIX = {"settings": {"command": "bench/matrix/run", "begun": "2026-11-29 12:00:00", "minutes": 1.5, "rounds": 2, "seconds": 1, "warmup": 0, "users": 200, "size": "1GiB",
                       "journal": "1GiB", "arena": "1GiB"},
          "machine": {"kernel": "Linux"}, "versions": {"lmtpd": "lmtpd 1"}, "groups": [group()], "rows": [row("a"), row("b"), row("c"), row("d"), row("e")],
          "traces": [{"cells": ["lmtpd", "1", "0", "1", "2.0", "`new/`"], "calls": {"fsync of <new>": 1.0}}], "configurations": {"lmtpd": {"lmtpd.toml": "a = <b>\n"}}}
NOISY = QUIET | {"foreign": 0.3}
RUNS = {"a": {1: run(100), 2: run(900)}, "b": {1: run(50), 2: run(300, NOISY)}, "c": {1: run(10, NOISY), 2: run(20, NOISY | {"idle_before": False})},
        "d": {1: {"failed": "a message is lost\nmore"}, 2: run(600)}, "e": {1: {"skipped": "this machine has no cyrmaster"}, 2: {"skipped": "this machine has no cyrmaster"}}}


class Page(html.parser.HTMLParser):
    """The heads and cells of tables, and the addresses that the page would load."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.loaded, self.cells, self._in = [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append((tag, found))
        self.loaded += [found[key] for key in ("src", "href", "xlink:href") if key in found and not found[key].startswith("#")]
        if tag in ("td", "th"):
            self._in = [tag, found.get("data-value"), ""]
            self.cells.append(self._in)

    def handle_data(self, data):
        if self._in:
            self._in[2] += data

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._in = None


class Figures(unittest.TestCase):
    def setUp(self):
        self.figures = matrix_figures.Figures(MATRIX, RUNS)

    def test_ratios_of_the_same_round(self):
        r = self.figures.results["a"]
        self.assertEqual(r["per_minute"], {"median": 500, "min": 100, "max": 900, "runs": 2})
        self.assertEqual(r["ratio"], {"median": 2.5, "min": 2, "max": 3, "runs": 2})
        self.assertEqual(self.figures.results["d"]["ratio"]["runs"], 1)  # its first round has failed
        self.assertEqual(self.figures.results["d"]["ratio"]["median"], 2)

    def test_problems(self):
        self.assertEqual(self.figures.never_quiet(), ["c"])
        self.assertEqual(self.figures.failed(), ["d, round 1: a message is lost\nmore"])
        lines = matrix_report.problems(self.figures)
        self.assertEqual(lines, ["Failed: d, round 1: a message is lost", "No run was quiet, so do not rely on these rows: c",
                                 "Skipped: e: this machine has no cyrmaster"])

    def test_median_round(self):
        self.assertEqual([self.figures.median_round(name) for name in "abde"], [1, 1, 2, None])

    def test_table(self):
        table = self.figures.table(MATRIX["groups"][0])
        self.assertEqual(table.heads, ["row", "messages/min", "to b", "p50, ms", "p99, ms", "flushes/message", "CPU, µs/message: server", "quiet runs"])
        texts = {cells[0].text: [cell.text for cell in cells[1:3] + cells[-1:]] for cells in table.rows}
        self.assertEqual(texts["a"], ["500 (100 to 900)", "2.50 (2.00 to 3.00)", "2 of 2"])
        self.assertEqual(texts["b"][2], "1 of 2 (!)")
        self.assertEqual(texts["d"], ["600", "2.00", "1 of 1, 1 failed (!)"])
        self.assertEqual(texts["e"], ["", "", "skipped"])

    def test_markdown(self):
        text = matrix_report.markdown(self.figures, {"g": [("Bars", "g-bars.svg")]})
        for part in ("| a | 500 (100 to 900) | 2.50 (2.00 to 3.00) |", "![Bars](g-bars.svg)", "- c, round 2: the machine was not idle before it; others took 30% of the processors",
                     "- a: the row a", "| lmtpd | 1 | 0 | 1 | 2.0 | `new/` |", "a = <b>"):
            self.assertIn(part, text)

    def test_page(self):
        svg = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><rect/></svg>\n'
        text = matrix_page.page(self.figures, {"g": [("Bars", "g-bars.svg")]}, {"g-bars.svg": svg}, ["Failed: <x>"], matrix_report.facts(self.figures))
        page = Page(text)
        self.assertEqual(page.loaded, ["data:,"])  # the icon, which a browser would look for otherwise
        self.assertNotIn("://", text)
        self.assertIn("Failed: &lt;x&gt;", text)
        self.assertIn("A &lt;group&gt;", text)
        self.assertEqual(sum(tag == "svg" for tag, _ in page.tags), 1)
        cells = {cell[2]: cell[1] for cell in page.cells if cell[1] is not None}
        self.assertEqual(cells["500(100 to 900)"], "500.0")
        self.assertEqual(cells["2.50(2.00 to 3.00)"], "2.5")
        self.assertTrue(any(tag == "td" and found.get("class") == "marked" for tag, found in page.tags))

    def test_empty(self):
        """A run that was ended early has a report of what is there."""
        figures = matrix_figures.Figures(MATRIX, {})
        self.assertEqual(figures.table(MATRIX["groups"][0]).rows[0][-1].text, "not run")
        self.assertIn("0 acknowledged", matrix_report.markdown(figures, {"g": []}))


class Charts(unittest.TestCase):
    """The lines of a chart have the label of a row, and bars tell the rows of one label apart."""

    def labels(self, kind):
        rows = [row("a", label="A & B"), row("b"), row("c-c1", family="c", label="C"), row("c-c8", family="c", label="C"), row("r-r50", family="r", label="R", share=0.5)]
        figures = matrix_figures.Figures(MATRIX | {"rows": rows}, {r["name"]: {1: run(100)} for r in rows})
        with tempfile.TemporaryDirectory() as directory:
            for r in rows:
                (pathlib.Path(directory) / f"{r['name']}-1.json").write_text(json.dumps({"settings": {}, "seconds": [1]}))
            return [[label for label, _ in part] for part in matrix_plots.parts_of(figures, group(), kind, pathlib.Path(directory))]

    def test_bars(self):
        self.assertEqual(self.labels("bars"), [["A & B", "b", "c-c1", "c-c8", "r-r50"]])

    def test_lines(self):
        self.assertEqual(self.labels("clients"), [["A & B", "b", "C", "C", "R"]])
        self.assertEqual(self.labels("rate"), [["R"]])
        self.assertEqual(self.labels("seconds"), [["A & B", "b", "c-c1", "c-c8", "r-r50"]])


class Marks(unittest.TestCase):
    def test_usual(self):
        self.assertEqual(quiet.usual([QUIET, QUIET | {"probe_ms": 3.0}, QUIET | {"probe_ms": 5.0, "speed_us": 40.0}]), USUAL | {"probe_ms": 3.0})
        self.assertEqual(quiet.usual([]), {"probe_ms": 0.0, "speed_us": 0.0})
        self.assertEqual(quiet.usual([{"probe_ms": 2.0}]), {"probe_ms": 2.0, "speed_us": 0.0})

    def test_limits(self):
        without_speed = {key: value for key, value in QUIET.items() if key != "speed_us"}
        for noise in (QUIET, QUIET | {"foreign": 0.05, "steal": 0.02, "probe_ms": 1.9, "speed_us": 11.4}, without_speed):
            self.assertEqual(quiet.marks(noise, USUAL), [])
        for noise, words in (({"idle_before": False}, "not idle"), ({"foreign": 0.06}, "others took 6%"), ({"steal": 0.03}, "hypervisor took 3%"),
                             ({"probe_ms": 2.1}, "2.10 ms before it, usually 1.00 ms"), ({"speed_us": 11.6}, "11.6 µs for a message")):
            [mark] = quiet.marks(QUIET | noise, USUAL)
            self.assertIn(words, mark)

    def test_stat(self):
        before = quiet.parse_stat("cpu  100 20 30 400 50 6 7 8 0 0\ncpu0 1 1 1 1\n")
        self.assertEqual([round(before[key] * quiet._TICKS) for key in ("busy", "interrupts", "idle", "steal", "all")], [150, 13, 450, 8, 621])
        after = quiet.parse_stat("cpu  100 20 30 495 50 11 7 8 0 0\n")
        self.assertAlmostEqual(quiet.idle_share(before, after), 0.95)

    def test_foreign(self):
        """Interrupts are part of the known time of processes, unless the kernel counts them apart."""
        before = quiet.parse_stat("cpu  0 0 0 0 0 0 0 0 0 0\n")
        after = quiet.parse_stat("cpu  300 0 400 200 0 20 80 0 0 0\n")  # 10 s
        known = 7.8 * 100 / quiet._TICKS
        self.assertAlmostEqual(quiet.foreign_share(before, after, known, True), 0.02)
        self.assertEqual(quiet.foreign_share(before, after, known, False), 0.0)
        self.assertAlmostEqual(quiet.foreign_share(before, after, known - 100 / quiet._TICKS, True), 0.12)
        self.assertEqual(quiet.foreign_share(before, before, 0.0, True), 0.0)
        for text, wanted in (("A=y\nCONFIG_IRQ_TIME_ACCOUNTING=y\n", False), ("# CONFIG_IRQ_TIME_ACCOUNTING is not set\n", True), ("", True)):
            self.assertEqual(quiet.processes_have_interrupts(text), wanted)


if __name__ == "__main__":
    unittest.main()
