#!/usr/bin/env python3
"""Breaks the replication core on purpose, one mutation at a time, and checks whether the simulator notices.

    mutants.py [--seeds N] [--unit] [--jobs N] [--keep DIR] [--list | --check] [NAME ...]

The sources are copied to a temporary folder. The tree itself is never touched. Each mutation replaces exact pieces of
text. The changed files are compiled and linked with the rest, and up to N seeds (default 2000) run. A mutation is
caught if a checker reports a violation, an assertion stops the program, or the program does not end. A mutation that
the simulator misses goes to the unit tests of core and journal, and the output then names the failed test.

Exit 0: all mutations are caught, by the simulator or by a unit test. 1: a mutation is not caught. 2: a mutation no
longer applies or builds (the code has changed: change the table), or the sources do not build.

--unit omits the simulator. --list prints the table. --check only checks that every mutation still applies, and has
its row in docs/simulator.md. If TWINLOFT_BUILD_LOCK names a file, builds hold a lock on that file.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import queue
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import mutation  # noqa: E402

COPIED = ["base", "cmake", "spool-repl/format", "spool-repl/ports", "spool-repl/core", "spool-repl/journal", "tests/sim",
          "tests/unit/spool-repl/core", "tests/unit/spool-repl/journal", "tests/unit/spool-repl/support"]
UNIT_TESTS = ["repl_core_test", "repl_journal_test"]
MEMORY_MAX = 8 << 30  # bytes of a mutant
CORE, JOURNAL = "spool-repl/core/src/", "spool-repl/journal/src/"


@dataclass(frozen=True)
class Mutant:
    name: str
    what: str  # the faulty behaviour
    file: str
    old: str
    new: str
    more: tuple = ()  # further (file, old, new)
    harmless: bool = False  # another rule has the same effect (docs/simulator.md), so a miss is not a failure

    def edits(self):
        """Pairs of old and new text by file, in order."""
        by_file = {}
        for file, old, new in ((self.file, self.old, self.new), *self.more):
            by_file.setdefault(file, []).append((old, new))
        return by_file


MUTANTS = [
    Mutant("ack-before-peer-durable", "protocol C: a flush is answered once the peer has it in memory",
           CORE + "term.cc", "if (required(p)) end = std::min(end, p.durable_end);",
           "if (required(p)) end = std::min(end, p.received_end());"),
    Mutant("ack-before-local-durable", "a flush is answered before the primary's own journal write is done",
           CORE + "term.cc", "RecordNo end = v_.log.durable_end();\n  for (const Peer& p : peers_) {\n    if",
           "RecordNo end = v_.log.end();\n  for (const Peer& p : peers_) {\n    if"),
    Mutant("flush-forgets-the-open-batch", "a flush waits for sealed records only",
           CORE + "client_io.cc", "open_.empty() ? open_serial_ - 1 : open_serial_;", "open_serial_ - 1;"),
    Mutant("durable-with-holes", "a later journal write that ends first makes earlier writes count as durable",
           CORE + "log.cc", "while (durable_end_ < std::min(end(), held_) && at(durable_end_).durable) ++durable_end_;",
           "durable_end_ = std::max(durable_end_, no + 1);"),
    Mutant("checkpoint-of-uncommitted", "the secondary writes durable records home, even if they are not committed",
           CORE + "secondary.cc", "RecordNo end = std::min(upto, v_.log.durable_end());",
           "RecordNo end = v_.log.durable_end();"),
    Mutant("reuse-before-superblock", "journal space is reused before the new tail is durable",
           CORE + "checkpointer.cc", "v_.write_superblock(Volume::for_tail);",
           "v_.log.drop_before(new_first_);\n  v_.write_superblock(Volume::for_tail);"),
    Mutant("secondary-acks-early", "the secondary reports records as durable that are not yet in its journal",
           CORE + "secondary.cc", "v_.log.mark_before(v_.log.durable_end())};", "v_.log.last_mark()};"),
    Mutant("commit-waits-forever", "the commit point waits for a message to the peer, and never goes alone",
           CORE + "companion.h", "if (!urgent && !has_company && now < *due_) return false;", "if (!urgent && !has_company) return false;"),
    Mutant("company-without-a-clock", "nothing wakes the core when a message has waited long enough for company",
           CORE + "companion.h", "std::optional<Instant> next_tick() const { return due_; }",
           "std::optional<Instant> next_tick() const { return std::nullopt; }"),
    Mutant("cut-for-an-epoch-in-flight",
           "a peer is cut for an epoch whose record is not durable at its primary",
           CORE + "peer_match.cc", "  if (!term_.in_flight() && !waits_for_line(peer)) return false;\n",
           "  if (!waits_for_line(peer)) return false;\n"),
    Mutant("forgotten-tail-is-split",
           "a tail whose epoch the primary has forgotten is judged as if force had been used",
           CORE + "history.cc", "  if (forgotten_and_kept(here, there, here.newest, common)) return std::nullopt;\n",
           ""),
    Mutant("empty-beside-a-stranger", "an empty replica is promoted although a replica outside the set has content",
           CORE + "promotion.cc", "if (l.state && l.state->last.lsn.v > 0)",
           "if (l.state && l.state->last.lsn.v > 0 && (newest_known().in_sync & set_of(l.config.id)))"),
    Mutant("cut-for-somebody-else",
           "the epoch that a log was cut for is forgotten when another primary sends records",
           CORE + "secondary.cc", "bool other_cut = v_.ends", "bool other_cut = false && v_.ends"),
    Mutant("begin-without-cut", "records of the primary follow a divergent tail",
 
                    CORE + "secondary.cc", "if (*v_.log.find(m.from) == v_.log.end() && rejoin_.steady() && !lost && !other_cut) return connected();",
           "if (rejoin_.steady() || (lost && other_cut)) return connected();"),
    Mutant("cut-not-awaited", "records are accepted before the superblock of the cut is durable",
           CORE + "rejoin.cc", "c.step = Stores{};\n  v_.write_superblock(Volume::for_cut);",
           "v_.write_superblock(Volume::for_cut);\n  c.step = Erases{};\n  erase();"),
    Mutant("cut-under-journal-writes", "a tail is cut while its journal writes are in flight",
           CORE + "rejoin.cc", "if (v_.journal_in_flight > 0 || v_.failed) return;",
           "if (v_.failed) return;"),
    Mutant("archive-of-what-failed", "a tail is archived together with a record whose write failed",
           CORE + "rejoin.cc", "if (v_.journal_in_flight > 0 || v_.failed) return;",
           "if (v_.journal_in_flight > 0) return;"),
    Mutant("cut-leaves-claims", "frames of a cut tail still prove what was durable",
           CORE + "rejoin.cc", "v_.sb.cut_incarnation = v_.sb.incarnation;", ""),
    Mutant("tail-ignores-peers", "the primary drops records that its peer does not have yet",
           CORE + "peer_links.cc", "      limit = std::min(limit, p.durable_end);", "      (void)room;"),
    Mutant("newer-version-forgotten", "a checkpoint drops a newer version of a block together with the version that it wrote",
           CORE + "block_index.cc", "if (it == data_.end() || it->second.serial != serial) return;",
           "(void)serial;\n  if (it == data_.end()) return;"),
    Mutant("frame-claims-too-much", "a frame reports records in flight as durable",
           CORE + "volume.cc", "FrameHeader frame{pos, log.mark_before(log.durable_end()).lsn,",
           "FrameHeader frame{pos, log.last_mark().lsn,"),
    Mutant("replay-of-uncommitted", "recovery writes uncommitted records home",
           JOURNAL + "newest_runs.cc", "if (log_.records[i - 1].body.mark().lsn <= log_.commit) claim(i - 1);", "claim(i - 1);"),
    Mutant("replay-oldest", "recovery keeps the older version of a block",
           JOURNAL + "newest_runs.cc", "std::reverse(runs_.begin(), runs_.end());", ""),
    Mutant("given-up-log-is-trusted", "after a log with unwritten blocks is discarded, equal content counts as durable",
           CORE + "rejoin.cc", "if (v_.home_end < v_.log.committed_end()) v_.distrusts_disk = true;", ""),
    Mutant("reading-again-unchecked", "recovery does not check what it reads a second time",
           JOURNAL + "replay.cc", "!= body.block_crc[r.payload + b])", "!= body.block_crc[r.payload + b] && false)"),
    Mutant("loaded-zeros-forgotten", "a start loads written blocks, but not trimmed blocks",
           CORE + "volume.cc", "[&](const Extent& e, Lsn lsn) { committed.put_zeros(e.lba, e.blocks, lsn.v); });", "[](const Extent&, Lsn) {});"),
    Mutant("neither-home-nor-loaded", "of the blocks that a start does not load, it omits the newest",
           JOURNAL + "replay.cc", "home.put(all.first(first))", "home.put(all.first(first - std::min<std::size_t>(first, 1)))"),
    Mutant("leaves-the-arena-early", "a block leaves memory while its write home is in flight",
           CORE + "checkpointer.cc", "written_ = writes_.front().end;", "written_ = next_item_;"),
    Mutant("zeros-without-bound", "zero extents that wait to go home take unlimited memory",
           CORE + "client_write.cc", "if (is_zeroing(r) && pending_.zero_extents()", "if (false && pending_.zero_extents()"),
    Mutant("zeros-before-older-blocks", "recovery writes a zero extent home before the older blocks within it",
           JOURNAL + "replay.cc", "if (r.zeros || read_blocks_ + gap_blocks_max", "if (read_blocks_ + gap_blocks_max"),
    Mutant("member-added-before-durable", "a member is recorded before it has the writes that were acknowledged without it",
           CORE + "membership.cc", "if (p.durable_end >= std::max(p.add_barrier, term_.end())) return start_change", "return start_change"),
    Mutant("joins-an-epoch-unknown", "a member is recorded before it has the record of the epoch that it joins",
           CORE + "membership.cc", "std::max(p.add_barrier, term_.end())", "p.add_barrier"),
    Mutant("creeping-is-progress", "a peer that makes one record durable from time to time is never closed, however large its backlog is",
           CORE + "peer_links.cc", "if (s.due_end != 0 && p.durable_end < s.due_end) return;",
           "if (s.due_end == p.durable_end + 1) return;",
           more=((CORE + "peer_links.cc", "s.due_end = std::max(s.sent_end, p.durable_end + 1);", "s.due_end = p.durable_end + 1;"),)),
    Mutant("journal-kept-without-room", "the journal is kept for an absent replica although the largest record has no room in it",
           CORE + "peer_links.cc", "v_.log.ring_bytes() / 2 && v_.log.place(record_blocks_max);", "v_.log.ring_bytes() / 2;"),
    Mutant("follower-fills-the-journal", "the journal is kept for each connected peer, however far behind it is",
           CORE + "peer_links.cc", "backlog(p) > v_.log.ring_bytes() / 2", "backlog(p) > v_.log.ring_bytes()"),
    Mutant("slow-follower-is-waited-for", "only slow members are closed, not slow followers",
           CORE + "membership.cc", "if (!(members & set_of(p.id())) || p.filling()) return true;", "if (!(members & set_of(p.id())) || p.filling()) return false;"),
    Mutant("closed-below-min-in-sync", "a slow member is closed although fewer than min_in_sync would be left",
           CORE + "membership.cc", "return enough && may_leave_out(p);", "return may_leave_out(p);"),
    Mutant("new-follower-is-behind", "a follower that has just connected counts as behind until its first acknowledgement",
           CORE + "peer_links.cc", "RecordNo has = std::max(p.durable_end, p.streaming()->begun_at);", "RecordNo has = p.durable_end;"),
    Mutant("target-may-stand-still", "a resync target without progress is never closed",
           CORE + "peer_links.cc", "if (p.filling() || p.config.buffer) return watch_filling(p, s);",
           "if (p.filling() || p.config.buffer) { s.due_end = 0; return; }"),
    Mutant("lost-answer-is-success", "a lost answer of the arbiter counts as consent",
           CORE + "membership.cc", "if (answer.outcome == Outcome::granted ||", "if (answer.outcome != Outcome::refused ||"),
    Mutant("promotion-by-lost-answer", "a lost answer of the arbiter counts as consent to a promotion",
           CORE + "promotion.cc", "bool ours = answer.outcome == Outcome::granted ||",
           "bool ours = answer.outcome != Outcome::refused ||"),
    Mutant("alone-before-it-is-durable", "writes are acknowledged without a member before the epoch without it is durable",
           CORE + "term.cc", "(counted() & set_of(peer.id()))", "(in_sync_ & set_of(peer.id()))"),
    Mutant("removed-without-arbiter", "a member is removed without asking the arbiter",
           CORE + "membership.cc", "if (v_.config.arbiter == Arbiter::manual) apply_change();", "if (true) apply_change();"),
    Mutant("promoted-without-claim", "a replica is promoted although a member cannot be reached",
           CORE + "promotion.cc", "if (!away.empty())", "if (false)"),
    Mutant("old-epoch-accepted", "a secondary follows an older primary instead of a newer one, and cuts off the newer epoch's records. Several checks on both sides prevent this; all are removed",
           CORE + "secondary.cc", "if (m.epoch.counter <= epoch_.counter)", "if (false)",
           more=((CORE + "secondary.cc", "if (m.epoch.counter < seen.counter || (m.epoch.counter == seen.counter && m.epoch.id != "
                  "seen.id))\n    return fmt::format(\"primary {} is in epoch", "if (false)\n    return fmt::format(\"primary {} is in epoch"),
                 (CORE + "history.cc", "if (common < here.commit) return SplitBrain",
                  "if (true) return std::nullopt;\n  if (common < here.commit) return SplitBrain"),
                 (CORE + "peer_match.cc", "if (newer || (m.last_epoch.counter == ours.counter && m.last_epoch.id != ours.id)) return unknown_epoch(peer, m.last_epoch.counter);",
                  "(void)newer;"),
                 (CORE + "history.cc", "if (common >= commit) return verdict::Follow{};", "if (true) return verdict::Follow{};"))),
    Mutant("demoted-too-early", "a primary steps down before all records are on the other replicas",
           CORE + "primary.cc", "return membership_.demoting() && io_.settled() && membership_.settled() && v_.log.committed_end() == v_.log.end();",
           "return membership_.demoting();"),
    Mutant("resync-before-commit", "a resync sends content that is older than what the target has written home",
           CORE + "resync_source.cc", "|| v_.log.committed_end() < s.not_before) return;", ") return;"),
    Mutant("torn-tail-comes-back", "recovery does not cut the log at the end that it found",
           JOURNAL + "recovery.cc", "sb.cut_incarnation = sb.incarnation;", "", harmless=True),
    Mutant("resync-serial-again", "the resync data of two connections has the same serials",
           CORE + "resync_target.cc", "std::uint64_t{1} << 63 | ++serial_;", "std::uint64_t{1} << 63 | (flow() ? flow()->last : 0);", harmless=True),
    Mutant("resync-without-inconsistent", "the target does not record that its data area is inconsistent",
           CORE + "disk_condition.cc", "[](const auto& s) { return DiskState(s); }", "[](const auto&) { return DiskState(); }"),
    Mutant("resync-counts-as-member", "a resync target is recorded as in sync",
           CORE + "membership.cc", "if (!p.is_streaming() || p.filling()) continue;",
           "if (!p.is_streaming()) continue;"),
    Mutant("torn-payload-accepted", "recovery does not check the payload",
           JOURNAL + "ring_reader.cc", "if (!verify_payload(*body, blocks)) return std::nullopt;",
           "(void)verify_payload(*body, blocks);"),
    Mutant("commit-of-another-epoch", "the primary's commit LSN is applied to records that are not yet matched with the primary",
           CORE + "secondary.cc", "auto* f = std::get_if<Following>(&link_);\n  if (!f || !rejoin_.steady()) return;\n  LogMark commit = f->in.commit;",
           "if (!incoming()) return;\n  LogMark commit = incoming()->commit;",
           more=((CORE + "secondary.cc", "if (commit.lsn.v > 0 && (within_a_record || other_hash))", "if (false && (within_a_record || other_hash))"),)),
    Mutant("tail-before-data-sync", "the tail moves while blocks are only in the cache of the data area",
           CORE + "checkpointer.cc", "if (items_.empty() && zeros_.empty() && !sync_this_round_) {", "if (true) {"),
    Mutant("tail-by-the-commit-point", "the tail follows the primary's commit LSN instead of what is home here",
           CORE + "secondary.cc", "v_.commit_upto(end, [](const LogRecord&) {});\n  note_covered(end, commit.lsn);",
           "v_.commit_upto(end, [](const LogRecord&) {});\n  v_.home_end = v_.log.committed_end();\n  note_covered(end, commit.lsn);"),
    Mutant("promoted-outside-the-set", "a replica outside the in-sync set is promoted",
           CORE + "promotion.cc", "if (!(set & set_of(self)))\n    return fmt::format(\"replica {} is not in the arbiter's in-sync set",
           "if (false)\n    return fmt::format(\"replica {} is not in the arbiter's in-sync set"),
    Mutant("resync-beside-the-stream", "a resync sends the content of the data area, even if the stream has sent newer content",
           CORE + "resync_source.cc", "auto found = v_.committed.find(Lba{read.chunk.word * 64 + bit});\n  if", "BlockIndex::Found found;\n  if"),
    Mutant("resync-leaves-out-older", "a block is omitted although its record does not come on this connection",
           CORE + "resync_source.cc", "&& Lsn{found.serial} > peer.resync()->base) return nullptr;", "&& peer.resync()) return nullptr;"),
    Mutant("resync-of-old-blocks", "a block that was written home during its read is sent with its old content",
           CORE + "resync_source.cc", "bool stale = read.home_changes != v_.home_changes;", "bool stale = false;"),
    Mutant("bit-cleared-early", "marks are cleared although the replica lacks records that were committed later",
           CORE + "dirty.cc", "if (!clean) return;", ""),
    Mutant("parting-keeps-the-old", "marks from after a split are dropped together with the older marks",
           CORE + "dirty.cc", "if (!fresh_.empty()) set_bitmap_bits(fresh_, lba, blocks);", ""),
    Mutant("acks-of-a-resync-count", "acknowledgements during a resync clear all marks once the connection is lost",
           CORE + "peer_links.cc", "l && !p.filling()) {", "l && !p.resync() && p.refill <= p.durable_end) {"),
    Mutant("covered-while-filled", "marks are cleared by a replica's state from before its resync",
           CORE + "resync_source.cc", "v_.find_link(peer.id())->covered_end = 0;", "", harmless=True),
    Mutant("made-anew-is-promoted", "a recreated replica is promoted with a part of the records that it had acknowledged",
           CORE + "secondary.cc", "v_.disk.note_refill(m.holds, epoch_, of == m.epochs.rend() ? epoch_ : of->epoch);", "(void)of;"),
    Mutant("empty-over-a-member", "an empty replica is promoted although a member has records whose commit it does not know",
           CORE + "promotion.cc", "if (v_.log.last_mark().lsn.v > 0 || v_.config.arbiter == Arbiter::external) return \"\";", "return \"\";",),
    Mutant("empty-and-the-whole-set", "an empty replica is promoted because the arbiter counts no other replica",
           CORE + "promotion.cc", "filled |= set_of(l.config.id);", ""),
    Mutant("given-up-is-still-held", "a member vouches for records that it has discarded for another history", CORE + "history.cc",
           "bool given_up = there.first_by_force && ", "bool given_up = there.first_by_force && false && "),
    Mutant("resync-never-yields", "a resync runs at full speed, however slow the clients' requests get", CORE + "pace.cc",
           "  if (slow) rate_ = std::max(rate_ / 2, rate_min_);\n  else rate_", "  rate_"),
    Mutant("resync-stands-still", "a resync can slow down to a stop for clients", CORE + "pace.cc",
           "std::max(rate_ / 2, rate_min_)", "rate_ / 2 + 1"),
    Mutant("source-of-another-history", "content of an unfinished resync counts as part of this history, whichever source sent it", CORE + "history.cc",
           "return source == offer.epoch.id ||", "return true || source == offer.epoch.id ||"),
    Mutant("source-not-durable", "content of a resync goes home before the superblock names its history", CORE + "secondary.cc",
           "  v_.write_superblock(Volume::for_source);\n", "  v_.disk.source_durable();\n"),
    Mutant("flushes-of-a-suspension-count", "the time of requests that waited for an absent replica counts as usual", CORE + "client_io.cc",
           "if (pace_.tells(waiters_.front().since)) pace_", "pace_"),
    Mutant("one-target-takes-it-all", "of two targets of a slow resync, the first gets every turn", CORE + "resync_source.cc",
           "turn_ = (at + 1) % peers_.size();", "turn_ = 0;"),
    Mutant("first-record-sent-early", "other replicas get the volume's first record before it is durable at its writer. Two rules prevent this; both are removed", CORE + "peer_links.cc", "if (!peer.is_streaming() || membership_.first_record_not_durable()) return;", "if (!peer.is_streaming()) return;",
           more=((CORE + "peer_match.cc", "  if (!term_.in_flight() && !waits_for_line(peer)) return false;\n",
                  "  if (!waits_for_line(peer)) return false;\n"),)),
    Mutant("buffer-forgets-its-oldest", "the journal's tail passes the oldest record that a far replica lacks",
           CORE + "far_buffers.cc", "spill_.holds(b.need) ? spill_.end() : b.need);",
           "spill_.holds(b.need) ? spill_.end() : b.need + 1);"),
    Mutant("tail-before-the-spill", "the tail passes records while the chunk with them is still being written",
           CORE + "spiller.cc", "  writing_ = f.held;\n", "  writing_ = f.held;\n  v_.far.add_to_spill(f.held);\n",
           more=((CORE + "spiller.cc", "  if (v_.far.spill_wants(held)) v_.far.add_to_spill(held);\n", ""),)),
    Mutant("spill-with-a-gap", "a chunk that does not continue the spill becomes a part of it",
           CORE + "far_buffers.cc", "  if (!spill_.empty()) return held.first == spill_.end();\n", "  if (!spill_.empty()) return true;\n",
           more=((CORE + "spill_index.cc", "  TL_CHECK(empty() || held.first == end());\n", ""),)),
    Mutant("spill-of-another-history", "a start takes a spill that does not end in the journal",
           CORE + "spill_index.cc", "  auto end = log.find(chunks.back().last);\n",
           "  auto end = std::optional(std::max(log.first(), log.end_upto(chunks.back().last.lsn)));\n"),
    Mutant("spill-outlives-the-log", "a replica that gives up its log for a resync keeps the old spill",
           CORE + "rejoin.cc", "  v_.far.on_reset(v_.now);\n", ""),
    Mutant("given-up-without-a-bound", "a far replica's records are kept however far it is behind, and nobody waits",
           CORE + "far_links.cc", "  if (!v_.far.at_bound(b)) return;\n", "  return;\n",
           more=((CORE + "client_write.cc", "  if (v_.far.writers_wait()) return false;\n", ""),)),
    Mutant("bound-before-the-bound", "writers wait for a far replica before its buffer is full",
           CORE + "far_buffers.cc", "slow_down && at_bound(b);", "slow_down && lag_bytes(b) > 0;"),
    Mutant("member-forgets", "a member does not keep the records that a far replica lacks",
           CORE + "volume.h", "return std::min(tail_limit, far.hold());", "return tail_limit == UINT64_MAX ? tail_limit : std::min(tail_limit, far.hold());"),
    Mutant("resync-flaps", "a resync begins although the line cannot carry the load",
           CORE + "far_buffers.cc", "  return written_.size() > intervals &&", "  return true || written_.size() > intervals &&"),
    Mutant("buffered-ack-waits", "an acknowledgement waits until a record is sent to a far replica",
           CORE + "term.cc", "p.config.protocol == Protocol::A && !p.config.buffer", "p.config.protocol == Protocol::A"),
    Mutant("counted-tail-is-cut", "a tail is cut although its epoch counts this replica",
           CORE + "history.cc", "if ((epochs[i].in_sync & set_of(here.replica)) != 0 || (epochs[i].in_sync & witnesses) == 0) return false;",
           "if ((epochs[i].in_sync & witnesses) == 0) return false;"),
    Mutant("unwitnessed-tail-is-cut", "a tail is cut because none of its epochs counts this replica, although others may have acknowledged it",
           CORE + "history.cc", "if ((epochs[i].in_sync & set_of(here.replica)) != 0 || (epochs[i].in_sync & witnesses) == 0) return false;",
           "if ((epochs[i].in_sync & set_of(here.replica)) != 0) return false;"),
    Mutant("witness-in-pieces", "a replica that was recreated or has lost records vouches for acknowledged records",
           CORE + "promotion.cc", "if (l.state && l.state->whole) members", "if (l.state) members"),
    Mutant("granted-before-settled", "the arbiter is asked while operations are in flight, and its grant becomes outdated",
           CORE + "promotion.cc", "waiting_for_.empty() && settled && !looks_for_peers()) claimed();",
           "waiting_for_.empty() && !looks_for_peers()) claimed();\n  (void)settled;"),
    Mutant("left-out-unknowing", "a primary continues without a member that may consider itself the only member",
           CORE + "membership.cc", "v_.config.on_peer_loss == OnPeerLoss::go_on && needs_us(p)",
           "v_.config.on_peer_loss == OnPeerLoss::go_on"),
    Mutant("committed-by-who-is-away", "an absent member's acknowledgement counts, although it may have cut the record off since",
           CORE + "term.cc", "p.is_streaming() ? p.durable_end : 0", "p.durable_end"),
    Mutant("catch-up-across-a-loss", "records are sent to a replica from before a loss, which also left blocks without a record",
           CORE + "peer_match.cc", "  if (lossy_behind(common_end, from.lsn))\n", "  if (false)\n"),
    Mutant("marks-survive-a-loss", "marks stay valid although blocks of lost records are in the data area",
           CORE + "volume.cc", "    for (DirtyMap& d : dirty) d.forget();\n", "    ;\n"),
    Mutant("unfinished-is-kept", "the content of an interrupted resync shows as a side of a split brain",
           CORE + "history.cc", "if (unfinished) return verdict::Resync{};", "(void)unfinished;"),
    Mutant("complete-before-is-lost", "the content of an interrupted resync is discarded, although it was complete before the resync",
           CORE + "history.cc", "if (!part->base || part->base->lsn.v == 0) return true;", "return true;",
           more=((CORE + "history.cc", "(!peer->base || peer->base->lsn <= common)", "true"),)),
    Mutant("forgotten-loss-is-trusted", "a peer that has forgotten all epochs known here is trusted, although one of its epochs began with a loss",
           CORE + "history.cc", " &&\n         !(oldest.flags & epoch_lossy)", ""),
    Mutant("short-table-is-split", "an unacknowledged tail shows as split brain if the table of its member, the primary, begins behind it",
           CORE + "history.cc", " || Lsn{oldest.start.v - 1} > common", ""),
    Mutant("forgotten-force-is-trusted", "a member that has forgotten all epochs known here is trusted, although a replica was promoted by force since",
           CORE + "history.cc", "return (e.flags & epoch_by_force) && !(left.in_sync & set_of(e.writer));", "return false && e.start == Lsn{};"),
    Mutant("filled-from-the-tail-of-a-loss", "a replica from before a loss is compared with the source's tail, and shows as split brain",
           CORE + "peer_match.cc", "begin_resync(peer) : begin_resync(peer, common_end);", "begin_resync(peer) : begin_resync(peer);"),
    Mutant("loss-settled-late", "the superblock keeps the state Damaged while the arbiter does not answer a change",
           CORE + "membership.cc", "if (term_.logged()) v_.settle_loss(term_.end());", "if (term_.logged() && !change_) v_.settle_loss(term_.end());"),
    Mutant("heard-survives-a-loss", "peers' states from before a loss count as having everything that is here",
           CORE + "volume.cc", "    for (Link& l : links) l.covered_end = 0;\n", "    ;\n"),
    Mutant("home-before-commit", "blocks are written home before the superblock says that they are committed",
           CORE + "checkpointer.cc", "v_.commit_durable >= v_.log.mark_before(end).lsn", "true"),
    Mutant("loss-shown-unsynced", "content that a loss left in the data area is served before it is durable",
           CORE + "core.cc", "if (!promotion.accepts_damage()) {", "if (!promotion.accepts_damage() || secondary()) {"),
    Mutant("filled-and-nothing-committed", "no record is committed during the resync of a member that cannot be removed",
           CORE + "term.cc", "p.is_streaming() ? p.durable_end : 0", "!suspended() ? p.durable_end : 0"),
    Mutant("grant-not-doubted", "a primary that meets a newer epoch does not ask the arbiter whether its own grant still counts",
           CORE + "peer_match.cc", "if (v_.config.arbiter == Arbiter::external) membership_.ask_whether_granted(counter);", ""),
    Mutant("newest-epoch-is-named", "a promotion names the newest known epoch, although that epoch counts the promoted replica",
           CORE + "history.cc", "      named = e.epoch;\n", ""),
    Mutant("damage-ends-a-split-brain", "a replica with a damaged journal accepts any history",
           CORE + "history.cc", "if (!damage || has_what_was_damaged(here, *damage, there))", "if (true || has_what_was_damaged(here, *damage, there))"),
    Mutant("damaged-epoch-forgotten", "the epoch of the newest record is searched only before the damage",
           JOURNAL + "recovery.cc", "    std::optional<EpochEntry> newest = newest_known(epochs);",
           "    std::erase_if(epochs, [&](const EpochEntry& e) { return e.start > last_.lsn; });\n"
           "    std::optional<EpochEntry> newest = newest_known(epochs);"),
    Mutant("epoch-before-its-superblock", "an epoch record counts as durable before the superblock has the epoch",
           CORE + "volume.cc", "    log.hold_durable(no);\n", ""),
    Mutant("loss-not-flagged", "a promotion that accepts a loss is recorded without it",
           CORE + "history.cc", "flags |= epoch_by_force | (facts.whole ? 0 : std::uint32_t{epoch_lossy});",
           "flags |= epoch_by_force;"),
    Mutant("force-stays", "force on a primary that is not suspended is kept for the next loss",
           CORE + "membership.cc", "if (!term_.suspended()) forced_alone_ = false;", "", more=((CORE + "membership.cc", "forced_alone_ = term_.suspended();", "forced_alone_ = true;"),)),
    Mutant("going-on-by-force-not-flagged", "the epoch of a primary that continues alone by force has no flag",
           CORE + "membership.cc", "granted.by_force ? std::uint32_t{epoch_by_force} : 0, mark_of", "0, mark_of"),
    Mutant("tail-by-force-is-cut", "a tail that began with force is cut like any other tail",
           CORE + "history.cc", "!there.by_force && !forced_here;", "!there.by_force;"),
    Mutant("force-is-forgotten", "a forced promotion is forgotten once its epoch has left the table", "spool-repl/format/src/epoch.cc",
           "if (oldest.flags & epoch_by_force) {", "if (oldest.flags & epoch_by_force && false) {"),
    Mutant("force-out-of-the-table-is-trusted", "a table that has forgotten a forced promotion is trusted like any other table",
           CORE + "history.cc", "return !forced_unseen(here.epochs, there.epochs, left.in_sync) &&\n         std::none_of(", "return std::none_of("),
    Mutant("split-brain-forgotten", "a split brain is forgotten when the process ends", CORE + "volume.cc",
           "sb.split_brains.push_back({id, parted});\n  write_superblock(for_split_brain);",
           "sb.split_brains.push_back({id, parted});"),
    Mutant("promoted-in-a-split-brain", "a replica in a split brain is promoted without a warning", CORE + "promotion.cc",
           "if (std::string why = split_brain(); !why.empty()) return why;", ""),
    Mutant("split-brain-never-ends", "a split brain still shows after both replicas follow a third one", CORE + "volume.cc",
           "if (!ours.id.is_nil() && link.state->epoch.epoch == ours) end_split_brain(link.config.id);", "(void)ours;"),
    Mutant("begin-below-commit", "a history is cut below its own commit LSN", CORE + "history.cc",
           "if (offer.from < here.commit) return verdict::Resync{};", "if (false) return verdict::Resync{};"),
    Mutant("old-value-counts", "an arbiter's value that is older than the log decides", CORE + "promotion.cc",
           "outdated_ = current_ && current_->epoch.counter < newest_known().epoch.counter;", "outdated_ = false;"),
    Mutant("given-up-unseen", "a history is discarded before it is known what the winner has of it", CORE + "discard.cc",
           "return rejoin_.gives_up() || !split || split->parted;", "return true;"),
    Mutant("old-table-is-trusted", "a tail with more epochs than the table holds is judged by the epochs in the table",
           CORE + "history.cc", "if (epochs.empty() || epochs.front().start > lsn + 1) return false;", "if (epochs.empty()) return false;"),
    Mutant("follower-is-promoted-alone", "the first promotion asks members only, although another replica may hold the volume",
           CORE + "promotion.cc", "(first || (newest.in_sync & set_of(l.config.id)))", "((first && false) || (newest.in_sync & set_of(l.config.id)))"),
    Mutant("failed-device-sends-what-it-lost", "a record that was read for a peer is looked up in a log that no longer has it",
           CORE + "peer_links.cc", "if (stream.sent_end < v_.log.first()) return;", ""),
    Mutant("uncommitted-is-trusted", "equal blocks of records that are uncommitted after a restart count as durable",
           CORE + "volume.cc", "if (commit_end < log.end()) distrusts_disk = true;", ""),
    Mutant("bit-after-the-tail", "marks are written after the tail has passed the records that they stand for",
           CORE + "checkpointer.cc", "write_bitmaps(DirtyMap::Pages::lacking);\n  write_digests();", "write_digests();"),
    Mutant("bitmap-of-any-age", "a bitmap is used for a replica that lacks more than the bitmap covers",
           CORE + "resync_source.cc", "return d && d->slot().known && d->slot().since.lsn <= content;", "return d && d->slot().known;",
           ((CORE + "history.cc", "if (since > common || here.commit > common) return false;\n  return record_held;", "return true;"),)),
    Mutant("resynced-not-marked", "the target of a resync does not mark the received blocks for other replicas",
           CORE + "resync_target.cc", "for (DirtyMap& d : v_.dirty) d.mark(e.lba, e.blocks);", ""),
    Mutant("bitmap-before-commit", "a resync uses the marks before the replica's records are committed at the source",
           CORE + "resync_source.cc",
           "if (v_.now < s.pause_until || v_.log.committed_end() < s.not_before) return;\n  if (!s.chosen) choose_blocks(peer, s);",
           "if (!s.chosen) choose_blocks(peer, s);\n  if (v_.now < s.pause_until || v_.log.committed_end() < s.not_before) return;"),
    Mutant("resync-ends-without-its-marks", "the marks of a resync are not durable at its end",
           CORE + "checkpointer.cc", "if (new_first_ == v_.log.first() && !sync_this_round_) {", "if (new_first_ == v_.log.first()) {"),
    Mutant("equal-is-trusted", "equal content that an unfinished resync left on the disk counts as durable",
           CORE + "volume.cc", "distrusts_disk = disk.inconsistent();", ""),
    Mutant("consistent-without-sync", "a resync ends without a sync of the blocks that were found equal",
           CORE + "resync_target.cc", "if (checkpointer_.rounds_done() < f.goal->round) return;", ""),
    Mutant("damage-forgotten", "a replica whose journal has lost records counts as intact",
           JOURNAL + "recovery.cc", "if (scan.damage) make_inconsistent(scan, out.log);", ""),
    Mutant("damage-is-the-end", "damage in the log is mistaken for its end",
           JOURNAL + "recovery.cc", "if (upto > last_.lsn)", "if (false)"),
    Mutant("journal-error-forgotten", "a failed journal write counts as done",
           CORE + "volume.cc", 'if (error != 0) {\n    fail_device(fmt::format("the journal failed a write (',
           'if (false) {\n    fail_device(fmt::format("the journal failed a write ('),
    Mutant("home-error-forgotten", "a failed home write counts as done",
           CORE + "checkpointer.cc", "if (error != 0) v_.fail_device(fmt::format(\"the data area failed a write",
           "if (false) v_.fail_device(fmt::format(\"the data area failed a write"),
    Mutant("sync-tried-again", "a failed sync of the data area is repeated, and the repetition succeeds",
           CORE + "checkpointer.cc", 'v_.fail_device(fmt::format("the data area failed a sync ({})", errno_text(error)));',
           "v_.out.home_syncs.push_back({make_token(TokenKind::home_sync, 0)});"),
    Mutant("superblock-error-forgotten", "a failed write of the superblock counts as done",
           CORE + "volume.cc", 'if (error != 0) {\n    fail_device(fmt::format("the journal failed a write of the superblock',
           'if (false) {\n    fail_device(fmt::format("the journal failed a write of the superblock'),
    Mutant("error-after-ack-forgotten", "a flush after a failed write succeeds",
           CORE + "client_io.cc", "if (v_.failed) return complete(r, EIO);\n  std::uint64_t target",
           "if (v_.failed) return complete(r, 0);\n  std::uint64_t target"),
    Mutant("read-error-forgotten", "a failed read of the data area returns whatever memory holds",
           CORE + "client_read.cc", "else if (read.unreadable.empty()) answer_read(read);", "else if (true) answer_read(read);"),
    Mutant("repair-of-what-was-overwritten", "fetched content is used although the block has been written meanwhile",
           CORE + "repair.cc", "if (v_.committed.touched(lba)) return End::overwritten;", "",
           more=((CORE + "repair.cc", "TL_CHECK(v_.committed.find(lba).kind == BlockIndex::Kind::absent);", ""),)),
    Mutant("equal-by-luck-is-trusted", "a block with wrong content is kept if the source sends the same content", CORE + "resync_target.cc",
           "(v_.distrusts_disk || !v_.digests.fits(lba, block))", "v_.distrusts_disk"),
    Mutant("digest-unchecked", "reads do not check the digest",
           CORE + "client_read.cc", "if (v_.digests.fits(lba, block)) continue;", "continue;"),
    Mutant("wrong-block-is-spread", "the source of a resync does not check the digest",
           CORE + "resync_source.cc", "if (!stale && !read.failed) read.failed = holds_wrong(read);", ""),
    Mutant("wrong-block-is-given", "an answer to a peer's repair does not check the digest",
           CORE + "repair_answer.cc", "error == 0 && !v_.digests.fits(", "false && !v_.digests.fits("),
    Mutant("wrong-block-is-filled-up", "a partial write does not check the digest of the rest of its block",
           CORE + "client_write.cc", "bool wrong = w.home_changes == v_.home_changes && v_.is_wrong(", "bool wrong = false && v_.is_wrong("),
    Mutant("digests-after-the-tail", "the tail passes records before the digests of their blocks are durable",
           CORE + "checkpointer.cc", "  write_digests();\n  if (in_flight_ == 0) store_tail();", "  if (in_flight_ == 0) store_tail();",
           more=((CORE + "checkpointer.cc", "if (phase_ == Phase::marking) write_digests();", ""),)),
    Mutant("digests-not-replayed", "a start does not store the digests of the blocks that it writes home",
           JOURNAL + "replay.cc", "log_.digests.put(Lba{r.lba + b}, content.data() + b * block_size);", ";"),
    Mutant("digests-go-with-the-log", "a resync discards the log before the digests of its blocks are durable",
           CORE + "rejoin.cc", "bool known = !v_.digests.changed();", "bool known = true;"),
    Mutant("wrong-answer-is-taken", "fetched content is not compared with the digest here",
           CORE + "repair.cc", "return v_.digests.fits(lba, m.kind == FetchedBlock::Kind::zeros ? zeros.data() : m.content.data());", "return true;"),
    Mutant("digests-survive-a-loss", "blocks that lost records left in the data area count as wrong",
           CORE + "core.cc", "    volume.digests.forget();\n", ""),
    Mutant("digests-forgotten-late", "a loss counts as settled before it is durable that the digests are unknown",
           CORE + "core.cc", "    volume.digests.forget();\n", "",
           more=((CORE + "core.cc", "volume.accept_loss();", "volume.accept_loss(), volume.digests.forget();"),)),
    Mutant("read-beside-a-checkpoint-is-wrong", "a block that is written during its read counts as wrong",
           CORE + "client_read.cc", "if (read.home_changes != v_.home_changes || !v_.is_wrong(lba, block)) read.stale = true;\n    else ", ""),
    Mutant("repair-not-written", "fetched content is not written to the disk",
           CORE + "repair.cc", "v_.committed.put_data(lba, slot, repaired_serial);", ""),
    Mutant("repair-error-forgotten", "a read of a block that no replica can supply returns whatever memory holds",
           CORE + "client_read.cc", "else complete(r.request, EIO);",
           "else complete(r.request, 0);"),
    Mutant("repair-untold", "a block that no replica can supply does not show in the status",
           CORE + "repair.cc", "v_.counters.unreadable_blocks++;", ""),
    Mutant("repair-waits-for-the-dead", "a repair waits without end for a replica that is lost or silent",
           CORE + "repair.cc", "if (!there || v_.now >= b.deadline) b.state = State::choosing;", ""),
    Mutant("repair-ends-unheard", "requests are not tried again after their repair",
           CORE + "core.cc", "primary()->on_repaired(finished);", ""),
    Mutant("repair-asks-nobody", "no replica is asked for an unreadable block",
           CORE + "repair.cc", "if (!best) return End::lost;", "return End::lost;"),
    Mutant("repair-by-the-unfinished", "a resync target supplies blocks to others",
           CORE + "repair_answer.cc", "if (v_.disk.inconsistent() || v_.failed) return answer(q, FetchedBlock::Kind::nothing);", "",
           more=((CORE + "peer_links.cc", "bool holds = !p.filling() && link->state && !link->state->inconsistent;", "bool holds = true;"),
                 (CORE + "repair_answer.cc", "} else if (!stale && !v_.disk.inconsistent()) {", "} else if (!stale) {"))),
    Mutant("repair-of-older-content", "a replica supplies a block although it has committed less than the replica that asks",
           CORE + "repair_answer.cc", "if (v_.commit_lsn() < q.asked.after || !v_.home_is_settled()) return;", "if (!v_.home_is_settled()) return;"),
    Mutant("cut-without-archive", "a tail is cut although its archive failed",
           CORE + "rejoin.cc", "c.step = WaitsForJournal{};\n  if (error != 0) {", "c.step = WaitsForJournal{};\n  if (false) {"),
    Mutant("catch-up-of-an-old-connection", "a record that was read for an earlier connection is sent on this one",
           CORE + "peer_links.cc", "(peer->connection_no & 0xffffffffffff) != (n & 0xffffffffffff) ||", ""),
    Mutant("cut-not-erased", "cut records stay on the disk",
           CORE + "rejoin.cc", "cut_off_.push_back(v_.log.at(no).pos);", ""),
    Mutant("leftover-not-erased", "a start does not erase the records that it found outside the log",
           JOURNAL + "recovery.cc", "TL_TRY(erase(journal, scan.leftover));", ""),
    Mutant("write-ack-forgotten", "with write_ack = durable, a write is answered before it is durable",
           CORE + "client_write.cc", "if ((r.fua || v_.config.write_ack_durable) && !open_.empty()) {", "if (r.fua && !open_.empty()) {"),
    Mutant("counter-granted-twice", "a tail is cut for a history that an arbiter granted beside it, after its data was restored from a copy",
           CORE + "history.cc", "out.beside = out.beside || e.epoch.counter <= other.counter;", "out.beside = false;"),
    Mutant("arbiter-counts-a-stranger", "a promotion into a set with a member that the configuration does not name",
           CORE + "promotion.cc", "  if (std::string why = stranger_in(set); !why.empty()) return why;\n", ""),
    Mutant("part-without-the-rest", "a partial write fills the rest of its block with zeros",
           CORE + "client_write.cc", "if (old) std::memcpy(v_.arena.data(slot), old, block_size);", "if (false) (void)old;"),
    Mutant("trim-rounds-outwards", "a partial trim zeroes the whole block",
           CORE + "client_write.cc", "put_block(Lba{block}, part.from, part.bytes, nullptr, w);", "put_block(Lba{block}, 0, block_size, nullptr, w);"),
    Mutant("part-of-an-old-block", "a partial write keeps the rest of its block as read, although newer content was written home since",
           CORE + "client_write.cc", "if (!w.fills.empty() && w.home_changes != v_.home_changes) drop_fills(w);", ""),
    Mutant("detached-device-serves", "a detached device continues to answer",
           CORE + "core.cc", 'parts_->volume.fail_device("the device was detached while it was in use");', ";"),
    Mutant("start-asks-nobody", "a start promotes by the log here alone, and asks no other replica",
           CORE + "promotion.cc", "if (started_) until =", "if (false) until ="),
    Mutant("refused-is-not-asked",
           "a forced promotion does not wait for a primary that has just refused the link",
           CORE + "promotion.cc", "if (l.refused) until =", "if (false) until ="),
    Mutant("secondaries-see-no-split", "two secondaries do not judge each other's epochs",
           CORE + "volume.cc", "if (!link.state || link.state->primary || split_brain_with",
           "if (true || link.state->primary || split_brain_with"),
    Mutant("cut-forgets-who-counts", "a promotion uses the set in a log that was cut, although a newer set was known",
           CORE + "rejoin.cc",
           "  v_.sb.cut_for = c.cut.newest;\n", ""),
    Mutant("moved-tail-is-no-news", "a search for the last common record continues below a tail that has moved meanwhile",
           CORE + "secondary.cc", "m.mark.lsn < v_.log.tail_mark().lsn) return", "false) return"),
    Mutant("other-arbiter-is-trusted", "a replica with another arbiter does not prevent a promotion", CORE + "promotion.cc",
           "    if (l.other_arbiter)\n", "    if (false)\n"),
    Mutant("changed-arbiter-is-trusted", "a promotion continues without absent replicas, although the arbiter is a new one",
           CORE + "promotion.cc", "v_.sb.arbiter == 0 ||", "true || v_.sb.arbiter == 0 ||"),
    Mutant("newcomer-is-not-asked", "a replica that connects during a promotion is not asked",
           CORE + "promotion.cc", "  waiting_for_.push_back(id);\n  v_.out.sends.push_back(Send{id, Claim{attempt_}});\n", "  (void)id;\n"),
    Mutant("demotion-of-a-failed-device-waits", "the demotion of a failed device is never answered",
           CORE + "core.cc", "become_secondary();\n  refuse_demotion();", "become_secondary();"),
    Mutant("records-take-no-memory", "records are sent without a share of the links' memory",
           CORE + "send_room.cc", "return peer.streaming()->sent_bytes <= window && take(peer, bytes, 0);", "return peer.streaming()->sent_bytes <= window;"),
    Mutant("resyncs-take-no-memory", "blocks of a resync are sent without a share of the links' memory",
           CORE + "send_room.cc", "flying_bytes < v_.config.sync_window_bytes && take(peer, 0, resync_chunk);", "flying_bytes < v_.config.sync_window_bytes;"),
    Mutant("resync-without-a-reserve", "records can take the memory of a resync",
           CORE + "send_room.cc", "std::max(resync, resync_reserve)", "resync"),
    Mutant("records-without-a-reserve", "a resync can take the memory of records",
           CORE + "send_room.cc", "std::max(of_records(peer) + more_records, reserve - resync_reserve)", "of_records(peer) + more_records + 0 * reserve"),
    Mutant("lost-link-holds-memory", "a primary that steps down keeps the memory of its links",
           CORE + "send_room.cc", "for (const Peer& p : peers_) v_.config.link_memory->holds(p.id(), 0);", ""),
    Mutant("balanced-read-of-an-older-block", "a member answers a read before it has committed as much as the primary, and nobody compares digests",
           CORE + "read_answers.cc", "if (v_.commit_lsn() < q.asked.after || !v_.home_is_settled()) return;", "",
           more=((CORE + "client_read.cc", "else if (!(same_home ? v_.digests.fits(lba, content) : v_.digests.proves(lba, content))) {", "else if (false) {"),)),
    Mutant("balanced-answer-unchecked", "a member's answer is not compared with the digest",
           CORE + "client_read.cc", "else if (!(same_home ? v_.digests.fits(lba, content) : v_.digests.proves(lba, content))) {", "else if (false) {"),
    Mutant("balanced-answer-over-a-write", "a member's answer counts for a block that was written meanwhile",
           CORE + "client_read.cc", "    auto found = newest(lba);\n    if (found.kind == BlockIndex::Kind::data)\n      content = v_.arena.data(found.slot);\n    else if (found.kind == BlockIndex::Kind::zeros)\n      content = zeros.data();\n    else if (!(same",
           "    if (!(same"),
    Mutant("balanced-read-waits", "a read waits for a member that does not answer",
           CORE + "read_balance.cc", "bool late = v_.now >= asked.until;", "bool late = false;"),
    Mutant("silent-member-is-asked-again", "a member that did not answer is asked at once again",
           CORE + "read_balance.cc", "if (!gone && late) rest(asked.peer, rest_after_silence);", ""),
    Mutant("balanced-read-of-a-follower", "a replica outside the in-sync set is asked for reads",
           CORE + "read_balance.cc", "bool member = (term_.in_sync() & set_of(p.id())) != 0 && p.config.protocol == Protocol::C;", "bool member = true;"),
    Mutant("outsider-answers", "a replica outside the in-sync set answers reads",
           CORE + "read_answers.cc", "bool member = (v_.told_epoch().in_sync & set_of(v_.sb.replica)) != 0;", "bool member = true;"),
    Mutant("stale-read-is-answered", "a member answers with a block that it has written home during its read",
           CORE + "read_answers.cc", "if (block && (same_home ? v_.digests.fits(lba, block) : v_.digests.proves(lba, block))) return block;", "if (block) return block;"),
    Mutant("superblock-unchecked", "a damaged superblock counts as intact",
           "spool-repl/format/src/superblock.cc", "if (crc32c(copy) != load_le<std::uint32_t>(in.data() + 8))", "if (false)"),
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
find_package(GTest REQUIRED)
foreach(folder base spool-repl/format spool-repl/ports spool-repl/core spool-repl/journal tests/sim tests/unit/spool-repl/core
        tests/unit/spool-repl/journal)
  add_subdirectory(${folder})
endforeach()
"""


