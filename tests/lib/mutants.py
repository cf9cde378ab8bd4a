"""Runs a table of mutants: the product is broken on purpose, one mutation at a time, and a test must notice.

The sources are copied to a temporary folder. The tree itself is never touched. Each mutation replaces exact pieces of text. Then the
mutant's unit tests are built and run, or an end-to-end test with the changed programs.

Exit 0: all are caught. 1: one is missed. 2: one no longer applies or does not build: change the table.
"""
import argparse, os, pathlib, re, shutil, subprocess, sys, tempfile
from dataclasses import dataclass

import mutation

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIME_MAX = 60  # seconds of one test program; the slowest takes 15


@dataclass(frozen=True)
class Mutant:
    what: str  # the faulty behaviour
    file: str
    edits: tuple  # pairs of old and new text
    programs: tuple = ()  # that an end-to-end test needs
    e2e: tuple = ()  # that test and its words; (): the unit tests
    unit: tuple = ()  # programs

    @property
    def targets(self):
        return self.programs or self.unit

    def changed(self, name, root):
        return mutation.applied(name, self.file, (root / self.file).read_text(), self.edits)


class Copy:
    def __init__(self, directory):
        self.root, self.bin = directory / "source", directory / "source/build/release/bin"
        mutation.copy_sources(ROOT, self.root)

    def build(self, targets):
        """The error, or None."""
        with mutation.build_lock():
            r = subprocess.run(["bash", "-c", '. tests/lib/build.sh && build release "$@"', "build", *targets], cwd=self.root, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return None if r.returncode == 0 else r.stdout[-2000:]

    def noticed_by(self, mutant):
        """The first test that fails, or None."""
        if mutant.e2e:
            env = dict(os.environ, TWINLOFT_BIN=str(self.with_other_programs()))
            r = subprocess.run([ROOT / mutant.e2e[0], *mutant.e2e[1:]], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            return f"{mutant.e2e[0]}: {r.stdout.strip().splitlines()[-1]}"[:200] if r.returncode else None
        for test in mutant.unit:
            try:
                r = subprocess.run([self.bin / test, "--gtest_brief=1"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIME_MAX)
            except subprocess.TimeoutExpired:
                return f"{test}: it does not end"
            if r.returncode:
                failed = re.search(r"^\[  FAILED  \] (\S+)", r.stdout, re.M)
                return f"{test}: {failed[1] if failed else 'it is stopped'}"
        return None

    def with_other_programs(self):
        """A folder with the changed programs, and all others of the build."""
        folder, others = self.root / "bin", pathlib.Path(os.environ.get("TWINLOFT_BIN", ROOT / "build/release/bin"))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file in others.iterdir():
            own = self.bin / file.name
            (folder / file.name).symlink_to(own if own.exists() else file)
        return folder


def run(table, names):
    missed, broken = [], []
    with tempfile.TemporaryDirectory(prefix="tl-mutants-", dir=os.environ.get("TMPDIR", "/var/tmp")) as directory:
        os.chmod(directory, 0o755)
        copy = Copy(pathlib.Path(directory))
        targets = sorted({t for name in names for t in table[name].targets})
        if error := copy.build(targets):
            sys.exit(f"the sources do not build:\n{error}")
        for name in names:
            mutant, file = table[name], copy.root / table[name].file
            before = file.read_text()
            file.write_text(mutant.changed(name, copy.root))
            if error := copy.build(mutant.targets):
                broken.append(name)
                print(f"{name}: does not build\n{error}", flush=True)
            elif noticed := copy.noticed_by(mutant):
                print(f"{name}: caught by {noticed}", flush=True)
            else:
                missed.append(name)
                print(f"{name}: MISSED: {mutant.what}", flush=True)
            file.write_text(before)
    print(f"{len(names)} mutants, {len(missed)} missed, {len(broken)} do not build")
    return 2 if broken else 1 if missed else 0


def main(doc, table):
    """The command line of a table: [--list | --check] [NAME ...]. --check only checks that each mutant applies."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in table]:
        parser.error(f"no mutant {', '.join(unknown)}")
    if options.list:
        return print("\n".join(f"{name}: {m.what}" for name, m in table.items()))
    try:
        for name, mutant in table.items():
            mutant.changed(name, ROOT)
    except mutation.DoesNotApply as why:
        print(why)
        return 2
    if options.check:
        return print(f"{len(table)} mutants apply")
    return run(table, options.names or list(table))
