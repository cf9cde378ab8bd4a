#!/usr/bin/env python3
"""Breaks the replication core on purpose, one mutation at a time, and looks whether the simulator notices.

    mutants.py [--seeds N] [--keep DIR] [NAME ...]

The sources are copied to a temporary folder; the tree itself is never touched. Each mutation replaces one exact piece
of text, builds only repl_sim, and runs up to N seeds (default 2000). Caught means: a checker reported a violation, an
assertion stopped the program, or it hung. Exit 0: all caught that are expected to be; 1: one was not; 2: a mutation
no longer applies (the code has changed: change the table) or the sources do not build.

Where TWINLOFT_BUILD_LOCK names a file, builds hold a lock on it.
"""
import argparse
import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPIED = ["base", "cmake", "spool-repl/format", "spool-repl/ports", "spool-repl/core", "spool-repl/journal", "tests/sim"]
CORE, JOURNAL = "spool-repl/core/src/", "spool-repl/journal/src/"


@dataclass(frozen=True)
class Mutant:
    name: str
    what: str  # the promise that it breaks
    file: str
    old: str
    new: str
    expected: bool = True  # False: the simulator is known not to see it; `what` says who does


MUTANTS = [
    Mutant("ack-before-peer-durable", "C: a flush is answered when the peer has it in memory",
           CORE + "primary.cc", "if (required(p.config.id)) end = std::min(end, p.durable_end);",
           "if (required(p.config.id)) end = std::min(end, p.received_end);"),
    Mutant("ack-before-local-durable", "a flush is answered before the primary's own journal write is done",
           CORE + "primary.cc", "RecordNo end = v_.log.durable_end();\n  for (const Peer& p : peers_) {\n    if",
           "RecordNo end = v_.log.end();\n  for (const Peer& p : peers_) {\n    if"),
    Mutant("flush-forgets-the-open-batch", "a flush waits for sealed records only",
           CORE + "primary_io.cc", "open_.empty() ? open_serial_ - 1 : open_serial_;", "open_serial_ - 1;"),
    Mutant("durable-with-holes", "a later journal write that ends first makes earlier ones durable",
           CORE + "log.cc", "while (durable_end_ < end() && at(durable_end_).durable) ++durable_end_;",
           "durable_end_ = std::max(durable_end_, no + 1);"),
    Mutant("checkpoint-of-uncommitted", "the secondary writes home what is durable there, committed or not",
           CORE + "secondary.cc", "RecordNo end = std::min(upto, v_.log.durable_end());",
           "RecordNo end = v_.log.durable_end();"),
    Mutant("tail-before-data-sync", "the tail moves while the data area's cache holds the blocks",
           CORE + "checkpointer.cc", "if (items_.empty() && zeros_.empty()) {\n    move_tail();",
           "if (true) {\n    move_tail();"),
    Mutant("reuse-before-superblock", "journal space is reused before the new tail is durable",
           CORE + "checkpointer.cc", "v_.write_superblock(Volume::for_tail);",
           "v_.log.drop_before(new_first_);\n  v_.write_superblock(Volume::for_tail);"),
    Mutant("secondary-acks-early", "the secondary calls durable what its journal does not have yet",
           CORE + "secondary.cc", "v_.log.mark_before(v_.log.durable_end())};", "v_.log.last_mark()};"),
    Mutant("commit-hash-unchecked", "a commit point of another history is applied; the primary never sends one, so "
           "tests/unit/spool-repl/core (SecondaryRefusesACommitPoint*) sees this",
           CORE + "secondary.cc", "if (primary_commit_.lsn.v > 0 && (within_a_record || other_hash))",
           "if (false && (within_a_record || other_hash))", expected=False),
    Mutant("begin-without-cut", "records of the primary follow a divergent tail",
           CORE + "secondary.cc", "if (*common == v_.log.end() && cut_ == Cut::none) return connected();",
           "if (cut_ == Cut::none) return connected();"),
    Mutant("cut-not-awaited", "records are taken before the superblock of the cut is durable",
           CORE + "secondary.cc", "cut_ = Cut::waiting_for_superblock;\n  v_.write_superblock(Volume::for_cut);",
           "v_.write_superblock(Volume::for_cut);\n  cut_ = Cut::none;\n  if (begun_) connected();"),
    Mutant("cut-under-journal-writes", "a tail is cut while its journal writes are under way",
           CORE + "secondary.cc", "if (cut_ != Cut::waiting_for_journal || v_.journal_in_flight > 0) return;",
           "if (cut_ != Cut::waiting_for_journal) return;"),
    Mutant("cut-leaves-claims", "frames of a cut tail still prove what was durable",
           CORE + "secondary.cc", "v_.sb.cut_incarnation = v_.sb.incarnation;", ""),
    Mutant("epoch-unchecked", "records of another epoch are taken; messages of a closed connection never arrive in "
           "TCP, so tests/unit/spool-repl/core (SecondaryRefusesDamagedRecords) sees this",
           CORE + "secondary.cc", 'if (m.epoch != epoch_ || !begun_)\n    return refuse("it sent a record of another epoch");',
           'if (!begun_)\n    return refuse("it sent a record of another epoch");', expected=False),
    Mutant("tail-ignores-peers", "the primary drops records that its peer has not got",
           CORE + "primary.cc", "if (required(p.config.id) || p.connection == ConnectionState::Connected || room) limit = "
           "std::min(limit, p.durable_end);", "(void)room;"),
    Mutant("newer-version-forgotten", "a checkpoint drops a newer version of a block with the one it wrote",
           CORE + "block_index.cc", "if (it == data_.end() || it->second.serial != serial) return;",
           "(void)serial;\n  if (it == data_.end()) return;"),
    Mutant("frame-claims-too-much", "a frame says that records under way are durable",
           CORE + "volume.cc", "FrameHeader frame{pos, log.mark_before(log.durable_end()).lsn,",
           "FrameHeader frame{pos, log.last_mark().lsn,"),
    Mutant("replay-of-uncommitted", "recovery writes home what is not committed",
           JOURNAL + "recovery.cc", "if (r.body.mark().lsn <= scan_.commit) claim(r);", "claim(r);"),
    Mutant("replay-oldest", "recovery lets an older version of a block win",
           JOURNAL + "recovery.cc", "std::reverse(work_.begin(), work_.end());", ""),
    Mutant("member-added-before-durable", "a member is recorded before it holds what was acknowledged without it",
           CORE + "membership.cc", "if (p.durable_end >= p.add_barrier) return start_change", "return start_change"),
    Mutant("lost-answer-is-success", "no answer of the arbiter is taken for its consent",
           CORE + "membership.cc", "if (answer.outcome == Outcome::granted ||", "if (answer.outcome != Outcome::refused ||"),
    Mutant("promotion-by-lost-answer", "the same for a promotion",
           CORE + "promotion.cc", "bool ours = answer.outcome == Outcome::granted ||",
           "bool ours = answer.outcome != Outcome::refused ||"),
    Mutant("alone-before-it-is-durable", "acknowledged without a member before the epoch without it is durable",
           CORE + "membership.cc", "ReplicaSet set = in_sync_ | before_;", "ReplicaSet set = in_sync_;"),
    Mutant("removed-without-arbiter", "a member is removed and the arbiter is not asked",
           CORE + "membership.cc", "if (v_.config.arbiter == Arbiter::manual) apply_change();", "if (true) apply_change();"),
    Mutant("promoted-outside-the-set", "a replica that was left behind is promoted",
           CORE + "promotion.cc", "if (!(set & set_of(v_.sb.replica)))", "if (false)"),
    Mutant("promoted-without-claim", "a replica is promoted although a member is not reachable",
           CORE + "promotion.cc", "if (!away.empty())", "if (false)"),
    Mutant("old-epoch-accepted", "a secondary follows an older primary in place of a newer one",
           CORE + "secondary.cc", "if (m.epoch.counter <= epoch_.counter)", "if (false)"),
    Mutant("demoted-too-early", "a primary steps down before everything is on the other replicas",
           CORE + "membership.cc", "return demoting_ && settled() && epoch_logged_ && !change_ && v_.log.committed_end() == v_.log.end();",
           "return demoting_;"),
    Mutant("resync-leaves-out-pending", "a block that is only pending is left out of a resync",
           CORE + "resync.cc", "if (found.kind != BlockIndex::Kind::absent && Lsn{found.serial} > peer->sync->base) continue;",
           "if (newest(lba).kind != BlockIndex::Kind::absent) continue;"),
    Mutant("resync-leaves-out-older", "a block is left out although its record does not come on this connection",
           CORE + "resync.cc", "&& Lsn{found.serial} > peer->sync->base) continue;", ") continue;"),
    Mutant("resync-before-commit", "a resync sends content that is older than what the target has written home",
           CORE + "resync.cc", "|| v_.log.committed_end() < s.not_before) return;", ") return;"),
    Mutant("torn-tail-comes-back", "recovery does not cut the log where it found its end",
           JOURNAL + "recovery.cc", "sb.cut_incarnation = sb.incarnation;", ""),
    Mutant("resync-serial-again", "resync data of two connections has the same serials",
           CORE + "resync_target.cc", "std::uint64_t{1} << 63 | ++sync_serial_;", "std::uint64_t{1} << 63 | m.seq;"),
    Mutant("resync-of-old-blocks", "a block that was written home while it was read is sent as it was",
           CORE + "resync.cc", "if (read.home_changes != v_.home_changes) return read_chunk", "if (false) return read_chunk"),
    Mutant("resync-without-inconsistent", "the target does not note that its data area means nothing",
           CORE + "resync_target.cc", "sb.inconsistent_source = reset_->epoch;", ""),
    Mutant("resync-over-in-early", "the target is consistent before everything is in its data area",
           CORE + "resync_target.cc", "if (!sync_until_ || !sync_flying_.empty() || clearing_ || v_.commit_lsn() < *sync_until_) return;",
           "if (!sync_until_ || clearing_) return;"),
    Mutant("resync-counts-as-member", "a replica that is being filled is recorded as in sync",
           CORE + "membership.cc", "if (p.connection != ConnectionState::Connected || p.filling()) continue;",
           "if (p.connection != ConnectionState::Connected) continue;"),
    Mutant("home-before-begun-round", "resync data counts as durable with a round that does not hold it",
           CORE + "resync_target.cc", "sync_flying_.push_back({m.seq, checkpointer_.rounds_begun() + 1});",
           "sync_flying_.push_back({m.seq, checkpointer_.rounds_begun()});"),
    Mutant("torn-payload-accepted", "recovery does not check the payload",
           JOURNAL + "ring_reader.cc", "if (!verify_payload(*body, blocks)) return std::nullopt;",
           "(void)verify_payload(*body, blocks);"),
]

