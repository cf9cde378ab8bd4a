// The verdicts about two histories, as tables. docs/formats/wire.md has the rules.
#include "twinloft/spool-repl/core/history.h"

#include <gtest/gtest.h>

#include <deque>

namespace twinloft::repl::core {
namespace {

Epoch epoch(std::uint64_t counter) {
  Epoch e{counter, {}};
  if (counter > 0) e.id.bytes[2] = static_cast<std::byte>(counter);  // among the bytes that mark_of() uses
  return e;
}

// The members are the digits: 12 is {1, 2}.
ReplicaSet members(unsigned digits) {
  ReplicaSet set = 0;
  for (; digits > 0; digits /= 10) set |= set_of(digits % 10);
  return set;
}

// Each epoch begins at the LSN of ten times its counter.
EpochEntry entry(std::uint64_t counter, ReplicaId writer, unsigned in_sync, std::uint32_t flags = 0,
                 std::uint64_t after = 0) {
  return {epoch(counter), Lsn{counter * 10}, writer, members(in_sync), flags, mark_of(epoch(after))};
}

// Sixteen epochs of replica `writer`, from `first` on: a full table without earlier epochs.
EpochTable full_table(std::uint64_t first, ReplicaId writer, unsigned in_sync,
                      std::uint32_t first_flags = 0) {
  EpochTable table;
  for (std::uint64_t i = 0; i < epoch_table_max; ++i)
    table.push_back(entry(first + i, writer, in_sync, i == 0 ? first_flags : 0));
  return table;
}

// The same without the epoch `left_out`, which was begun beside these.
EpochTable full_table_beside(std::uint64_t left_out, std::uint64_t first, ReplicaId writer, unsigned in_sync,
                             std::uint32_t first_flags = 0) {
  EpochTable table = full_table(first, writer, in_sync, first_flags);
  std::erase_if(table, [&](const EpochEntry& e) { return e.epoch == epoch(left_out); });
  table.push_back(entry(first + epoch_table_max, writer, in_sync));
  return table;
}

// The state of replica 2. Its log ends at `last`.
struct Held {
  EpochTable epochs;
  Lsn last, commit;
  bool one_chain = false;
  std::optional<EpochEntry> cut_for = {};
  std::optional<std::variant<disk_state::Damaged, disk_state::Syncing>> incomplete = {};

