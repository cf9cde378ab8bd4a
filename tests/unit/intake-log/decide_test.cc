// The decision for each entry, as the table of docs/formats/intake-log.md has it.
#include "twinloft/intake_log/decide.h"

#include <gtest/gtest.h>

namespace twinloft::intake_log {
namespace {

struct Row {
  EntryFacts facts;
  Decision decision;
};

constexpr auto unknown = Presence::unknown, absent = Presence::absent, same = Presence::same,
               differs = Presence::differs;

// retired, cancelled, settled, on the same mount, presence
const Row table[] = {
    {{true, false, false, false, absent}, {Verdict::leave, Why::retired}},
    {{true, true, true, true, unknown}, {Verdict::leave, Why::retired}},
    {{false, true, false, false, absent}, {Verdict::leave, Why::cancelled}},
    {{false, true, true, true, unknown}, {Verdict::leave, Why::cancelled}},
    {{false, false, true, true, unknown}, {Verdict::leave, Why::renamed_here}},
    {{false, false, true, true, absent}, {Verdict::leave, Why::renamed_here}},
    {{false, false, false, true, unknown}, {Verdict::drop, Why::unanswered}},
    {{false, false, false, true, same}, {Verdict::drop, Why::unanswered}},
    {{false, false, false, false, same}, {Verdict::leave, Why::present}},
    {{false, false, true, false, same}, {Verdict::leave, Why::present}},
    {{false, false, false, false, differs}, {Verdict::leave, Why::present, true}},
    {{false, false, true, false, differs}, {Verdict::leave, Why::present, true}},
    {{false, false, true, false, absent}, {Verdict::leave, Why::taken_away}},
    {{false, false, false, false, absent}, {Verdict::deliver, Why::missing}},
};

TEST(Decide, FollowsTheTable) {
  for (const Row& row : table) {
    const EntryFacts& f = row.facts;
    const Decision got = decide(f);
    EXPECT_EQ(got, row.decision) << f.retired << f.cancelled << f.settled << f.on_same_mount
                                 << static_cast<int>(f.presence) << ": " << to_string(got.verdict) << ", "
                                 << to_string(got.why);
  }
}

// All combinations: one alone delivers, and whatever needs no look decides without it.
TEST(Decide, OnlyOneCombinationDelivers) {
  int delivered = 0;
  for (unsigned bits = 0; bits < 16; ++bits)
    for (Presence presence : {unknown, absent, same, differs}) {
      const EntryFacts facts{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, presence};
      if (depends_on_presence(facts)) {
        EXPECT_EQ(bits & 11, 0u);
        if (presence == unknown) continue;
      }
      const Decision got = decide(facts);
      delivered += got.verdict == Verdict::deliver;
      EXPECT_EQ(got.report_difference, depends_on_presence(facts) && presence == differs);
      if (!depends_on_presence(facts)) {
        EXPECT_EQ(got, decide({facts.retired, facts.cancelled, facts.settled, facts.on_same_mount, unknown}));
      }
    }
  EXPECT_EQ(delivered, 1);
  EXPECT_DEATH(decide(EntryFacts{}), "nobody has looked");
}

}  // namespace
}  // namespace twinloft::intake_log
