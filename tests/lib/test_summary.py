"""How summary.py classifies ctest's results: passed, failed, skipped by the test itself, not started."""
import contextlib, io, pathlib, tempfile, unittest

import summary

SKIPPED = '<skipped message="SKIP_RETURN_CODE=77"/>'
MISSING = '<skipped message="Unable to find executable"/>'


def case(name, status, inside="", said=""):
    return f'<testcase name="{name}" time="1" status="{status}">{inside}<system-out>{said}</system-out></testcase>'


class Summary(unittest.TestCase):
    def of(self, *cases, phases="5 0 tests\n"):
        with tempfile.TemporaryDirectory() as d:
            directory = pathlib.Path(d)
            (directory / "release.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
            (directory / "phases").write_text(phases)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                code = summary.main(directory)
        return code, out.getvalue()

    def test_skipped_is_told_with_its_reason_and_is_no_failure(self):
        code, text = self.of(case("one", "run"), case("e2e_ublk", "notrun", SKIPPED, "SKIPPED: no ublk_drv here\n"))
        self.assertEqual(code, 0)
        self.assertIn("2 tests, 0 failed, 1 skipped", text)
        self.assertIn("skipped: e2e_ublk (release): no ublk_drv here", text)

    def test_what_never_started_has_failed(self):
        code, text = self.of(case("one", "run"), case("two", "notrun", MISSING, "Unable to find executable: two"))
        self.assertEqual(code, 1)
        self.assertIn("FAILED: two (release)", text)

    def test_the_exit_code_without_the_words_is_a_failure(self):
        code, text = self.of(case("one", "notrun", SKIPPED, "something else"))
        self.assertEqual(code, 1)
        self.assertIn("1 failed, 0 skipped", text)

    def test_failed(self):
        code, text = self.of(case("one", "fail", '<failure message="exit 1"/>', "why"), phases="5 1 tests\n")
        self.assertEqual(code, 1)
        self.assertIn("FAILED: one", text)
        self.assertIn("why", text)

    def test_no_tests_are_a_failure(self):
        self.assertEqual(self.of()[0], 1)


if __name__ == "__main__":
    unittest.main()