  History view() const {
    EpochEntry newest;
    newest.in_sync = members(12);
    for (const EpochEntry& e : epochs)
      if (e.start <= last) newest = e;
    return {2, one_chain, epochs, newest, newest.epoch, last, commit, cut_for, incomplete};
  }
};

// The state of replica 2 if its content is incomplete.
Held incomplete(EpochTable epochs, Lsn last, Lsn commit,
                std::variant<disk_state::Damaged, disk_state::Syncing> why) {
  Held held{std::move(epochs), last, commit};
  held.incomplete = std::move(why);
  return held;
}

// The offer of primary 1: this history, from the record `from` on.
struct Offered {
  EpochTable epochs;
  Lsn from;
  Offer view() const { return {1, epochs.empty() ? epoch(1) : epochs.back().epoch, epochs, from}; }
};

struct Case {
  const char* rule;
  Held held;
  Offered offered;
  const char* expected;
};

std::string name_of(const Verdict& verdict) {
  if (std::holds_alternative<verdict::Follow>(verdict)) return "follow";
  if (std::holds_alternative<verdict::Cut>(verdict)) return "cut";
  if (std::holds_alternative<verdict::Resync>(verdict)) return "resync";
  return std::get<verdict::SplitBrain>(verdict).why;
}

// expected: the verdict, or a part of the text of a split brain.
void expect(const std::string& found, const Case& c) {
  bool split = found.starts_with("split brain: ");
  EXPECT_TRUE(split ? found.find(c.expected) != std::string::npos : found == c.expected)
      << c.rule << ": " << found;
}

EpochTable with_forgotten_force(EpochTable table, unsigned writers) {
  table.forgotten_force = {epoch(3), Lsn{30}, members(writers)};
  return table;
}

const std::uint32_t force = epoch_by_force, lossy = epoch_lossy, witnessed = epoch_witnessed;

const Case of_records[] = {
    {"R3: nothing is here beyond",
     {{entry(1, 1, 12)}, Lsn{19}, Lsn{19}},
     {{entry(1, 1, 12)}, Lsn{19}},
     "follow"},
    {"R3c: a member's own tail", {{entry(1, 1, 12)}, Lsn{19}, Lsn{15}}, {{entry(1, 1, 12)}, Lsn{17}}, "cut"},
    {"R3a: committed here",
     {{entry(1, 1, 12)}, Lsn{19}, Lsn{18}},
     {{entry(1, 1, 12)}, Lsn{17}},
     "has committed LSN 18"},
    {"R3c: both went on",
     {{entry(1, 1, 12), entry(2, 2, 2)}, Lsn{25}, Lsn{19}},
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{19}},
     "continued in epoch 2 without replica 1, and the last common record is 19"},
    {"R3d: the first epoch behind is a member's",
     {{entry(1, 1, 12), entry(2, 3, 23)}, Lsn{25}, Lsn{19}},
     {{entry(1, 1, 12), entry(3, 3, 3), entry(4, 1, 13)}, Lsn{19}},
     "cut"},
    {"R3e: an heir by a grant",
     {{entry(1, 1, 12), entry(2, 3, 23)}, Lsn{25}, Lsn{19}},
     {{entry(1, 1, 12), entry(3, 1, 1, 0, 2)}, Lsn{19}},
     "cut"},
    {"R3e: a grant after another epoch",
     {{entry(1, 1, 12), entry(2, 3, 23)}, Lsn{25}, Lsn{19}},
     {{entry(1, 1, 12), entry(3, 1, 1, 0, 1)}, Lsn{19}},
     "without replica 1"},
    {"R3f: one arbiter grants all",
     {{entry(1, 1, 12), entry(2, 2, 2)}, Lsn{25}, Lsn{19}, true},
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{19}},
     "cut"},
    {"R3f: it has granted a counter twice",
     {{entry(1, 1, 12), entry(2, 2, 2)}, Lsn{25}, Lsn{19}, true},
     {{entry(1, 1, 12), {epoch(9), Lsn{20}, 1, members(1), 0}, {{2, {}}, Lsn{21}, 1, members(1), 0}},
      Lsn{19}},
     "without replica 1"},
    {"R3f: an older epoch of one chain",
     {{entry(1, 1, 12), entry(5, 2, 2)}, Lsn{55}, Lsn{19}, true},
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{19}},
     "without replica 1"},
    {"R3c: force there breaks the chain",
     {{entry(1, 1, 12), entry(2, 2, 2)}, Lsn{25}, Lsn{19}, true},
     {{entry(1, 1, 12), entry(3, 1, 1, force)}, Lsn{19}},
     "without replica 1"},
    {"R3c: force here breaks the chain",
     {{entry(1, 1, 12), entry(2, 2, 2, force)}, Lsn{25}, Lsn{19}, true},
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{19}},
     "without replica 1"},
    {"R3c: force here that the table has forgotten",
     {with_forgotten_force({entry(1, 1, 12), entry(2, 2, 2)}, 2), Lsn{25}, Lsn{5}, true},
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{9}},
     "without replica 1"},
    {"R3j: a member that was promoted in spite of a loss",
     {{entry(1, 1, 12)}, Lsn{19}, Lsn{15}},
     {{entry(1, 1, 12), entry(2, 1, 1, force | lossy)}, Lsn{17}},
     "has discarded or lost writes of epoch 1"},
    {"R3h: a member by force has what it had",
     {{entry(1, 1, 12)}, Lsn{19}, Lsn{15}},
     {{entry(1, 1, 12), entry(2, 1, 1, force)}, Lsn{17}},
     "cut"},
    {"R3h: a member that has given it up for a stranger's force",
     {{entry(1, 1, 12)}, Lsn{19}, Lsn{15}},
     {{entry(1, 1, 12), entry(2, 3, 3, force), entry(3, 1, 13)}, Lsn{17}},
     "has discarded or lost writes of epoch 1"},
    {"R3g: witnesses lack it, and it was acknowledged to nobody",
     {{entry(1, 1, 13), entry(2, 3, 3)}, Lsn{25}, Lsn{19}},
     {{entry(1, 1, 13), entry(3, 1, 13, witnessed)}, Lsn{19}},
     "cut"},
    {"R3g: it may have been acknowledged here",
     {{entry(1, 1, 12), entry(2, 2, 24)}, Lsn{25}, Lsn{19}},
     {{entry(1, 1, 12), entry(3, 1, 14, witnessed)}, Lsn{19}},
     "without replica 1"},
    {"R3g: no witness is counted",
     {{entry(1, 1, 13), entry(2, 3, 3)}, Lsn{25}, Lsn{19}},
     {{entry(1, 1, 13), entry(3, 1, 1, witnessed)}, Lsn{19}},
     "without replica 1"},
    {"R3i: a forgotten tail of a member",
     {{entry(1, 1, 12)}, Lsn{19}, Lsn{15}},
     {full_table(5, 1, 12), Lsn{17}},
     "cut"},
    {"R3i: a forgotten tail of a stranger",
     {{entry(1, 2, 2)}, Lsn{19}, Lsn{15}},
     {full_table(5, 1, 1), Lsn{17}},
     "without replica 1"},
    {"R3i: it has forgotten a loss as well",
     {{entry(1, 1, 12)}, Lsn{19}, Lsn{15}},
     {full_table(5, 1, 12, lossy), Lsn{17}},
     "has discarded or lost writes of epoch 1"},
    {"R3i: it has forgotten a stranger's force",
     {{entry(1, 1, 12)}, Lsn{19}, Lsn{15}},
     {with_forgotten_force(full_table(5, 1, 12), 3), Lsn{17}},
     "has discarded or lost writes of epoch 1"},
    {"R3k: an epoch of a member beside a table that does not reach back",
     {{entry(1, 1, 12), entry(5, 2, 12)}, Lsn{55}, Lsn{15}},
     {full_table_beside(5, 3, 1, 12), Lsn{19}},
     "cut"},
    {"R3k: the table reaches back",
     {{entry(1, 1, 12), entry(5, 2, 12)}, Lsn{55}, Lsn{15}},
     {full_table_beside(5, 3, 1, 12, lossy), Lsn{29}},
     "has discarded or lost writes of epoch 5"},
    {"R3k: an epoch without the primary",
     {{entry(1, 1, 12), entry(5, 2, 2)}, Lsn{55}, Lsn{15}},
     {full_table_beside(5, 3, 1, 12), Lsn{19}},
     "without replica 1"},
    {"R3k: it may have forgotten a loss",
     {{entry(1, 1, 12), entry(5, 2, 12)}, Lsn{55}, Lsn{15}},
     {full_table_beside(5, 3, 1, 12, lossy), Lsn{19}},
     "has discarded or lost writes of epoch 5"},
    {"R3k: it has forgotten a stranger's force",
     {{entry(1, 1, 12), entry(5, 2, 12)}, Lsn{55}, Lsn{15}},
     {with_forgotten_force(full_table_beside(5, 3, 1, 12), 3), Lsn{19}},
     "has discarded or lost writes of epoch 5"},
    {"R9: a part of a history",
     incomplete({entry(1, 1, 12), entry(2, 2, 2)}, Lsn{25}, Lsn{0},
                disk_state::Syncing{epoch(9), std::nullopt}),
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{19}},
     "cut"},
    {"R3a: a part of a history is not cut below what is committed",
     incomplete({entry(1, 1, 12), entry(2, 2, 2)}, Lsn{25}, Lsn{22},
                disk_state::Syncing{epoch(9), std::nullopt}),
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{19}},
     "resync"},
    {"R9: a part that was complete in another history",
     incomplete({entry(1, 1, 12), entry(2, 2, 2)}, Lsn{25}, Lsn{0},
                disk_state::Syncing{epoch(9), LogPoint{epoch(2), Lsn{22}}}),
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{19}},
     "without replica 1"},
    {"R9: a part that was complete in this history",
     incomplete({entry(1, 1, 12), entry(2, 2, 2)}, Lsn{25}, Lsn{0},
                disk_state::Syncing{epoch(9), LogPoint{epoch(1), Lsn{15}}}),
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{19}},
     "cut"},
    {"R17: a damaged journal of a history that is there",
     incomplete({entry(1, 1, 12)}, Lsn{12}, Lsn{12},
                disk_state::Damaged{Lsn{18}, epoch(1), entry(1, 1, 12), {}}),
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{12}},
     "follow"},
    {"R17: a damaged journal of a member beside a table that does not reach back",
     incomplete({entry(1, 1, 12)}, Lsn{12}, Lsn{12},
                disk_state::Damaged{Lsn{18}, epoch(1), entry(5, 2, 12), {}}),
     {full_table_beside(5, 3, 1, 12), Lsn{12}},
     "follow"},
    {"R17: nothing was known to be committed, and the table does not reach back",
     incomplete({entry(1, 1, 12)}, Lsn{12}, Lsn{0},
                disk_state::Damaged{Lsn{0}, std::nullopt, entry(5, 2, 12), {}}),
     {full_table_beside(5, 3, 1, 12), Lsn{12}},
     "follow"},
    {"R17: that table may have forgotten a loss",
     incomplete({entry(1, 1, 12)}, Lsn{12}, Lsn{12},
                disk_state::Damaged{Lsn{18}, epoch(1), entry(5, 2, 12), {}}),
     {full_table_beside(5, 3, 1, 12, lossy), Lsn{12}},
     "committed records up to LSN 18"},
    {"R17: a damaged journal of a history that is not there",
     incomplete({entry(1, 1, 12)}, Lsn{12}, Lsn{12},
                disk_state::Damaged{Lsn{28}, epoch(2), entry(2, 2, 2), {}}),
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{12}},
     "before the journal was damaged, it had epoch 2 and committed records up to LSN 28"},
};

