#!/usr/bin/env python3
"""Breaks the replication core on purpose, one mutation at a time, and looks whether the simulator notices.

    mutants.py [--seeds N] [--unit] [--jobs N] [--keep DIR] [--list | --check] [NAME ...]

The sources are copied to a temporary folder; the tree itself is never touched. Each mutation replaces exact pieces of
text in one file; that file is compiled and linked with the rest, and up to N seeds (default 2000) run. Caught means: a
checker reported a violation, an assertion stopped the program, or it did not end. What the simulator does not notice is
given to the unit tests of core and journal; the table then names the test. Exit 0: all are caught by the one or the other; 1: one
was not; 2: a mutation no longer applies or builds (the code has changed: change the table), or the sources do not build.

--unit leaves the simulator out. --list prints the table, --check only looks whether every mutation still
applies and has its row in docs/simulator.md. Where TWINLOFT_BUILD_LOCK names a file, builds hold a lock on
it.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import queue
import re
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
CORE, JOURNAL = "spool-repl/core/src/", "spool-repl/journal/src/"


@dataclass(frozen=True)
class Mutant:
    name: str
    what: str  # the promise that it breaks
    file: str
    old: str
    new: str
    more: tuple = ()  # further (file, old, new)
    harmless: bool = False  # a second rule stands behind it (docs/simulator.md): that it is not caught is no failure

    def edits(self):
        """By file, in order: pairs of old and new text."""
        by_file = {}
        for file, old, new in ((self.file, self.old, self.new), *self.more):
            by_file.setdefault(file, []).append((old, new))
        return by_file


MUTANTS = [
    Mutant("ack-before-peer-durable", "C: a flush is answered when the peer has it in memory",
           CORE + "term.cc", "if (required(p)) end = std::min(end, p.durable_end);",
           "if (required(p)) end = std::min(end, p.received_end());"),
    Mutant("ack-before-local-durable", "a flush is answered before the primary's own journal write is done",
           CORE + "term.cc", "RecordNo end = v_.log.durable_end();\n  for (const Peer& p : peers_) {\n    if",
           "RecordNo end = v_.log.end();\n  for (const Peer& p : peers_) {\n    if"),
    Mutant("flush-forgets-the-open-batch", "a flush waits for sealed records only",
           CORE + "client_io.cc", "open_.empty() ? open_serial_ - 1 : open_serial_;", "open_serial_ - 1;"),
    Mutant("durable-with-holes", "a later journal write that ends first makes earlier ones durable",
           CORE + "log.cc", "while (durable_end_ < std::min(end(), held_) && at(durable_end_).durable) ++durable_end_;",
           "durable_end_ = std::max(durable_end_, no + 1);"),
    Mutant("checkpoint-of-uncommitted", "the secondary writes home what is durable there, committed or not",
           CORE + "secondary.cc", "RecordNo end = std::min(upto, v_.log.durable_end());",
           "RecordNo end = v_.log.durable_end();"),
    Mutant("reuse-before-superblock", "journal space is reused before the new tail is durable",
           CORE + "checkpointer.cc", "v_.write_superblock(Volume::for_tail);",
           "v_.log.drop_before(new_first_);\n  v_.write_superblock(Volume::for_tail);"),
    Mutant("secondary-acks-early", "the secondary calls durable what its journal does not have yet",
           CORE + "secondary.cc", "v_.log.mark_before(v_.log.durable_end())};", "v_.log.last_mark()};"),
    Mutant("cut-for-an-epoch-in-flight",
           "a peer is cut for an epoch whose record is not durable at its primary",
           CORE + "peer_match.cc", "  if (!term_.in_flight()) return false;\n  peer.in<Peer::Matching>()->again = true;",
           "  if (true || !term_.in_flight()) return false;\n  peer.in<Peer::Matching>()->again = true;"),
    Mutant("forgotten-tail-is-split",
           "a tail whose epoch the primary has forgotten is judged as if there had been force",
           CORE + "history.cc", "  if (forgotten_and_kept(here, there, here.newest)) return std::nullopt;\n",
           ""),
    Mutant("empty-beside-a-stranger", "an empty replica is promoted where those who have something do not count",
           CORE + "promotion.cc", "if (l.state && l.state->last.lsn.v > 0)",
           "if (l.state && l.state->last.lsn.v > 0 && (newest_known().in_sync & set_of(l.config.id)))"),
    Mutant("cut-for-somebody-else",
           "the primary that a log was cut for is forgotten when another one sends records",
           CORE + "secondary.cc", "bool other_cut = v_.ends", "bool other_cut = false && v_.ends"),
    Mutant("begin-without-cut", "records of the primary follow a divergent tail",
 
                    CORE + "secondary.cc", "if (*v_.log.find(m.from) == v_.log.end() && rejoin_.steady() && !lost && !other_cut) return connected();",
           "if (rejoin_.steady() || (lost && other_cut)) return connected();"),
    Mutant("cut-not-awaited", "records are taken before the superblock of the cut is durable",
           CORE + "rejoin.cc", "c.step = Stores{};\n  v_.write_superblock(Volume::for_cut);",
           "v_.write_superblock(Volume::for_cut);\n  c.step = Erases{};\n  erase();"),
    Mutant("cut-under-journal-writes", "a tail is cut while its journal writes are under way",
           CORE + "rejoin.cc", "if (v_.journal_in_flight > 0 || v_.failed) return;",
           "if (v_.failed) return;"),
    Mutant("archive-of-what-failed", "a tail is archived with a record that could not be written",
           CORE + "rejoin.cc", "if (v_.journal_in_flight > 0 || v_.failed) return;",
           "if (v_.journal_in_flight > 0) return;"),
    Mutant("cut-leaves-claims", "frames of a cut tail still prove what was durable",
           CORE + "rejoin.cc", "v_.sb.cut_incarnation = v_.sb.incarnation;", ""),
    Mutant("tail-ignores-peers", "the primary drops records that its peer has not got",
           CORE + "peer_links.cc", "if (term_.required(p) || p.is_streaming() || room) limit = "
           "std::min(limit, p.durable_end);", "(void)room;"),
    Mutant("newer-version-forgotten", "a checkpoint drops a newer version of a block with the one it wrote",
           CORE + "block_index.cc", "if (it == data_.end() || it->second.serial != serial) return;",
           "(void)serial;\n  if (it == data_.end()) return;"),
    Mutant("frame-claims-too-much", "a frame says that records under way are durable",
           CORE + "volume.cc", "FrameHeader frame{pos, log.mark_before(log.durable_end()).lsn,",
           "FrameHeader frame{pos, log.last_mark().lsn,"),
    Mutant("replay-of-uncommitted", "recovery writes home what is not committed",
           JOURNAL + "newest_runs.cc", "if (log_.records[i - 1].body.mark().lsn <= log_.commit) claim(i - 1);", "claim(i - 1);"),
    Mutant("replay-oldest", "recovery lets an older version of a block win",
           JOURNAL + "newest_runs.cc", "std::reverse(runs_.begin(), runs_.end());", ""),
    Mutant("given-up-log-is-trusted", "what is equal counts as durable after a log is given up whose blocks were not home",
           CORE + "rejoin.cc", "if (v_.home_end < v_.log.committed_end()) v_.distrusts_disk = true;", ""),
    Mutant("reading-again-unchecked", "what a start reads a second time is taken as it comes",
           JOURNAL + "replay.cc", "!= body.block_crc[r.payload + b])", "!= body.block_crc[r.payload + b] && false)"),
    Mutant("loaded-zeros-forgotten", "a start brings into memory what was written, and not what was trimmed",
           CORE + "volume.cc", "[&](const Extent& e, Lsn lsn) { committed.put_zeros(e.lba, e.blocks, lsn.v); });", "[](const Extent&, Lsn) {});"),
    Mutant("neither-home-nor-loaded", "of what a start does not load it leaves out the newest",
           JOURNAL + "replay.cc", "home.put(all.first(first))", "home.put(all.first(first - std::min<std::size_t>(first, 1)))"),
    Mutant("leaves-the-arena-early", "a block leaves memory while its write home is under way",
           CORE + "checkpointer.cc", "written_ = writes_.front().end;", "written_ = next_item_;"),
    Mutant("zeros-without-bound", "zero extents that wait to go home take memory without end",
           CORE + "client_write.cc", "if (is_zeroing(r) && pending_.zero_extents()", "if (false && pending_.zero_extents()"),
    Mutant("zeros-before-older-blocks", "recovery writes a zero extent home before the older blocks within it",
           JOURNAL + "replay.cc", "if (r.zeros || read_blocks_ + gap_blocks_max", "if (read_blocks_ + gap_blocks_max"),
    Mutant("member-added-before-durable", "a member is recorded before it holds what was acknowledged without it",
           CORE + "membership.cc", "if (p.durable_end >= std::max(p.add_barrier, term_.end())) return start_change", "return start_change"),
    Mutant("joins-an-epoch-unknown", "a member is recorded before it has the record of the epoch that it joins",
           CORE + "membership.cc", "std::max(p.add_barrier, term_.end())", "p.add_barrier"),
    Mutant("creeping-is-progress", "a peer that makes one record durable now and then is waited for, whatever is behind it",
           CORE + "peer_links.cc", "if (s.due_end != 0 && p.durable_end < s.due_end) return;",
           "if (s.due_end == p.durable_end + 1) return;",
           more=((CORE + "peer_links.cc", "s.due_end = std::max(s.sent_end, p.durable_end + 1);", "s.due_end = p.durable_end + 1;"),)),
    Mutant("journal-kept-without-room", "the journal is kept for a replica that is away although the largest record has no place in it",
           CORE + "peer_links.cc", "v_.log.ring_bytes() / 2 && v_.log.place(record_blocks_max);", "v_.log.ring_bytes() / 2;"),
    Mutant("follower-fills-the-journal", "the journal is kept for each connected peer, however far behind",
           CORE + "peer_links.cc", "backlog(p) > v_.log.ring_bytes() / 2", "backlog(p) > v_.log.ring_bytes()"),
    Mutant("slow-follower-is-waited-for", "only members are closed when they are slow",
           CORE + "membership.cc", "if (!(members & set_of(p.id())) || p.filling()) return true;", "if (!(members & set_of(p.id())) || p.filling()) return false;"),
    Mutant("closed-below-min-in-sync", "a slow member is closed although fewer are left then than are wanted",
           CORE + "membership.cc", "return enough && may_leave_out(p);", "return may_leave_out(p);"),
    Mutant("new-follower-is-behind", "of one that has just connected nothing counts before its first acknowledgement",
           CORE + "peer_links.cc", "RecordNo has = std::max(p.durable_end, p.streaming()->begun_at);", "RecordNo has = p.durable_end;"),
    Mutant("target-may-stand-still", "one that is being filled is waited for, whatever it does",
           CORE + "peer_links.cc", "if (p.filling()) return watch_filling(p, s);",
           "if (p.filling()) { s.due_end = 0; return; }"),
    Mutant("lost-answer-is-success", "no answer of the arbiter counts as its consent",
           CORE + "membership.cc", "if (answer.outcome == Outcome::granted ||", "if (answer.outcome != Outcome::refused ||"),
    Mutant("promotion-by-lost-answer", "the same for a promotion",
           CORE + "promotion.cc", "bool ours = answer.outcome == Outcome::granted ||",
           "bool ours = answer.outcome != Outcome::refused ||"),
    Mutant("alone-before-it-is-durable", "acknowledged without a member before the epoch without it is durable",
           CORE + "term.cc", "(counted() & set_of(peer.id()))", "(in_sync_ & set_of(peer.id()))"),
    Mutant("removed-without-arbiter", "a member is removed and the arbiter is not asked",
           CORE + "membership.cc", "if (v_.config.arbiter == Arbiter::manual) apply_change();", "if (true) apply_change();"),
    Mutant("promoted-without-claim", "a replica is promoted although a member is not reachable",
           CORE + "promotion.cc", "if (!away.empty())", "if (false)"),
    Mutant("old-epoch-accepted", "a secondary follows an older primary in place of a newer one and cuts off what the newer one's "
           "epoch has brought. Both sides ask several questions that would end this; they all go unasked",
           CORE + "secondary.cc", "if (m.epoch.counter <= epoch_.counter)", "if (false)",
           more=((CORE + "secondary.cc", "if (m.epoch.counter < seen.counter || (m.epoch.counter == seen.counter && m.epoch.id != "
                  "seen.id))\n    return fmt::format(\"it is at epoch", "if (false)\n    return fmt::format(\"it is at epoch"),
                 (CORE + "history.cc", "if (common < here.commit) return SplitBrain",
                  "if (true) return std::nullopt;\n  if (common < here.commit) return SplitBrain"),
                 (CORE + "peer_match.cc", "if (newer || (m.last_epoch.counter == ours.counter && m.last_epoch.id != ours.id)) return unknown_epoch(peer, m.last_epoch.counter);",
                  "(void)newer;"),
                 (CORE + "history.cc", "if (common >= commit) return verdict::Follow{};", "if (true) return verdict::Follow{};"))),
    Mutant("demoted-too-early", "a primary steps down before everything is on the other replicas",
           CORE + "primary.cc", "return membership_.demoting() && io_.settled() && membership_.settled() && v_.log.committed_end() == v_.log.end();",
           "return membership_.demoting();"),
    Mutant("resync-before-commit", "a resync sends content that is older than what the target has written home",
           CORE + "resync_source.cc", "|| v_.log.committed_end() < s.not_before) return;", ") return;"),
    Mutant("torn-tail-comes-back", "recovery does not cut the log where it found its end",
           JOURNAL + "recovery.cc", "sb.cut_incarnation = sb.incarnation;", "", harmless=True),
    Mutant("resync-serial-again", "resync data of two connections has the same serials",
           CORE + "resync_target.cc", "std::uint64_t{1} << 63 | ++serial_;", "std::uint64_t{1} << 63 | (flow() ? flow()->last : 0);", harmless=True),
    Mutant("resync-without-inconsistent", "the target does not note that its data area means nothing",
           CORE + "disk_condition.cc", "[](const auto& s) { return DiskState(s); }", "[](const auto&) { return DiskState(); }"),
    Mutant("resync-counts-as-member", "a replica that is being filled is recorded as in sync",
           CORE + "membership.cc", "if (!p.is_streaming() || p.filling()) continue;",
           "if (!p.is_streaming()) continue;"),
    Mutant("torn-payload-accepted", "recovery does not check the payload",
           JOURNAL + "ring_reader.cc", "if (!verify_payload(*body, blocks)) return std::nullopt;",
           "(void)verify_payload(*body, blocks);"),
    Mutant("commit-of-another-epoch", "a commit point of the primary is applied to records that are not yet matched with it",
           CORE + "secondary.cc", "auto* f = std::get_if<Following>(&link_);\n  if (!f || !rejoin_.steady()) return;\n  LogMark commit = f->in.commit;",
           "if (!incoming()) return;\n  LogMark commit = incoming()->commit;",
           more=((CORE + "secondary.cc", "if (commit.lsn.v > 0 && (within_a_record || other_hash))", "if (false && (within_a_record || other_hash))"),)),
    Mutant("tail-before-data-sync", "the tail moves while the data area's cache holds the blocks",
           CORE + "checkpointer.cc", "if (items_.empty() && zeros_.empty() && !sync_this_round_) {", "if (true) {"),
    Mutant("tail-by-the-commit-point", "the tail follows the primary's commit point and not what is home here",
           CORE + "secondary.cc", "v_.commit_upto(end, [](const LogRecord&) {});\n  note_covered(end, commit.lsn);",
           "v_.commit_upto(end, [](const LogRecord&) {});\n  v_.home_end = v_.log.committed_end();\n  note_covered(end, commit.lsn);"),
    Mutant("promoted-outside-the-set", "a replica that was left behind is promoted",
           CORE + "promotion.cc", "if (!(set & set_of(self)))\n    return fmt::format(\"replica {} is not in the in-sync set",
           "if (false)\n    return fmt::format(\"replica {} is not in the in-sync set"),
    Mutant("resync-beside-the-stream", "resync data is what the data area holds, whatever has come in the stream since",
           CORE + "resync_source.cc", "auto found = v_.committed.find(Lba{read.chunk.word * 64 + bit});\n  if", "BlockIndex::Found found;\n  if"),
    Mutant("resync-leaves-out-older", "a block is left out although its record does not come on this connection",
           CORE + "resync_source.cc", "&& Lsn{found.serial} > peer.resync()->base) return nullptr;", "&& peer.resync()) return nullptr;"),
    Mutant("resync-of-old-blocks", "a block that was written home while it was read is sent as it was",
           CORE + "resync_source.cc", "bool stale = read.home_changes != v_.home_changes;", "bool stale = false;"),
    Mutant("bit-cleared-early", "bits are cleared although the replica lacks what is committed behind the point that it covers",
           CORE + "dirty.cc", "if (!clean) return;", ""),
    Mutant("parting-keeps-the-old", "marks that were made since a parting go with those of before",
           CORE + "dirty.cc", "if (!fresh_.empty()) set_bitmap_bits(fresh_, lba, blocks);", ""),
    Mutant("acks-of-a-resync-count", "what a replica acknowledges while it is filled counts as all that it lacked, once the connection is lost",
           CORE + "peer_links.cc", "l && !p.filling()) {", "l && !p.resync() && p.refill <= p.durable_end) {"),
    Mutant("covered-while-filled", "marks are cleared by what was known of a replica before it was to be filled",
           CORE + "resync_source.cc", "v_.find_link(peer.id())->covered_end = 0;", "", harmless=True),
    Mutant("made-anew-is-promoted", "a replica that was made anew is promoted with a part of what it had acknowledged",
           CORE + "secondary.cc", "v_.disk.note_refill(m.holds, epoch_, of == m.epochs.rend() ? epoch_ : of->epoch);", "(void)of;"),
    Mutant("empty-over-a-member", "an empty replica is promoted although a member holds records that it does not know to be committed",
           CORE + "promotion.cc", "if (v_.log.last_mark().lsn.v > 0 || v_.config.arbiter == Arbiter::external) return \"\";", "return \"\";",),
    Mutant("empty-and-the-whole-set", "an empty replica is promoted because it is all that the arbiter counts",
           CORE + "promotion.cc", "filled |= set_of(l.config.id);", ""),
    Mutant("given-up-is-still-held", "a member speaks for what it had, although it has given that up for another history", CORE + "history.cc",
           "bool given_up = there.first_by_force && ", "bool given_up = there.first_by_force && false && "),
    Mutant("resync-never-yields", "a resync goes on as fast as it can, whatever clients' requests take", CORE + "pace.cc",
           "  if (slow) rate_ = std::max(rate_ / 2, rate_min_);\n  else rate_", "  rate_"),
    Mutant("resync-stands-still", "a resync gives way to clients altogether", CORE + "pace.cc",
           "std::max(rate_ / 2, rate_min_)", "rate_ / 2 + 1"),
    Mutant("source-of-another-history", "what an unfinished resync has brought counts as this history's, whichever source sent it", CORE + "history.cc",
           "return source == offer.epoch.id ||", "return true || source == offer.epoch.id ||"),
    Mutant("source-not-durable", "content of a resync goes home before the disk says whose it is", CORE + "secondary.cc",
           "  v_.write_superblock(Volume::for_source);\n", "  v_.disk.source_durable();\n"),
    Mutant("flushes-of-a-suspension-count", "what waited for a replica that was away counts as what requests usually take", CORE + "client_io.cc",
           "if (pace_.tells(waiters_.front().since)) pace_", "pace_"),
    Mutant("one-target-takes-it-all", "of two targets of a slow resync the first has every turn", CORE + "resync_source.cc",
           "turn_ = (at + 1) % peers_.size();", "turn_ = 0;"),
    Mutant("first-record-sent-early", "others get the first record there is before it is durable at its writer. Two rules keep it back; "
           "both go", CORE + "peer_links.cc", "if (!peer.is_streaming() || membership_.first_record_not_durable()) return;", "if (!peer.is_streaming()) return;",
           more=((CORE + "peer_match.cc", "  if (!term_.in_flight()) return false;\n  peer.in<Peer::Matching>()->again = true;",
                  "  if (true || !term_.in_flight()) return false;\n  peer.in<Peer::Matching>()->again = true;"),)),
    Mutant("counted-tail-is-cut", "a tail is cut although it lies in an epoch that counts this replica",
           CORE + "history.cc", "if ((epochs[i].in_sync & set_of(here.replica)) != 0 || (epochs[i].in_sync & witnesses) == 0) return false;",
           "if ((epochs[i].in_sync & witnesses) == 0) return false;"),
    Mutant("unwitnessed-tail-is-cut", "a tail is cut because no epoch of it counts this replica, although others may have acknowledged it",
           CORE + "history.cc", "if ((epochs[i].in_sync & set_of(here.replica)) != 0 || (epochs[i].in_sync & witnesses) == 0) return false;",
           "if ((epochs[i].in_sync & set_of(sb.replica)) != 0) return false;"),
    Mutant("witness-in-pieces", "a replica that was made anew, or lost records, speaks for what was acknowledged",
           CORE + "promotion.cc", "if (l.state && l.state->whole) members", "if (l.state) members"),
    Mutant("granted-before-settled", "the arbiter is asked while something is under way, and the grant grows old",
           CORE + "promotion.cc", "waiting_for_.empty() && settled && !looks_for_peers()) claimed();",
           "waiting_for_.empty() && !looks_for_peers()) claimed();\n  (void)settled;"),
    Mutant("left-out-unknowing", "a primary leaves out a member that may believe itself to be alone",
           CORE + "membership.cc", "v_.config.on_peer_loss == OnPeerLoss::go_on && needs_us(p)",
           "v_.config.on_peer_loss == OnPeerLoss::go_on"),
    Mutant("committed-by-who-is-away", "what a member acknowledged counts although it is away, and may have cut it off since",
           CORE + "term.cc", "p.is_streaming() ? p.durable_end : 0", "p.durable_end"),
    Mutant("catch-up-across-a-loss", "records are sent to one that was left behind a loss, which also left blocks without a record",
           CORE + "peer_match.cc", "if (membership_.lossy_behind(common_end)) return begin_resync(peer, common_end);", ""),
    Mutant("marks-survive-a-loss", "what is marked counts although blocks of lost records are in the data area",
           CORE + "volume.cc", "    for (DirtyMap& d : dirty) d.forget();\n", "    ;\n"),
    Mutant("unfinished-is-kept", "what an interrupted resync left shows as a side of a split brain",
           CORE + "history.cc", "if (unfinished) return verdict::Resync{};", "(void)unfinished;"),
    Mutant("complete-before-is-lost", "what an interrupted resync left counts for nothing, although it was complete up to where that began",
           CORE + "history.cc", "if (!part->base || part->base->lsn.v == 0) return true;", "return true;",
           more=((CORE + "history.cc", "(!peer->base || peer->base->lsn <= common)", "true"),)),
    Mutant("forgotten-loss-is-trusted", "who has forgotten all epochs that are known here is trusted, although a loss was among them",
           CORE + "history.cc", " &&\n         !(epochs.front().flags & epoch_lossy)", ""),
    Mutant("forgotten-force-is-trusted", "a member that has forgotten all epochs that are known here is trusted, although a replica was promoted by force since",
           CORE + "history.cc", "return (e.flags & epoch_by_force) && !(left.in_sync & set_of(e.writer));", "return false && e.start == Lsn{};"),
    Mutant("filled-from-the-tail-of-a-loss", "who stands before a loss is measured by the source's tail and shows as split brain",
           CORE + "peer_match.cc", "if (membership_.lossy_behind(common_end)) return begin_resync(peer, common_end);", "if (membership_.lossy_behind(common_end)) return begin_resync(peer);"),
    Mutant("loss-settled-late", "the disk goes on calling itself damaged while the arbiter does not answer a change",
           CORE + "membership.cc", "if (term_.logged()) v_.settle_loss(term_.end());", "if (term_.logged() && !change_) v_.settle_loss(term_.end());"),
    Mutant("heard-survives-a-loss", "what was heard of others before a loss marks them as having all that is here",
           CORE + "volume.cc", "    for (Link& l : links) l.covered_end = 0;\n", "    ;\n"),
    Mutant("home-before-commit", "blocks are written home before the disk says that they are committed",
           CORE + "checkpointer.cc", "v_.commit_durable >= v_.log.mark_before(end).lsn", "true"),
    Mutant("loss-shown-unsynced", "what a loss left in the data area is shown before it is durable",
           CORE + "core.cc", "if (!promotion.accepts_damage()) {", "if (!promotion.accepts_damage() || secondary()) {"),
    Mutant("filled-and-nothing-committed", "nothing is committed while a member is filled that cannot be left out",
           CORE + "term.cc", "p.is_streaming() ? p.durable_end : 0", "!suspended() ? p.durable_end : 0"),
    Mutant("grant-not-doubted", "a primary that meets a newer epoch does not ask the arbiter whether it still counts",
           CORE + "peer_match.cc", "if (v_.config.arbiter == Arbiter::external) membership_.ask_whether_granted(counter);", ""),
    Mutant("newest-epoch-is-named", "a promotion names the newest epoch known, although that epoch counts it",
           CORE + "history.cc", "      named = e.epoch;\n", ""),
    Mutant("damage-ends-a-split-brain", "a replica whose journal was damaged takes whatever history comes",
           CORE + "history.cc", "if (!damage || has_what_was_damaged(here, *damage, there))", "if (true || has_what_was_damaged(here, *damage, there))"),
    Mutant("damaged-epoch-forgotten", "the epoch of the newest record is looked for before the damage only",
           JOURNAL + "recovery.cc", "newest_known(epochs);", "newest_by(epochs, last_.lsn);"),
    Mutant("epoch-before-its-superblock", "an epoch record counts as durable although the superblock does not know the epoch",
           CORE + "volume.cc", "    log.hold_durable(no);\n", ""),
    Mutant("loss-not-flagged", "a promotion in spite of a loss looks like any other one",
           CORE + "history.cc", "flags |= epoch_by_force | (facts.whole ? 0 : std::uint32_t{epoch_lossy});",
           "flags |= epoch_by_force;"),
    Mutant("force-stays", "force on a primary that waits for nobody is kept for the next loss",
           CORE + "membership.cc", "if (!term_.suspended()) forced_alone_ = false;", "", more=((CORE + "membership.cc", "forced_alone_ = term_.suspended();", "forced_alone_ = true;"),)),
    Mutant("going-on-by-force-not-flagged", "the epoch of a primary that goes on alone by force looks like any other one",
           CORE + "membership.cc", "granted.by_force ? std::uint32_t{epoch_by_force} : 0, mark_of", "0, mark_of"),
    Mutant("tail-by-force-is-cut", "a tail that began by force is cut like any other one",
           CORE + "history.cc", "!there.by_force && !forced_here;", "!there.by_force;"),
    Mutant("force-is-forgotten", "a promotion by force that has left the table is forgotten with its epoch", "spool-repl/format/src/epoch.cc",
           "if (oldest.flags & epoch_by_force) {", "if (oldest.flags & epoch_by_force && false) {"),
    Mutant("force-out-of-the-table-is-trusted", "a table that has forgotten a promotion by force is trusted as any other one",
           CORE + "history.cc", "return !forced_unseen(here.epochs, there.epochs, left.in_sync) &&\n         std::none_of(", "return std::none_of("),
    Mutant("split-brain-forgotten", "a split brain is known only while the process runs", CORE + "volume.cc",
           "sb.split_brains.push_back({id, parted});\n  write_superblock(for_split_brain);",
           "sb.split_brains.push_back({id, parted});"),
    Mutant("promoted-in-a-split-brain", "one of two histories is promoted without a word", CORE + "promotion.cc",
           "if (std::string why = split_brain(); !why.empty()) return why;", ""),
    Mutant("split-brain-never-ends", "a split brain is shown although both follow a third replica by now", CORE + "volume.cc",
           "if (!ours.id.is_nil() && link.state->epoch.epoch == ours) end_split_brain(link.config.id);", "(void)ours;"),
    Mutant("begin-below-commit", "a part of a history is cut below what is committed in it", CORE + "history.cc",
           "if (offer.from < here.commit) return verdict::Resync{};", "if (false) return verdict::Resync{};"),
    Mutant("old-value-counts", "an arbiter's value that is older than the log speaks for it", CORE + "promotion.cc",
           "outdated_ = current_ && current_->epoch.counter < newest_known().epoch.counter;", "outdated_ = false;"),
    Mutant("given-up-unseen", "a history is given up before anything is known of what the winner has of it", CORE + "discard.cc",
           "return rejoin_.gives_up() || !split || split->parted;", "return true;"),
    Mutant("old-table-is-trusted", "a tail with more epochs than the table holds is judged by those that are in it",
           CORE + "history.cc", "if (epochs.empty() || epochs.front().start > lsn + 1) return false;", "if (epochs.empty()) return false;"),
    Mutant("follower-is-promoted-alone", "the first promotion asks for the members only, although another replica may hold the volume",
           CORE + "promotion.cc", "(first || (newest.in_sync & set_of(l.config.id)))", "((first && false) || (newest.in_sync & set_of(l.config.id)))"),
    Mutant("failed-device-sends-what-it-lost", "a record that was read for a peer is looked up in a log that has lost it",
           CORE + "peer_links.cc", "if (stream.sent_end < v_.log.first()) return;", ""),
    Mutant("uncommitted-is-trusted", "blocks of records that a restart finds uncommitted count as durable where they are equal",
           CORE + "volume.cc", "if (commit_end < log.end()) distrusts_disk = true;", ""),
    Mutant("bit-after-the-tail", "bits are written after the tail has moved over the records that they stand for",
           CORE + "checkpointer.cc", "write_bitmaps(DirtyMap::Pages::lacking);\n  write_digests();", "write_digests();"),
    Mutant("bitmap-of-any-age", "a bitmap is used for a replica that lacks more than it tells",
           CORE + "resync_source.cc", "return d && d->slot().known && d->slot().since.lsn <= content;", "return d && d->slot().known;",
           ((CORE + "history.cc", "if (since > common || here.commit > common) return false;\n  return record_held;", "return true;"),)),
    Mutant("resynced-not-marked", "the target of a resync does not mark for others what it was sent",
           CORE + "resync_target.cc", "for (DirtyMap& d : v_.dirty) d.mark(e.lba, e.blocks);", ""),
    Mutant("bitmap-before-commit", "a resync looks at the marks before what the replica has is committed here",
           CORE + "resync_source.cc",
           "if (v_.now < s.pause_until || v_.log.committed_end() < s.not_before) return;\n  if (!s.chosen) choose_blocks(peer, s);",
           "if (!s.chosen) choose_blocks(peer, s);\n  if (v_.now < s.pause_until || v_.log.committed_end() < s.not_before) return;"),
    Mutant("resync-ends-without-its-marks", "the marks of a resync are not durable when it ends",
           CORE + "checkpointer.cc", "if (new_first_ == v_.log.first() && !sync_this_round_) {", "if (new_first_ == v_.log.first()) {"),
    Mutant("equal-is-trusted", "what an unfinished resync left on the disk counts as durable where it is equal",
           CORE + "volume.cc", "distrusts_disk = disk.inconsistent();", ""),
    Mutant("consistent-without-sync", "a resync ends without a sync of what was found equal",
           CORE + "resync_target.cc", "if (checkpointer_.rounds_done() < f.goal->round) return;", ""),
    Mutant("damage-forgotten", "a replica whose journal has lost records counts as whole",
           JOURNAL + "recovery.cc", "if (scan.damage) make_inconsistent(scan, out.log);", ""),
    Mutant("damage-is-the-end", "damage in the log counts as its end",
           JOURNAL + "recovery.cc", "if (upto > last_.lsn)", "if (false)"),
    Mutant("journal-error-forgotten", "a failed journal write counts as done",
           CORE + "volume.cc", 'if (error != 0) {\n    fail_device(fmt::format("the journal failed a write (',
           'if (false) {\n    fail_device(fmt::format("the journal failed a write ('),
    Mutant("home-error-forgotten", "a failed home write counts as done",
           CORE + "checkpointer.cc", "if (error != 0) v_.fail_device(fmt::format(\"the data area failed a write",
           "if (false) v_.fail_device(fmt::format(\"the data area failed a write"),
    Mutant("sync-tried-again", "a failed sync of the data area is tried again, and the second one succeeds",
           CORE + "checkpointer.cc", 'v_.fail_device(fmt::format("the data area failed a sync ({})", errno_text(error)));',
           "v_.out.home_syncs.push_back({make_token(TokenKind::home_sync, 0)});"),
    Mutant("superblock-error-forgotten", "a failed write of the superblock counts as done",
           CORE + "volume.cc", 'if (error != 0) {\n    fail_device(fmt::format("the journal failed a write of the superblock',
           'if (false) {\n    fail_device(fmt::format("the journal failed a write of the superblock'),
    Mutant("error-after-ack-forgotten", "a flush after a failed write succeeds",
           CORE + "client_io.cc", "if (v_.failed) return complete(r, EIO);\n  std::uint64_t target",
           "if (v_.failed) return complete(r, 0);\n  std::uint64_t target"),
    Mutant("read-error-forgotten", "a failed read of the data area returns whatever memory holds",
           CORE + "client_read.cc", "else if (read.unreadable.empty()) answer_read(read.request);", "else if (true) answer_read(read.request);"),
    Mutant("repair-of-what-was-overwritten", "content that was fetched counts although the block has been written meanwhile",
           CORE + "repair.cc", "if (v_.committed.touched(lba)) return End::overwritten;", "",
           more=((CORE + "repair.cc", "TL_CHECK(v_.committed.find(lba).kind == BlockIndex::Kind::absent);", ""),)),
    Mutant("equal-by-luck-is-trusted", "a block that is not what was written there is left as it is where the source has just that", CORE + "resync_target.cc",
           "(v_.distrusts_disk || !v_.digests.fits(lba, block))", "v_.distrusts_disk"),
    Mutant("digest-unchecked", "a block that can be read counts as what was written there",
           CORE + "client_read.cc", "if (v_.digests.fits(lba, block)) continue;", "continue;"),
    Mutant("wrong-block-is-spread", "the source of a resync sends what it reads",
           CORE + "resync_source.cc", "if (!stale && !read.failed) read.failed = holds_wrong(read);", ""),
    Mutant("wrong-block-is-given", "what another replica asks for is given as it is read",
           CORE + "repair_answer.cc", "error == 0 && !v_.digests.fits(", "false && !v_.digests.fits("),
    Mutant("wrong-block-is-filled-up", "a write of a part of a block keeps the rest as it is read",
           CORE + "client_write.cc", "bool wrong = w.home_changes == v_.home_changes && v_.is_wrong(", "bool wrong = false && v_.is_wrong("),
    Mutant("digests-after-the-tail", "the tail moves over records whose blocks' digests are not durable",
           CORE + "checkpointer.cc", "  write_digests();\n  if (in_flight_ == 0) store_tail();", "  if (in_flight_ == 0) store_tail();",
           more=((CORE + "checkpointer.cc", "if (phase_ == Phase::marking) write_digests();", ""),)),
    Mutant("digests-not-replayed", "a start does not know the digests of what it writes home",
           JOURNAL + "replay.cc", "log_.digests.put(Lba{r.lba + b}, content.data() + b * block_size);", ";"),
    Mutant("digests-go-with-the-log", "the log is given up for a resync before the digests of what it brought are durable",
           CORE + "rejoin.cc", "bool known = !v_.digests.changed();", "bool known = true;"),
    Mutant("wrong-answer-is-taken", "another replica's content is not held against the digest here",
           CORE + "repair.cc", "return v_.digests.fits(lba, m.kind == FetchedBlock::Kind::zeros ? zeros.data() : m.content.data());", "return true;"),
    Mutant("digests-survive-a-loss", "blocks that lost records have left count as wrong",
           CORE + "core.cc", "    volume.digests.forget();\n", ""),
    Mutant("digests-forgotten-late", "a loss is forgotten before it is durable that nothing is known of the blocks",
           CORE + "core.cc", "    volume.digests.forget();\n", "",
           more=((CORE + "core.cc", "volume.accept_loss();", "volume.accept_loss(), volume.digests.forget();"),)),
    Mutant("read-beside-a-checkpoint-is-wrong", "a block that is written while it is read counts as wrong",
           CORE + "client_read.cc", "if (read.home_changes != v_.home_changes || !v_.is_wrong(lba, block)) read.stale = true;\n    else ", ""),
    Mutant("repair-not-written", "content that was fetched is not written again",
           CORE + "repair.cc", "v_.committed.put_data(lba, slot, repaired_serial);", ""),
    Mutant("repair-error-forgotten", "a read of a block that nobody can give returns whatever memory holds",
           CORE + "client_read.cc", "else complete(r.request, EIO);",
           "else complete(r.request, 0);"),
    Mutant("repair-untold", "a block that nobody can give is in no status",
           CORE + "repair.cc", "v_.counters.unreadable_blocks++;", ""),
    Mutant("repair-waits-for-the-dead", "who has asked a replica that is gone, or silent, is never woken",
           CORE + "repair.cc", "if (!there || v_.now >= b.deadline) b.state = State::choosing;", ""),
    Mutant("repair-ends-unheard", "requests whose repair has ended are not tried again",
           CORE + "core.cc", "primary()->on_repaired(finished);", ""),
    Mutant("repair-asks-nobody", "no replica is asked for a block that cannot be read",
           CORE + "repair.cc", "if (!best) return End::lost;", "return End::lost;"),
    Mutant("repair-by-the-unfinished", "a replica that is being filled gives blocks to others",
           CORE + "repair_answer.cc", "if (v_.disk.inconsistent() || v_.failed) return answer(q, FetchedBlock::Kind::nothing);", "",
           more=((CORE + "peer_links.cc", "bool holds = !p.filling() && link->state && !link->state->inconsistent;", "bool holds = true;"),
                 (CORE + "repair_answer.cc", "} else if (!stale && !v_.disk.inconsistent()) {", "} else if (!stale) {"))),
    Mutant("repair-of-older-content", "a replica answers although it has committed less than the one that asks",
           CORE + "repair_answer.cc", "if (v_.commit_lsn() < q.asked.after || !v_.home_is_settled()) return;", "if (!v_.home_is_settled()) return;"),
    Mutant("cut-without-archive", "a tail is cut although it could not be archived",
           CORE + "rejoin.cc", "c.step = WaitsForJournal{};\n  if (error != 0) {", "c.step = WaitsForJournal{};\n  if (false) {"),
    Mutant("catch-up-of-an-old-connection", "a record that was read for an earlier connection is sent on this one",
           CORE + "peer_links.cc", "(peer->connection_no & 0xffffffffffff) != (n & 0xffffffffffff) ||", ""),
    Mutant("cut-not-erased", "records that were cut off stay on the disk",
           CORE + "rejoin.cc", "cut_off_.push_back(v_.log.at(no).pos);", ""),
    Mutant("leftover-not-erased", "a start leaves on the disk what it found outside the log",
           JOURNAL + "recovery.cc", "TL_TRY(erase(journal, scan.leftover));", ""),
    Mutant("write-ack-forgotten", "with write_ack = durable a write is answered before it is",
           CORE + "client_write.cc", "if ((r.fua || v_.config.write_ack_durable) && !open_.empty()) {", "if (r.fua && !open_.empty()) {"),
    Mutant("counter-granted-twice", "a tail is cut for a history that an arbiter granted beside it, after its data was put back from a copy",
           CORE + "history.cc", "out.beside = out.beside || e.epoch.counter <= other.counter;", "out.beside = false;"),
    Mutant("arbiter-counts-a-stranger", "a promotion into a set with a member that the configuration does not name",
           CORE + "promotion.cc", "  if (std::string why = stranger_in(set); !why.empty()) return why;\n", ""),
    Mutant("part-without-the-rest", "a write of a part of a block makes zeros of the rest",
           CORE + "client_write.cc", "if (old) std::memcpy(v_.arena.data(slot), old, block_size);", "if (false) (void)old;"),
    Mutant("trim-rounds-outwards", "a trim of a part of a block takes the whole block",
           CORE + "client_write.cc", "put_block(Lba{block}, part.from, part.bytes, nullptr, w);", "put_block(Lba{block}, 0, block_size, nullptr, w);"),
    Mutant("part-of-an-old-block", "the rest of a block that is written in part is as it was read, whatever has come home since",
           CORE + "client_write.cc", "if (!w.fills.empty() && w.home_changes != v_.home_changes) drop_fills(w);", ""),
    Mutant("detached-device-serves", "a device that was taken away from its users goes on answering",
           CORE + "core.cc", 'parts_->volume.fail_device("the device was taken away from its users");', ";"),
    Mutant("start-asks-nobody", "a start promotes by what the log here says, and asks nobody",
           CORE + "promotion.cc", "if (started_) until =", "if (false) until ="),
    Mutant("refused-is-not-asked",
           "a promotion by force does without a primary that has just refused the link",
           CORE + "promotion.cc", "if (l.refused) until =", "if (false) until ="),
    Mutant("secondaries-see-no-split", "two secondaries do not judge each other's epochs",
           CORE + "volume.cc", "if (!link.state || link.state->primary || split_brain_with",
           "if (true || link.state->primary || split_brain_with"),
    Mutant("cut-forgets-who-counts", "a promotion goes by a log that was cut, although a newer set was known",
           CORE + "rejoin.cc",
           "  v_.sb.cut_for = c.cut.newest;\n", ""),
    Mutant("moved-tail-is-no-news", "a search for the last common record goes on below a tail that has moved meanwhile",
           CORE + "secondary.cc", "m.mark.lsn < v_.log.tail_mark().lsn) return", "false) return"),
    Mutant("other-arbiter-is-trusted", "who asks another arbiter is no obstacle to a promotion", CORE + "promotion.cc",
           "    if (l.other_arbiter)\n", "    if (false)\n"),
    Mutant("changed-arbiter-is-trusted", "a promotion does without replicas that are away, although the arbiter is a new one",
           CORE + "promotion.cc", "v_.sb.arbiter == 0 ||", "true || v_.sb.arbiter == 0 ||"),
    Mutant("newcomer-is-not-asked", "who connects while a promotion is under way is not asked",
           CORE + "promotion.cc", "  waiting_for_.push_back(id);\n  v_.out.sends.push_back(Send{id, Claim{attempt_}});\n", "  (void)id;\n"),
    Mutant("demotion-of-a-failed-device-waits", "a demotion of a device that has failed is never answered",
           CORE + "core.cc", "become_secondary();\n  refuse_demotion();", "become_secondary();"),
    Mutant("superblock-unchecked", "a damaged superblock counts as a sound one",
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


class Failed(Exception):
    """A command that must not fail: with what it wrote."""


class Tree:
    """The sources, built once; every mutant is one object file more, linked in front of the library it comes from."""

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
        """Compiles and links one; the program's path."""
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
        """What the simulator found: None, or the line that says it."""
        done = subprocess.run([str(program), "--seeds", str(seeds), "--jobs", str(jobs), "--patience", "60"],
                              capture_output=True, text=True)
        if done.returncode == 0:
            return None
        if found := re.findall(r"^seed \d+: .*", done.stdout, re.M):
            return found[-1][:160]
        print(f"mutants: repl_sim ends with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}", file=sys.stderr)
        sys.exit(2)


    def failing_test(self, m):
        """The first unit test that fails, or did not end: None, or its name."""
        names = UNIT_TESTS[:1] if any(file.startswith(CORE) for file in m.edits()) else UNIT_TESTS
        for name in names:
            program = self.linked(self.folder / "mutants" / m.name, name)
            try:
                done = subprocess.run([str(program)], capture_output=True, text=True, timeout=600)
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
    """Puts the programs into the queue in order, or why one does not build. Others want the lock too: it is let go
    now and then."""
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
