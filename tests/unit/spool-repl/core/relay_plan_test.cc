// Which replicas get their records from which one.
#include "relay_plan.h"

#include <gtest/gtest.h>

namespace twinloft::repl::core {
namespace {

using Plan = std::map<ReplicaId, ReplicaId>;

Plan plan(
    const std::vector<RelayCandidate>& candidates, const MayTake& may = [](auto&, auto&) { return true; }) {
  return plan_relays("here", candidates, may);
}

TEST(RelayPlanTest, OneReplicaOfAFarSiteServesTheOthers) {
  EXPECT_EQ(plan({{.id = 2, .site = "here"}, {.id = 3, .site = "here"}}), Plan()) << "the primary's own site";
  EXPECT_EQ(plan({{.id = 2, .site = "there"}}), Plan()) << "one replica alone";
  EXPECT_EQ(plan({{.id = 2}, {.id = 3}}), Plan()) << "nothing is known";
  EXPECT_EQ(plan({{.id = 2, .site = "here"}, {.id = 3, .site = "there"}, {.id = 4, .site = "there"}}),
            (Plan{{4, 3}}));
  EXPECT_EQ(
      plan({{.id = 2, .site = "a"}, {.id = 3, .site = "b"}, {.id = 4, .site = "a"}, {.id = 5, .site = "b"}}),
      (Plan{{4, 2}, {5, 3}}));
}

TEST(RelayPlanTest, TheRelayIsTheOneWithTheMostUnlessAnotherServesAlready) {
  EXPECT_EQ(plan({{.id = 3, .site = "there", .has = 5}, {.id = 4, .site = "there", .has = 6}}),
            (Plan{{3, 4}}));
  EXPECT_EQ(plan({{.id = 3, .site = "there", .has = 5}, {.id = 4, .site = "there", .has = 6, .present = 3}}),
            (Plan{{4, 3}}));
  EXPECT_EQ(plan({{.id = 3, .site = "there", .has = 5}, {.id = 4, .site = "there", .has = 6, .present = 9}}),
            (Plan{{3, 4}}))
      << "the former relay is gone";
}

TEST(RelayPlanTest, NobodyWithoutABufferWaitsForOneWithABuffer) {
  EXPECT_EQ(plan({{.id = 3, .site = "there", .buffered = true, .has = 9}, {.id = 4, .site = "there"}}),
            (Plan{{3, 4}}))
      << "the other way round is fine";
  EXPECT_EQ(plan({{.id = 3, .site = "there", .buffered = true},
                  {.id = 4, .site = "elsewhere", .through = 3},
                  {.id = 5, .site = "elsewhere2", .through = 3, .buffered = true}}),
            (Plan{{5, 3}}));
}

TEST(RelayPlanTest, NobodyWaitsForAWeakerProtocol) {
  EXPECT_EQ(plan({{.id = 3, .site = "there", .protocol = Protocol::A, .has = 9}, {.id = 4, .site = "there"}}),
            (Plan{{3, 4}}));
  EXPECT_EQ(plan({{.id = 3, .protocol = Protocol::A}, {.id = 4, .through = 3}}), Plan());
  EXPECT_EQ(plan({{.id = 3, .site = "there", .protocol = Protocol::A},
                  {.id = 4, .site = "there", .protocol = Protocol::A}}),
            (Plan{{4, 3}}));
}

TEST(RelayPlanTest, AChainHasAtMostTwoRelays) {
  EXPECT_EQ(plan({{.id = 2}, {.id = 3, .through = 2}, {.id = 4, .through = 3}}), (Plan{{3, 2}, {4, 3}}));
  EXPECT_EQ(plan({{.id = 2}, {.id = 3, .through = 2}, {.id = 4, .through = 3}, {.id = 5, .through = 4}}),
            (Plan{{3, 2}, {4, 3}}));
  EXPECT_EQ(plan({{.id = 2, .site = "a"}, {.id = 3, .site = "b", .through = 2}, {.id = 4, .site = "b"}}),
            (Plan{{3, 2}, {4, 3}}))
      << "the relay of a site goes through another site";
  EXPECT_EQ(plan({{.id = 2, .through = 3}, {.id = 3, .through = 2}}), (Plan{{2, 3}})) << "a circle";
  EXPECT_EQ(plan({{.id = 3, .through = 9}}), Plan()) << "the one to go through is not there";
  EXPECT_EQ(plan({{.id = 3, .site = "b", .through = 4}, {.id = 4, .site = "b"}}), (Plan{{4, 3}}))
      << "a circle with a site";
}

TEST(RelayPlanTest, WhoMayNotTakeFromTheRelayGetsItsRecordsDirectly) {
  auto not_4 = [](const RelayCandidate& who, const RelayCandidate&) { return who.id != 4; };
  std::vector<RelayCandidate> three = {
      {.id = 3, .site = "there"}, {.id = 4, .site = "there"}, {.id = 5, .site = "there"}};
  EXPECT_EQ(plan(three, not_4), (Plan{{5, 3}}));
  auto not_from_3 = [](const RelayCandidate& who, const RelayCandidate& relay) {
    return who.id != 4 || relay.id != 3;
  };
  EXPECT_EQ(plan(three, not_from_3), (Plan{{4, 5}, {5, 3}})) << "another one of the site";
  auto none_from_3 = [](const RelayCandidate&, const RelayCandidate& relay) { return relay.id != 3; };
  EXPECT_EQ(plan(three, none_from_3), (Plan{{4, 5}})) << "no circle";
}

}  // namespace
}  // namespace twinloft::repl::core