TEST(JudgeRecords, AsInTheTable) {
  for (const Case& c : of_records) expect(name_of(judge_records(c.held.view(), c.offered.view())), c);
}

const Case of_resyncs[] = {
    {"R3: nothing is here", {{}, Lsn{0}, Lsn{0}}, {{entry(1, 1, 12)}, Lsn{19}}, "resync"},
    {"R3: all that is here is there",
     {{entry(1, 1, 12)}, Lsn{15}, Lsn{15}},
     {{entry(1, 1, 12)}, Lsn{19}},
     "resync"},
    {"R3a: committed here behind its beginning",
     {{entry(1, 1, 12), entry(2, 2, 2)}, Lsn{29}, Lsn{28}},
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{25}},
     "has committed LSN 28, and the history of replica 1 begins at LSN 25"},
    {"R3c: both went on",
     {{entry(1, 1, 12), entry(2, 2, 2)}, Lsn{25}, Lsn{19}},
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{35}},
     "continued in epoch 2 without replica 1"},
    {"R7: the log was cut for that history",
     {{entry(1, 2, 2)}, Lsn{15}, Lsn{12}, false, entry(6, 3, 3)},
     {full_table(5, 1, 13), Lsn{199}},
     "resync"},
    {"R7: the log was cut for another history",
     {{entry(1, 2, 2)}, Lsn{15}, Lsn{12}, false, entry(4, 3, 3)},
     {full_table(5, 1, 13), Lsn{199}},
     "has committed LSN 12, and no common record is known"},
    {"R3i: a member has forgotten it",
     {{entry(1, 1, 12)}, Lsn{15}, Lsn{12}},
     {full_table(5, 1, 12), Lsn{199}},
     "resync"},
    {"R3c: nothing in common is as good as force",
     {{entry(1, 3, 23)}, Lsn{15}, Lsn{0}},
     {{entry(5, 3, 13)}, Lsn{59}},
     "without replica 1"},
    {"R9: a part of a history",
     incomplete({entry(2, 2, 2)}, Lsn{25}, Lsn{25}, disk_state::Syncing{epoch(9), std::nullopt}),
     {{entry(1, 1, 12)}, Lsn{19}},
     "resync"},
    {"R17: a damaged journal of a history that is not there",
     incomplete({entry(1, 1, 12)}, Lsn{12}, Lsn{12},
                disk_state::Damaged{Lsn{28}, epoch(2), entry(2, 2, 2), {}}),
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{12}},
     "before the journal was damaged"},
};

