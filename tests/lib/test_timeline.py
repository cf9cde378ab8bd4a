"""How bench/lib/timeline.py reads an account, and finds the failover in it."""
import pathlib, sys, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/lib"))
import timeline

ACCOUNT = """#mailbench-account 1 run=r started=1000.500000
r-2 user1@example.org 00 4096 acknowledged 250 1 700000
r-1 user2@example.org 00 4096 unknown 000 1 300000
r-1 user2@example.org 00 4096 acknowledged 250 2 600000
#end lines=3
"""


class Account(unittest.TestCase):
    def test_only_acknowledgements_count_in_their_order(self):
        self.assertEqual(timeline.acknowledgements(ACCOUNT), [1001.1, 1001.2])


class Failover(unittest.TestCase):
    marks = {"address": 0.1, "promoted": 0.2, "mounted": 0.5, "listens": 0.6}

    def test_gap_and_steps(self):
        found = timeline.failover([-0.2, -0.1, 0.75, 1], self.marks)
        self.assertAlmostEqual(found["gap"], 0.85)
        self.assertEqual((found["before"], found["after"]), (2, 2))
        expected = {"address": 0.1, "promoted": 0.1, "mounted": 0.3, "listens": 0.1, "250": 0.15}
        self.assertEqual(found["steps"].keys(), expected.keys())
        for step, seconds in expected.items():
            self.assertAlmostEqual(found["steps"][step], seconds)

    def test_an_answer_in_flight_at_the_fault_is_of_the_old_primary(self):
        found = timeline.failover([-0.1, 0.01, 0.75], self.marks)
        self.assertAlmostEqual(found["gap"], 0.74)

    def test_a_late_look_for_the_server_takes_no_negative_time(self):
        found = timeline.failover([-0.1, 0.55], self.marks)
        self.assertEqual(found["steps"]["250"], 0)

    def test_without_a_250_on_both_sides_there_is_no_failover(self):
        for times in ([], [-0.1], [0.75]):
            with self.assertRaises(ValueError):
                timeline.failover(times, self.marks)


class Plot(unittest.TestCase):
    def test_a_pause_is_zero(self):
        points = timeline.per_tick([-0.15, -0.05, -0.01, 0.25, 0.35])
        self.assertEqual([round(rate) for _, rate in points], [20, 0, 0, 10])
        self.assertAlmostEqual(points[0][0], -0.05)


if __name__ == "__main__":
    unittest.main()