TOP = """cmake_minimum_required(VERSION 3.25)
project(mutants LANGUAGES C CXX)
set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
include(cmake/Twinloft.cmake)
enable_testing()
foreach(folder base spool-repl/format spool-repl/ports spool-repl/core spool-repl/journal tests/sim)
  add_subdirectory(${folder})
endforeach()
"""


@contextlib.contextmanager
def build_lock():
    path = os.environ.get("TWINLOFT_BUILD_LOCK")
    if not path:
        yield
        return
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Tree:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.build_folder = self.folder / "build"
        for part in COPIED:
            shutil.copytree(ROOT / part, self.folder / part, dirs_exist_ok=True)
        (self.folder / "CMakeLists.txt").write_text(TOP)
        self.env = dict(os.environ, CCACHE_BASEDIR=str(self.folder), CCACHE_NOHASHDIR="1")
        self.run(["cmake", "-S", str(self.folder), "-B", str(self.build_folder), "-G", "Ninja",
                  "-DCMAKE_BUILD_TYPE=Release"])

    def run(self, command):
        done = subprocess.run(command, env=self.env, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"mutants: {' '.join(command)} fails:\n{done.stdout[-4000:]}{done.stderr[-2000:]}")

    def build(self):
        with build_lock():
            self.run(["ninja", "-C", str(self.build_folder), "repl_sim"])

    @contextlib.contextmanager
    def mutated(self, mutant):
        path = self.folder / mutant.file
        text = path.read_text()
        if text.count(mutant.old) != 1:
            print(f"{mutant.name}: its text occurs {text.count(mutant.old)} times in {mutant.file}", file=sys.stderr)
            sys.exit(2)
        path.write_text(text.replace(mutant.old, mutant.new))
        try:
            yield
        finally:
            path.write_text(text)

    def sim(self, first, seeds, seconds):
        """What repl_sim has found in these seeds: None, or a line that says it."""
        try:
            done = subprocess.run([str(self.build_folder / "bin/repl_sim"), "--first", str(first), "--seeds", str(seeds)],
                                  capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return f"hangs within seeds {first} to {first + seeds - 1}"
        if done.returncode == 0:
            return None
        if found := re.search(r"^seed \d+: .*", done.stdout, re.M):
            return found.group(0)[:160]
        if seeds > 1:  # an assertion does not say in which seed
            for seed in range(first, first + seeds):
                if found := self.sim(seed, 1, seconds):
                    return found
        reason = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        return f"seed {first}: {reason[:140]}"

    def first_violation(self, seeds, step=20):
        for first in range(1, seeds + 1, step):
            if found := self.sim(first, min(step, seeds + 1 - first), 120):
                return found
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--keep", help="work in this folder and leave it")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    chosen = [m for m in MUTANTS if not args.names or m.name in args.names]
    if unknown := set(args.names) - {m.name for m in MUTANTS}:
        parser.error("no such mutant: " + ", ".join(sorted(unknown)))
    missed = []
    with contextlib.ExitStack() as stack:
        folder = args.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="twinloft-mutants-"))
        tree = Tree(folder)
        tree.build()
        if found := tree.first_violation(min(args.seeds, 100)):
            sys.exit(f"mutants: without any mutation: {found}")
        for m in chosen:
            with tree.mutated(m):
                tree.build()
                found = tree.first_violation(args.seeds)
            print(f"{m.name:30} {'caught' if found else 'NOT CAUGHT' if m.expected else 'not caught, as known'}", end="")
            print(f"  {found}" if found else f"  {m.what}", flush=True)
            if not found and m.expected:
                missed.append(m.name)
    print(f"{len(chosen)} mutants, {len(missed)} not caught that should be")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