TEST(JudgeResync, AsInTheTable) {
  for (const Case& c : of_resyncs) expect(name_of(judge_resync(c.held.view(), c.offered.view())), c);
}

TEST(JudgePeer, WhatItKnowsAsCommitted) {
  NodeState unfinished;
  unfinished.inconsistent = true;
  unfinished.base = LogPoint{epoch(1), Lsn{10}};
  EXPECT_EQ(name_of(judge_peer(Lsn{19}, Lsn{19}, nullptr)), "follow");
  EXPECT_TRUE(name_of(judge_peer(Lsn{19}, Lsn{20}, nullptr))
                  .starts_with("split brain: the secondary has committed writes up to LSN 20"));
  EXPECT_EQ(name_of(judge_peer(Lsn{19}, Lsn{20}, &unfinished)), "resync");
  unfinished.base = LogPoint{epoch(1), Lsn{25}};
  EXPECT_TRUE(name_of(judge_peer(Lsn{19}, Lsn{20}, &unfinished)).starts_with("split brain: "));
  unfinished.base.reset();
  EXPECT_EQ(name_of(judge_peer(Lsn{19}, Lsn{20}, &unfinished)), "resync");
}

// The state that replica 1 reports.
NodeState says(EpochTable epochs) {
  NodeState s;
  s.whole = true;
  s.epoch = epochs.back();
  s.epochs = std::move(epochs);
  return s;
}

