#include "marks.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace twinloft::repl::sim {

namespace {

constexpr const char* expected[] = {
    // the cluster
    "2 replicas",
    "3 replicas",
    "4 replicas",
    "5 replicas",
    "external arbiter",
    "manual, continue",
    "manual, suspend",
    "protocol A",
    "protocol B",
    "protocol C",
    "a protocol for each link",
    "min_in_sync 2",
    "a data area is adopted",
    "an operator overrules",
    "write_ack durable",
    // clients that use parts of blocks
    "client: writes parts of blocks",
    "client: zeroes parts of blocks",
    "client: a part of a block cannot be written",
    // changes of the configuration, and losses
    "arbiter: rolled back",
    "arbiter: wiped",
    "epochs: as many as the table holds",
    "fault: a link comes and goes",
    "fault: the device is taken away",
    "settings: a peer is put back",
    "settings: a peer is taken out",
    // faults of machines, links and the arbiter
    "fault on a full ring",
    "fault: a disk is lost",
    "fault: a link falls silent",
    "fault: a node cut off from all others",
    "fault: a node cut off from all others and from the arbiter",
    "fault: a replica dies while it is filled",
    "fault: a second connection while the first one lives",
    "fault: a bitmap rots",
    "fault: digests rot",
    "recovery: a sector of digests lost",
    "cut off: a tail",
    "cut off: after the end that a start has found",
    "fault: a block of the data area holds another block's content",
    "fault: a block of the data area rots",
    "fault: a block of the data area was never written",
    "fault: a sector of the journal cannot be read",
    "fault: a slow disk",
    "fault: a write lands in the wrong place of the journal",
    "fault: the journal rots",
    "fault: the journal rots outside of records",
    "recovery: a page of a bitmap lost",
    "recovery: the log ends before the damage",
    "fault: a slow link",
    "fault: everything dies at once",
    "fault: kill",
    "fault: link cut",
    "fault: power cut",
    "fault: power cuts in quick succession",
    "fault: power cut during a checkpoint",
    "fault: power cut during a journal write",
    "fault: power cut during a superblock write",
    "fault: power cut during an archive",
    "fault: the arbiter is away",
    "fault: two groups",
    "fault: the primary dies",
    "fault: the source of a resync dies",
    "arbiter: answer lost",
    "arbiter: applied late",
    "arbiter: no answer",
    // faults of disks
    "fault: a copy of the superblock is damaged",
    "fault: a failed disk is repaired",
    "fault: a home sync of a primary fails",
    "fault: a home sync of a secondary fails",
    "fault: a home write of a primary fails",
    "fault: a home write of a secondary fails",
    "fault: no room on a disk",
    "fault: a journal read fails",
    "fault: a journal read returns garbage",
    "fault: a journal write of a primary fails",
    "fault: a journal write of a secondary fails",
    "fault: a read of the data area fails",
    "fault: a superblock write of a primary fails",
    "fault: a superblock write of a secondary fails",
    "fault: an archive fails",
    // repair of the data area
    "fault: a sector of the data area cannot be read",
    "balanced read: a member answers",
    "balanced read: a member declines",
    "balanced read: asked",
    "repair: a block had wrong content",
    "repair: fetched",
    "repair: the block was written meanwhile",
    "repair: the block became readable",
    "repair: no replica has it",
    "repair: the replica that was asked cannot read it either",
    "repair: a secondary asks",
    // recovery
    "recovery: a copy of the superblock repaired",
    "recovery: after a cut",
    "recovery: damage to a record refused",
    "recovery: two damaged superblocks refused",
    "recovery: around the ring's end",
    "recovery: of an Inconsistent replica",
    "recovery: replay",
    "recovery: committed content loaded",
    "recovery: the older part written home, the newer loaded",
    "recovery: torn tail with an intact record after it",
    "recovery: uncommitted records kept",
    // roles and membership
    "membership: a member added",
    "membership: a member removed",
    "membership: a slow member closed",
    "membership: a replica far behind closed",
    "operator: promotes beside a primary",
    "role: a deposed primary answers",
    "role: demoted",
    "role: deposed",
    "role: promoted",
    "role: promoted soon after the start",
    "role: promoted while another replica still acts as primary",
    "min_in_sync: counted",
    "suspension: suspend_timeout reached",
    // buffered links
    "a buffered link",
    "link memory: refused",
    "fault: a chunk of the spill is damaged",
    "fault: a chunk of the spill is lost",
    "fault: a full spill",
    "spill: a chunk is missing or damaged",
    "spill: cannot be written",
    "spill: chunks dropped",
    "spill: found at a start",
    "spill: in use",
    "spill: read for a replica",
    "buffer: a forced promotion tells the last report",
    "buffer: a resync waits for the line",
    "buffer: full without progress",
    "buffer: full, given up",
    "buffer: given up on a secondary",
    "buffer: writers wait",
    "buffer: writers wait no more",
    // settings, and long chains of epochs
    "settings: one machine differs",
    "settings: changed on one machine after the other",
    "settings: a connection is refused",
    "a long chain of epochs",
    // force and its consequences
    "operator: a history is discarded",
    "operator: accepts a loss",
    "operator: lets a suspended primary continue",
    "operator: a discard is refused",
    "operator: promotes by force",
    "split brain: no acknowledged write at stake",
    "split brain: reported",
    "split brain: an acknowledged write is with a loser",
    // rejoin
    "catch-up from the journal",
    "rejoin: divergent tail cut off",
    "rejoin: tail archived",
    "bitmap: written",
    "marks: compared",
    "rejoin: records for a damaged journal",
    "rejoin: records for a replica that was created again",
    "resync: another source in the middle of it",
    "resync: restarted",
    "resync: bitmap",
    "resync: full",
    "resync: data declined",
    "resync: finished",
    "resync: slowed down for clients",
    "turn: of several requests",
};

}  // namespace

std::string unexpected_marks(const Coverage& coverage) {
  std::string text;
  for (const char* mark : expected)
    if (!coverage.marks.contains(mark)) text += fmt::format("never occurred: {}\n", mark);
  for (const auto& [mark, hits] : coverage.marks)
    if (std::find(std::begin(expected), std::end(expected), mark) == std::end(expected))
      text += fmt::format("not listed in marks.cc: {}\n", mark);
  return text;
}

}  // namespace twinloft::repl::sim