def limit_memory():
    """For a mutant that does not end, and allocates."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))


class Failed(Exception):
    """A command that must succeed has failed. The text has its output."""


class Tree:
    """The sources, built once. The objects of a mutant are linked before the libraries that they come from."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.build_folder = self.folder / "build"
        for part in COPIED:
            shutil.copytree(ROOT / part, self.folder / part, dirs_exist_ok=True)
        (self.folder / "CMakeLists.txt").write_text(TOP)
        self.env = dict(os.environ, CCACHE_BASEDIR=str(self.folder), CCACHE_NOHASHDIR="1")
        with mutation.build_lock():
            self.run(["cmake", "-S", str(self.folder), "-B", str(self.build_folder), "-G", "Ninja",
                      "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"])
            self.run(["ninja", "-C", str(self.build_folder), "repl_sim", *UNIT_TESTS])
        self.compile = {c["file"]: c["command"] for c in
                        json.loads((self.build_folder / "compile_commands.json").read_text())}
        self.link = {name: self.link_command(name) for name in ("repl_sim", *UNIT_TESTS)}
        self.program = self.build_folder / "bin/repl_sim"

    def link_command(self, name):
        listed = subprocess.run(["ninja", "-C", str(self.build_folder), "-t", "commands", name], env=self.env,
                                capture_output=True, text=True, check=True).stdout
        return listed.strip().splitlines()[-1]

    def run(self, command, cwd=None):
        done = subprocess.run(command, env=self.env, cwd=cwd, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)} fails:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")

    def mutant(self, m):
        """Compiles and links a mutant. Returns the path of the program."""
        folder = self.folder / "mutants" / m.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file, edits in m.edits().items():
            self.compiled(folder, self.folder / file, mutated(m, file, edits, (self.folder / file).read_text()))
        return self.linked(folder, "repl_sim")

    def linked(self, folder, name):
        words = [w for w in shlex.split(self.link[name]) if w not in (":", "&&") and "ccache" not in os.path.basename(w)]
        at = words.index("-o")
        words[at + 1] = str(folder / name)
        self.run(words[:at] + sorted(map(str, folder.glob("*.o"))) + words[at:], cwd=self.build_folder)
        return folder / name

    def compiled(self, folder, source, text):
        changed, output = folder / source.name, str(folder / (source.stem + ".o"))
        changed.write_text(text)
        words = [w for w in shlex.split(self.compile[str(source)]) if "ccache" not in os.path.basename(w)]
        words[words.index("-o") + 1] = output
        words[words.index("-c") + 1] = str(changed)
        self.run(words + ["-Wno-error", "-w", f"-I{source.parent}"], cwd=self.build_folder)

    def first_violation(self, program, seeds, jobs):
        """The line in which the simulator reports a violation, or None."""
        done = subprocess.run([str(program), "--seeds", str(seeds), "--jobs", str(jobs), "--patience", "60"],
                              capture_output=True, text=True, preexec_fn=limit_memory)
        if done.returncode == 0:
            return None
        if found := re.findall(r"^seed \d+: .*", done.stdout, re.M):
            return found[-1][:160]
        print(f"mutants: repl_sim ends with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}", file=sys.stderr)
        sys.exit(2)


    def failing_test(self, m):
        """The name of the first unit test that fails or does not end, or None."""
        names = UNIT_TESTS[:1] if any(file.startswith(CORE) for file in m.edits()) else UNIT_TESTS
        for name in names:
            program = self.linked(self.folder / "mutants" / m.name, name)
            try:
                done = subprocess.run([str(program), "--gtest_fail_fast"], capture_output=True, text=True, timeout=600,
                                      preexec_fn=limit_memory)
                output, code = done.stdout, done.returncode
            except subprocess.TimeoutExpired as late:
                output, code = (late.stdout or b"").decode(), 1
            if code == 0:
                continue
            failed = re.findall(r"^\[  FAILED  \] (\S+?),? .*\(\d+ ms\)$", output, re.M)
            begun = failed or re.findall(r"^\[ RUN      \] (\S+)", output, re.M)[-1:]
            return f"unit test {begun[0]}" if begun else f"{name} ends with {code}"
        return None