TEST(HaveParted, OnlyWhereNeitherCouldGiveWay) {
  auto here = [](EpochTable epochs, bool one_chain = false) {
    static std::deque<Held> kept;  // the view refers to this table
    return kept.emplace_back(Held{std::move(epochs), Lsn{99}, Lsn{0}, one_chain}).view();
  };
  EpochEntry one = entry(1, 1, 12), ours = entry(2, 2, 2), theirs = entry(3, 1, 1);
  EXPECT_TRUE(have_parted(here({one, ours}), 1, says({one, theirs})));
  EXPECT_FALSE(have_parted(here({one, ours}, true), 1, says({one, theirs}))) << "one arbiter grants all";
  EXPECT_FALSE(have_parted(here({one, entry(2, 2, 12)}), 1, says({one, theirs}))) << "replica 1 counts here";
  EXPECT_FALSE(have_parted(here({one, ours}), 1, says({one, entry(3, 1, 12)}))) << "replica 2 counts there";
  EXPECT_FALSE(have_parted(here({one, ours}), 1, says({one, ours, theirs})))
      << "the epoch of this replica is there";
  EXPECT_FALSE(have_parted(here({ours}), 1, says({theirs}))) << "the tables do not show the common part";
  EXPECT_FALSE(have_parted(here({one, ours}), 1, says({one, entry(3, 1, 1, 0, 2)})))
      << "granted with knowledge of this history";
  EXPECT_TRUE(have_parted(here({one, ours}), 1, says({one, entry(3, 1, 1, force, 2)}))) << "by force";
}

// Replica 1 is to fill replica 2.
struct Filled {
  const char* rule;
  Held held;
  Offered offered;
  Lsn since;
  bool record_held;
  bool expected;
};

const Filled of_content[] = {
    {"R15: the record is here",
     {{entry(1, 1, 12)}, Lsn{15}, Lsn{15}},
     {{entry(1, 1, 12)}, Lsn{19}},
     Lsn{12},
     true,
     true},
    {"R15: the record is not here",
     {{entry(1, 1, 12)}, Lsn{15}, Lsn{15}},
     {{entry(1, 1, 12)}, Lsn{19}},
     Lsn{12},
     false,
     false},
    {"R15: the marks begin behind what is common",
     {{entry(1, 1, 12)}, Lsn{15}, Lsn{15}},
     {{entry(1, 1, 12)}, Lsn{19}},
     Lsn{17},
     true,
     false},
    {"R15: committed here behind what is common",
     {{entry(1, 1, 12), entry(2, 2, 2)}, Lsn{25}, Lsn{22}},
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{35}},
     Lsn{12},
     true,
     false},
    {"R15: a base of this history",
     incomplete({}, Lsn{50}, Lsn{50}, disk_state::Syncing{epoch(3), LogPoint{epoch(1), Lsn{15}}}),
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{60}},
     Lsn{15},
     false,
     true},
    {"R15: the marks begin behind the base",
     incomplete({}, Lsn{50}, Lsn{50}, disk_state::Syncing{epoch(3), LogPoint{epoch(1), Lsn{15}}}),
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{60}},
     Lsn{16},
     true,
     false},
    {"R15: a base of another history",
     incomplete({}, Lsn{50}, Lsn{50}, disk_state::Syncing{epoch(3), LogPoint{epoch(2), Lsn{25}}}),
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{60}},
     Lsn{15},
     true,
     false},
    {"R15: no base",
     incomplete({}, Lsn{50}, Lsn{50}, disk_state::Syncing{epoch(3), std::nullopt}),
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{60}},
     Lsn{0},
     true,
     false},
    {"R15: what a damaged journal has left",
     incomplete({entry(1, 1, 12)}, Lsn{12}, Lsn{12},
                disk_state::Damaged{Lsn{18}, epoch(1), entry(1, 1, 12), LogPoint{epoch(1), Lsn{12}}}),
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{60}},
     Lsn{12},
     false,
     true},
    {"R15: a record beyond what a damaged journal has left",
     incomplete({entry(1, 1, 12)}, Lsn{12}, Lsn{12},
                disk_state::Damaged{Lsn{18}, epoch(1), entry(1, 1, 12), LogPoint{epoch(1), Lsn{12}}}),
     {{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{60}},
     Lsn{13},
     true,
     false},
};

