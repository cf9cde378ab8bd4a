"""The axes of charts for the documentation."""
import pathlib, sys, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/lib"))
import plot


class Ticks(unittest.TestCase):
    def test_are_round_numbers_inside(self):
        self.assertEqual(plot.ticks(0, 33.6), [0, 10, 20, 30])
        self.assertEqual(plot.ticks(0.0098, 61.3, 10), [10, 20, 30, 40, 50, 60])
        self.assertEqual(plot.ticks(-2.9, 7.98, 10), [-2, 0, 2, 4, 6])

    def test_a_chart_has_them(self):
        chart = plot.Chart("A <b>", "seconds", "MB/s")
        chart.line("sent", [(0.25, 1), (3.75, 4)])
        text = chart.svg()
        self.assertIn("A &lt;b&gt;", text)
        for tick in ("1", "2", "3"):
            self.assertIn(f'text-anchor="middle">{tick}</text>', text)
        self.assertNotIn("0.25", text)


if __name__ == "__main__":
    unittest.main()