def mutated(m, file, edits, text):
    try:
        return mutation.applied(m.name, file, text, edits)
    except mutation.DoesNotApply as why:
        print(why, file=sys.stderr)
        sys.exit(2)


def build_all(tree, chosen, jobs, programs):
    """Puts each program into the queue in order, or the reason why it does not build. Releases the lock from time to
    time, since other builds wait for it."""
    def build(m):
        try:
            return tree.mutant(m)
        except Exception as why:
            return why

    for first in range(0, len(chosen), 12):
        with mutation.build_lock(), concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for program in pool.map(build, chosen[first:first + 12]):
                programs.put(program)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--unit", action="store_true")
    parser.add_argument("--keep", help="work in this folder and leave it")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    chosen = [m for m in MUTANTS if not args.names or m.name in args.names]
    if unknown := set(args.names) - {m.name for m in MUTANTS}:
        parser.error("no such mutant: " + ", ".join(sorted(unknown)))
    for m in chosen:
        for file, edits in m.edits().items():
            mutated(m, file, edits, (ROOT / file).read_text())
        if args.list:
            print(f"{m.name:30} {m.what}")
    if args.check:
        page = (ROOT / "docs/simulator.md").read_text()
        for difference in (found := mutation.differences(page, "Mutants", [m.name for m in MUTANTS])):
            print(f"docs/simulator.md: {difference}", file=sys.stderr)
        return 2 if found else 0
    if args.list:
        return 0
    missed, unbuilt = [], []
    with contextlib.ExitStack() as stack:
        folder = args.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="twinloft-mutants-"))
        tree = Tree(folder)
        if not args.unit and (found := tree.first_violation(tree.program, min(args.seeds, 200), args.jobs)):
            sys.exit(f"mutants: without any mutation: {found}")
        for name in UNIT_TESTS:
            tree.run([str(tree.build_folder / "bin" / name)])
        programs = queue.Queue()
        threading.Thread(target=build_all, args=(tree, chosen, args.jobs, programs), daemon=True).start()
        for m in chosen:
            program = programs.get()
            if isinstance(program, Exception):
                print(f"{m.name:30} does not build: {program}", flush=True)
                unbuilt.append(m.name)
                continue
            found = None if args.unit else tree.first_violation(program, args.seeds, args.jobs)
            found = found or tree.failing_test(m)
            verdict = "caught" if found else "harmless" if m.harmless else "NOT CAUGHT"
            print(f"{m.name:30} {verdict}  {found or m.what}", flush=True)
            if not found and not m.harmless:
                missed.append(m.name)
    print(f"{len(chosen)} mutants, {len(missed)} not caught{': ' if missed else ''}{', '.join(missed)}")
    if unbuilt:
        print(f"{len(unbuilt)} do not build: {', '.join(unbuilt)}")
    return 2 if unbuilt else 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as why:
        print(f"mutants: {why}", file=sys.stderr)
        sys.exit(2)