TEST(ContentReaches, AsInTheTable) {
  for (const Filled& c : of_content)
    EXPECT_EQ(content_reaches(c.held.view(), c.offered.view(), c.since, c.record_held), c.expected) << c.rule;
}

TEST(HoldsSource, OnlyWhereTheOfferHasTheEpochOfTheContent) {
  Offered offered{{entry(1, 1, 12), entry(3, 1, 1)}, Lsn{60}};
  auto filled_by = [](std::uint64_t counter) {
    return incomplete({}, Lsn{50}, Lsn{50}, disk_state::Syncing{epoch(counter), std::nullopt});
  };
  EXPECT_TRUE(holds_source(filled_by(3).view(), offered.view())) << "R9: of the primary itself";
  EXPECT_TRUE(holds_source(filled_by(1).view(), offered.view())) << "R9: of an epoch before";
  EXPECT_FALSE(holds_source(filled_by(2).view(), offered.view())) << "R9: of another history";
  EXPECT_TRUE(holds_source(Held{{entry(2, 2, 2)}, Lsn{25}, Lsn{25}}.view(), offered.view()))
      << "no resync is unfinished";
  Held damaged = incomplete({entry(2, 2, 2)}, Lsn{25}, Lsn{25},
                            disk_state::Damaged{Lsn{28}, epoch(2), entry(2, 2, 2), {}});
  EXPECT_TRUE(holds_source(damaged.view(), offered.view())) << "no resync is unfinished";
}

TEST(VouchesFor, ABaseOfTheSourcesHistoryWithoutForceSince) {
  EpochTable held{entry(1, 1, 12), entry(3, 1, 1)};
  NodeState target;
  target.inconsistent = true;
  target.base = LogPoint{epoch(1), Lsn{15}};
  auto vouches = [&](EpochTable offered) { return vouches_for(target, held, Lsn{60}, offered); };
  EXPECT_TRUE(vouches(held)) << "R15";
  EXPECT_FALSE(vouches({entry(1, 1, 12), entry(3, 1, 1, force)})) << "R15: forced since";
  EXPECT_FALSE(vouches({entry(1, 1, 12), entry(3, 1, 1), entry(7, 1, 1, force)}))
      << "R15: by the epoch that is about to be logged";
  target.base = LogPoint{epoch(2), Lsn{15}};
  EXPECT_FALSE(vouches(held)) << "R15: another history";
  target.base = LogPoint{epoch(1), Lsn{35}};
  EXPECT_FALSE(vouches(held)) << "R15: beyond where that epoch ended";
  target.base.reset();
  EXPECT_FALSE(vouches(held)) << "R15: no base";
}

struct Promoted {
  const char* rule;
  EpochTable epochs, chain;
  bool by_force, whole, witnessed;
  std::uint64_t after;  // the counter of the named epoch
  std::uint32_t flags;
};

