"""The end of tests/run: failed tests of either build, skipped tests with the reason, and the times.

summary.py DIR: `phases` has a line for each phase (seconds, exit status, name), and *.xml are ctest's
results. Exit: 0 all passed.
"""
import pathlib, sys
import xml.etree.ElementTree as xml

LINES = 30  # of a failed test's output
SLOWEST = 10


def outcome_of(case, output):
    """"passed", "skipped" or "failed".

    A test counts as skipped only if its own exit code and words say so. A test that ctest has not started,
    for example because its program is missing, has failed.
    """
    if case.get("status") == "run":
        return "passed"
    skipped = case.find("skipped")
    by_itself = skipped is not None and (skipped.get("message") or "").startswith("SKIP_RETURN_CODE=")
    return "skipped" if by_itself and output and output[-1].startswith("SKIPPED: ") else "failed"


def tests_of(file):
    """(build, name, seconds, outcome, text) of each test."""
    for case in xml.parse(file).getroot().iter("testcase"):
        failure = case.find("failure")
        said = (failure.get("message") or "failed, or its time was up") if failure is not None else case.get("status")
        output = (case.findtext("system-out") or "").rstrip().splitlines()
        outcome = outcome_of(case, output)
        text = output[-1].removeprefix("SKIPPED: ") if outcome == "skipped" else "\n".join([said, *output[-LINES:]])
        yield file.stem, case.get("name"), float(case.get("time") or 0), outcome, text


def main(directory):
    tests = [t for file in sorted(directory.glob("*.xml")) for t in tests_of(file)]
    failed = [t for t in tests if t[3] == "failed"]
    skipped = [t for t in tests if t[3] == "skipped"]
    for build, name, seconds, _, text in failed:
        print(f"\n== FAILED: {name} ({build} build), after {seconds:.0f} s: {text}")
    print("\n== Summary")
    for build, name, seconds, _, _ in sorted(tests, key=lambda t: -t[2])[:SLOWEST]:
        print(f"{seconds:6.0f} s  {name} ({build})")
    phases = [line.split(" ", 2) for line in (directory / "phases").read_text().splitlines()]
    for seconds, status, name in phases:
        print(f"{seconds:>6} s  phase: {name}{'' if status == '0' else ' FAILED'}")
    print(f"{sum(int(p[0]) for p in phases):6} s  in all; {len(tests)} tests, {len(failed)} failed, {len(skipped)} skipped")
    for build, name, _, _, why in skipped:
        print(f"skipped: {name} ({build}): {why}")
    for build, name, *_ in failed:
        print(f"FAILED: {name} ({build})")
    return 1 if failed or any(p[1] != "0" for p in phases) or not tests else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