const Promoted of_promotions[] = {
    {"R16: it counts in all", {entry(1, 1, 12)}, {entry(1, 1, 12)}, false, true, false, 1, 0},
    {"R16: witnessed", {entry(1, 1, 12)}, {entry(1, 1, 12)}, false, true, true, 1, witnessed},
    {"R16: the newest that does without it",
     {entry(1, 1, 12), entry(2, 1, 1), entry(3, 1, 12)},
     {entry(1, 1, 12), entry(2, 1, 1), entry(3, 1, 12)},
     false,
     true,
     false,
     2,
     0},
    {"R16: not behind one by force",
     {entry(1, 1, 1), entry(2, 2, 12, force), entry(3, 1, 12)},
     {entry(1, 1, 1), entry(2, 2, 12, force), entry(3, 1, 12)},
     false,
     true,
     false,
     3,
     0},
    {"R16: force that only others hold",
     {entry(1, 1, 12)},
     {entry(1, 1, 12), entry(2, 1, 1, force)},
     false,
     true,
     false,
     2,
     force},
    {"R16: a loss that only others hold",
     {entry(1, 1, 12)},
     {entry(1, 1, 12), entry(2, 1, 12, force | lossy)},
     false,
     true,
     false,
     2,
     force | lossy},
    {"R16: force that their table has forgotten",
     {entry(1, 1, 12)},
     with_forgotten_force({entry(1, 1, 12)}, 1),
     false,
     true,
     false,
     1,
     force},
    {"R16: by force", {entry(1, 1, 12)}, {entry(1, 1, 12)}, true, true, true, 1, force},
    {"R16: by force, with a loss", {entry(1, 1, 12)}, {entry(1, 1, 12)}, true, false, true, 1, force | lossy},
    {"R16: nobody has the table", {}, {}, false, true, false, 0, 0},
};

TEST(GroundsOfPromotion, AsInTheTable) {
  for (const Promoted& c : of_promotions) {
    EpochEntry newest = c.chain.empty() ? EpochEntry{} : c.chain.back();
    Grounds found = grounds_of_promotion({2, c.epochs, c.chain, newest, c.by_force, c.whole, c.witnessed});
    EXPECT_EQ(found.flags, c.flags) << c.rule;
    EXPECT_EQ(found.granted_after, mark_of(epoch(c.after))) << c.rule;
  }
}

TEST(MaybeForcedBehind, AlsoWhereTheTableDoesNotReachBack) {
  EpochTable table{entry(3, 1, 12), entry(4, 1, 12, force)};
  EXPECT_TRUE(maybe_forced_behind(table, Lsn{35}));
  EXPECT_FALSE(maybe_forced_behind(table, Lsn{40}));
  EXPECT_TRUE(maybe_forced_behind(EpochTable{entry(3, 1, 12)}, Lsn{5}));
  EXPECT_FALSE(maybe_forced_behind({}, Lsn{5}));
}

TEST(HistoryHolds, WithinAnEpochsReach) {
  EpochTable table{{epoch(3), Lsn{10}, 1, 3}, {epoch(4), Lsn{20}, 1, 3}};
  EXPECT_TRUE(history_holds(table, Lsn{30}, epoch(3), Lsn{10}));
  EXPECT_TRUE(history_holds(table, Lsn{30}, epoch(3), Lsn{19}));
  EXPECT_FALSE(history_holds(table, Lsn{30}, epoch(3), Lsn{20})) << "the next epoch began there";
  EXPECT_TRUE(history_holds(table, Lsn{30}, epoch(4), Lsn{30}));
  EXPECT_FALSE(history_holds(table, Lsn{30}, epoch(4), Lsn{31})) << "beyond the end";
  EXPECT_FALSE(history_holds(table, Lsn{30}, epoch(2), Lsn{5})) << "the table does not reach back so far";
  EXPECT_TRUE(history_holds(table, Lsn{30}, Epoch{}, Lsn{0})) << "every history begins empty";
}

TEST(CommonHistory, EndsWhereEitherGoesItsOwnWay) {
  std::vector<EpochEntry> a{{epoch(1), Lsn{1}, 1, 3}, {epoch(2), Lsn{10}, 1, 1}};
  std::vector<EpochEntry> b{{epoch(1), Lsn{1}, 1, 3}, {epoch(5), Lsn{14}, 2, 2}};
  EXPECT_EQ(common_history(a, Lsn{30}, b, Lsn{40}), Lsn{9});
  EXPECT_EQ(common_history(b, Lsn{40}, a, Lsn{30}), Lsn{9});
  EXPECT_EQ(common_history(a, Lsn{30}, a, Lsn{25}), Lsn{25});
  EXPECT_EQ(common_history(a, Lsn{30}, {}, Lsn{25}), Lsn{0});
}

}  // namespace
}  // namespace twinloft::repl::core
