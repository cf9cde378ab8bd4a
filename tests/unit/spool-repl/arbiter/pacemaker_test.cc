// The CIB's fields as Pacemaker 2.1.5 of Debian 12 writes them in a cluster of two nodes, and the store on a
// model of the CIB. tests/e2e/arbiter_pacemaker tests the real programs.
#include "pacemaker.h"

#include <gtest/gtest.h>

#include "sample_volume.h"
#include "twinloft/spool-repl/arbiter/value.h"

namespace twinloft::repl::arbiter {
namespace {

using core::ArbiterAnswer;
using core::ArbiterRequest;
using core::EpochValue;
using Outcome = ArbiterAnswer::Outcome;

const std::string set_id = "twinloft-0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff", property = set_id + "-epoch";

// A node's state as Pacemaker 2.1 writes it, with nested elements.
std::string node_state(int id, bool online, const char* origin, const char* join, const char* expected) {
  return fmt::format(
      R"(<node_state id="{0}" uname="n{0}" in_ccm="{1}" crmd="{2}" )"
      R"(crm-debug-origin="{3}" join="{4}" expected="{5}"><transient_attributes id="{0}"/></node_state>)",
      id, online, online ? "online" : "offline", origin, join, expected);
}

const std::string both_online = node_state(1, true, "do_update_resource", "member", "member") +
                                node_state(2, true, "do_update_resource", "member", "member");
const std::string first_lost = node_state(2, true, "do_state_transition", "member", "member") +
                               node_state(1, false, "do_state_transition", "down", "member");
const std::string first_fenced = node_state(2, true, "do_state_transition", "member", "member") +
                                 node_state(1, false, "send_stonith_update", "down", "down");

// A CIB that accepts patches like cibadmin, and the programs that access it.
struct FakeCluster {
  std::uint64_t epoch = 7, updates = 3;
  std::string quorum = "1", more, nodes = both_online, name = "n1";
  std::optional<std::string> value;
  std::function<void()> before_patch;  // another program changes the CIB first
  int query_exit = 0, lost_patches = 0, patches = 0;
  bool answer_lost = false;  // the patch is applied, but the program reports no success

  std::string xml() const {
    auto escaped = [](std::string text) {
      for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 6)
        text.replace(at, 1, "&quot;");
      return text;
    };
    std::string mine = value ? fmt::format(
                                   "<cluster_property_set id=\"{}\"><nvpair id=\"{}\" name=\"{}\" "
                                   "value=\"{}\"/></cluster_property_set>",
                                   set_id, property, property, escaped(*value))
                             : "";
    return fmt::format(
        R"(<cib crm_feature_set="3.16.1" validate-with="pacemaker-3.9" epoch="{}" num_updates="{}" )"
        R"(admin_epoch="0" )"
        R"(cib-last-written="Sat Nov 21 12:09:34 2026" have-quorum="{}" dc-uuid="2">
  <configuration><crm_config><cluster_property_set id="cib-bootstrap-options">
    <nvpair id="cib-bootstrap-options-have-watchdog" name="have-watchdog" value="false"/>{}
  </cluster_property_set>{}</crm_config>
  <nodes><node id="1" uname="n1"/><node id="2" uname="n2"/></nodes>
  <resources/><constraints/></configuration>
  <status>{}</status></cib>
)",
        epoch, updates, quorum, more, mine, nodes);
  }

  Result<ProgramResult> run(const std::vector<std::string>& argv, const std::string& input) {
    if (argv[0] == "/usr/sbin/crm_node") return ProgramResult{0, name + "\n", ""};
    EXPECT_EQ(argv[0], "/usr/sbin/cibadmin");
    if (argv[1] == "--query")
      return ProgramResult{
          query_exit, query_exit ? "" : xml(),
          query_exit ? "Could not connect to the CIB: Transport endpoint is not connected\n" : ""};
    EXPECT_EQ(argv[1], "--patch");
    ++patches;
    if (before_patch) std::exchange(before_patch, nullptr)();
    if (lost_patches > 0 && lost_patches--)
      return ProgramResult{1, "", "Call failed: Operation not permitted\n"};
    if (input.find(fmt::format(R"(<source admin_epoch="0" epoch="{}" num_updates="{}"/>)", epoch, updates)) ==
        std::string::npos)
      return ProgramResult{103, "", "Call failed: Update was older than existing configuration\n"};
    std::size_t at = input.find("value=\"{") + 7;
    std::string text = input.substr(at, input.find('"', at) - at);
    for (std::size_t q = 0; (q = text.find("&quot;", q)) != std::string::npos;) text.replace(q, 6, "\"");
    EXPECT_EQ(input.find("operation=\"modify\"") != std::string::npos, value.has_value());
    value = text;
    ++epoch, updates = 0;
    if (answer_lost) return fail(Errc::timeout, "cibadmin: it has not ended in time");
    return ProgramResult{0, "", ""};
  }
};

struct TestClock final : Clock {
  Instant t{1'000'000'000};
  Instant now() const override { return t; }
  WallTime wall() const override { return {}; }
};

struct PacemakerTest : testing::Test {
  TestClock clock;
  SeededRandom random{7};
  FakeCluster cluster;
  std::unique_ptr<PacemakerStore> store = make(1);

  std::unique_ptr<PacemakerStore> make(ReplicaId self) {
    Settings s;
    s.kind = Kind::pacemaker;
    s.nodes = {{1, "n1"}, {2, "n2"}};
    return std::make_unique<PacemakerStore>(
        s, volume, self, clock,
        [this](const auto& argv, const std::string& input, Instant) { return cluster.run(argv, input); });
  }
  EpochValue value(std::uint64_t counter, ReplicaId writer, ReplicaSet set = 3) {
    return {{counter, Uuid::generate(random)}, writer, set, Uuid::generate(random)};
  }
  static ArbiterRequest read() { return {5, true, std::nullopt, {}}; }
  static ArbiterRequest swap(std::optional<EpochValue> from, EpochValue to) {
    return {6, false, std::move(from), to};
  }
  static testing::AssertionResult unknown(const ArbiterAnswer& a, const std::string& words) {
    if (a.outcome != Outcome::unknown)
      return testing::AssertionFailure() << "an outcome: " << static_cast<int>(a.outcome);
    if (!a.why.starts_with("pacemaker: ") || a.why.find(words) == std::string::npos)
      return testing::AssertionFailure() << a.why;
    return testing::AssertionSuccess();
  }
};

TEST_F(PacemakerTest, ComparesAndSwaps) {
  EXPECT_EQ(store->perform(read()).current, std::nullopt);
  EpochValue one = value(1, 1), two = value(2, 1), three = value(3, 2);
  ArbiterAnswer a = store->perform(swap(std::nullopt, one));
  EXPECT_EQ(a.outcome, Outcome::granted) << a.why;
  EXPECT_EQ(cluster.value, encode_value(volume, one));
  a = store->perform(read());
  EXPECT_EQ(a.outcome, Outcome::granted);
  EXPECT_EQ(a.current, one);
  EXPECT_EQ(store->perform(swap(one, two)).outcome, Outcome::granted);
  a = store->perform(swap(one, three));
  EXPECT_EQ(a.outcome, Outcome::refused);
  EXPECT_EQ(a.current, two);
  EXPECT_EQ(store->perform(swap(std::nullopt, three)).outcome, Outcome::refused);
  EXPECT_EQ(cluster.patches, 2);
}

TEST_F(PacemakerTest, AnotherChangeOfTheCibIsNoRefusal) {
  cluster.before_patch = [&] { ++cluster.updates; };
  EpochValue one = value(1, 1);
  EXPECT_EQ(store->perform(swap(std::nullopt, one)).outcome, Outcome::granted);
  EXPECT_EQ(cluster.patches, 2);
}

TEST_F(PacemakerTest, OfTwoOneIsRefused) {
  EpochValue mine = value(1, 1), others = value(1, 2);
  cluster.before_patch = [&] {
    cluster.value = encode_value(volume, others), ++cluster.epoch, cluster.updates = 0;
  };
  ArbiterAnswer a = store->perform(swap(std::nullopt, mine));
  EXPECT_EQ(a.outcome, Outcome::refused);
  EXPECT_EQ(a.current, others);
  EXPECT_EQ(cluster.value, encode_value(volume, others));
}

TEST_F(PacemakerTest, ALostAnswerIsUnknownAndThenFoundAgain) {
  cluster.answer_lost = true;
  EpochValue one = value(1, 1);
  EXPECT_TRUE(unknown(store->perform(swap(std::nullopt, one)), "has not ended in time"));
  EXPECT_EQ(store->perform(swap(std::nullopt, one)).outcome, Outcome::granted);
  EXPECT_EQ(cluster.patches, 1);
}

TEST_F(PacemakerTest, APatchThatIsNotTaken) {
  cluster.lost_patches = 9;
  EXPECT_TRUE(unknown(store->perform(swap(std::nullopt, value(1, 1))),
                      "cibadmin --patch: exit 1: Call failed: Operation not permitted"));
  EXPECT_EQ(cluster.patches, 1) << "not repeatedly";
}

TEST_F(PacemakerTest, NothingWithoutQuorumFencingAndMembership) {
  cluster.quorum = "0";
  EXPECT_TRUE(unknown(store->perform(read()), "no quorum"));
  EXPECT_TRUE(unknown(store->perform(swap(std::nullopt, value(1, 1))), "no quorum"));
  cluster.quorum = "1";
  for (const char* name : {"stonith-enabled", "fencing-enabled"}) {
    cluster.more = fmt::format("<nvpair id=\"x\" name=\"{}\" value=\"false\"/>", name);
    EXPECT_TRUE(unknown(store->perform(read()), "stonith-enabled is false"));
  }
  cluster.more = "<nvpair id=\"x\" name=\"stonith-enabled\" value=\"TRUE\"/>";
  EXPECT_EQ(store->perform(read()).outcome, Outcome::granted);
  cluster.nodes = first_lost;
  EXPECT_TRUE(unknown(store->perform(read()), "this node (n1) is not a full member"));
  cluster.nodes = "";
  EXPECT_TRUE(unknown(store->perform(read()), "this node (n1) is not a full member"));
  EXPECT_EQ(cluster.patches, 0);
}

TEST_F(PacemakerTest, ALostNodeMustBeFencedFirst) {
  EpochValue one = value(1, 1), two = value(2, 2), alone = value(3, 2, set_of(2));
  cluster.value = encode_value(volume, one);
  store = make(2);
  cluster.name = "n2";
  cluster.nodes = first_lost;
  EXPECT_EQ(store->perform(read()).current, one);
  EXPECT_TRUE(unknown(store->perform(swap(one, two)),
                      "replica 1 (n1): its node is neither a member of this partition nor known to be down"));
  EXPECT_TRUE(unknown(store->perform(swap(one, alone)), "replica 1 (n1)"));
  EXPECT_EQ(cluster.patches, 0);
  cluster.nodes = first_fenced;
  EXPECT_EQ(store->perform(swap(one, two)).outcome, Outcome::granted);
  EXPECT_EQ(store->perform(swap(two, alone)).outcome, Outcome::granted);
}

// The replica's process or disk has failed. Its node is a member of this partition, so no fencing is needed.
TEST_F(PacemakerTest, AMemberOfThisPartitionMayBeDropped) {
  EpochValue one = value(1, 1), alone = value(2, 1, set_of(1));
  cluster.value = encode_value(volume, one);
  EXPECT_TRUE(unknown(store->perform(swap(one, alone)), "waits 10 s, in case the cluster has lost the node"));
  EXPECT_EQ(cluster.value, encode_value(volume, alone)) << "the value is written, but not granted yet";
  clock.t = clock.t + std::chrono::milliseconds(9'999);
  EXPECT_TRUE(unknown(store->perform(swap(one, alone)), "waits 10 s"));
  clock.t = clock.t + std::chrono::milliseconds(1);
  EXPECT_EQ(store->perform(swap(one, alone)).outcome, Outcome::granted);
  EXPECT_EQ(cluster.patches, 1);
}

// The cable was cut before the value was written, and corosync noticed it only afterwards.
TEST_F(PacemakerTest, ANodeThatTurnsOutToBeLostMustBeFencedFirst) {
  EpochValue one = value(1, 2), alone = value(3, 2, set_of(2));
  cluster.value = encode_value(volume, one);
  store = make(2);
  cluster.name = "n2";
  EXPECT_TRUE(unknown(store->perform(swap(one, alone)), "waits 10 s"));
  cluster.nodes = first_lost;
  clock.t = clock.t + std::chrono::seconds(60);
  EXPECT_TRUE(unknown(store->perform(swap(one, alone)),
                      "replica 1 (n1): its node is neither a member of this partition nor known to be down"));
  cluster.nodes = first_fenced;
  EXPECT_EQ(store->perform(swap(one, alone)).outcome, Outcome::granted) << "no wait is needed any more";
}

TEST_F(PacemakerTest, EvidenceAboutTheWrongNodeIsNone) {
  cluster.name = "n2";
  EXPECT_TRUE(unknown(store->perform(read()), "this node is n2 in the cluster, and n1 in nodes"));
  EpochValue odd = value(1, 1, set_of(1) | set_of(3)), next = value(2, 1);
  cluster.name = "n1";
  cluster.value = encode_value(volume, odd);
  EXPECT_TRUE(unknown(store->perform(swap(odd, next)), "replica 3 (not in nodes)"));
}

TEST_F(PacemakerTest, TroubleWithTheProgramsAndTheValue) {
  cluster.query_exit = 102;
  EXPECT_TRUE(unknown(store->perform(read()), "cibadmin --query: exit 102: Could not connect to the CIB"));
  cluster.query_exit = 0;
  cluster.value = "hello";
  EXPECT_TRUE(unknown(store->perform(read()), "not one of Twinloft's"));
  store->cancel();
  EXPECT_TRUE(unknown(store->perform(read()), "being stopped"));
}

// ---- the CIB

NodeFate fate(const std::string& attributes) {
  FakeCluster c;
  c.nodes = "<node_state id=\"1\" uname=\"n1\" " + attributes + "/>";
  return read_cib(c.xml(), set_id, property).value().nodes.at("n1");
}

TEST(CibNodes, OnlyWhatIsCertainCounts) {
  EXPECT_EQ(fate(R"(in_ccm="true" crmd="online" join="member" expected="member")"), NodeFate::online);
  EXPECT_EQ(fate(R"(in_ccm="1721760952" crmd="1721760952" join="member" expected="member")"),
            NodeFate::online)
      << "since 2.1.7";
  EXPECT_EQ(fate(R"(in_ccm="false" crmd="offline" join="down" expected="down")"), NodeFate::down);
  EXPECT_EQ(fate(R"(in_ccm="0" crmd="0" join="down" expected="down")"), NodeFate::down);
  for (const char* lost :
       {R"(in_ccm="false" crmd="offline" join="down" expected="member")",
        R"(in_ccm="true" crmd="offline" join="down" expected="down")",
        R"(in_ccm="false" crmd="online" join="down" expected="down")",
        R"(in_ccm="true" crmd="online" join="member" expected="down")",
        R"(in_ccm="true" crmd="online" join="pending" expected="member")",
        R"(in_ccm="false" crmd="offline" join="banned" expected="down")",
        R"(in_ccm="false" crmd="offline" join="down")",
        R"(in_ccm="0" crmd="1721760952" join="down" expected="down")", R"(join="down" expected="down")",
        R"(in_ccm="maybe" crmd="offline" join="down" expected="down")", ""})
    EXPECT_EQ(fate(lost), NodeFate::lost) << lost;
  FakeCluster twice;
  twice.nodes = first_fenced + first_lost;
  EXPECT_EQ(read_cib(twice.xml(), set_id, property)->nodes.at("n1"), NodeFate::lost);
}

TEST(CibNodes, RefusesWhatIsNoCib) {
  FakeCluster c;
  std::string good = c.xml();
  EXPECT_TRUE(read_cib(good, set_id, property));
  auto without = [&](const std::string& part) {
    std::string text = good;
    return text.replace(text.find(part), part.size(), "");
  };
  for (const std::string& bad :
       {std::string(), std::string("hello"), std::string("<cib/>"), good.substr(0, good.size() / 2),
        without("epoch=\"7\""), without("num_updates=\"3\""), without("admin_epoch=\"0\""), without("7"),
        std::string("<crm_mon><cib/></crm_mon>")})
    EXPECT_FALSE(read_cib(bad, set_id, property)) << bad;
}

TEST(CibNodes, PatchesNameTheirVersion) {
  FakeCluster c;
  Cib cib = read_cib(c.xml(), set_id, property).value();
  EXPECT_EQ(
      cib_patch(cib, "s", "p", "<\"&>"),
      R"(<diff format="2"><version><source admin_epoch="0" epoch="7" num_updates="3"/>)"
      R"(<target admin_epoch="0" epoch="8" num_updates="0"/></version>)"
      R"(<change operation="create" path="/cib/configuration/crm_config" position="1">)"
      R"(<cluster_property_set id="s">)"
      R"(<nvpair id="p" name="p" value="&lt;&quot;&amp;&gt;"/></cluster_property_set></change></diff>)");
  c.value = "x";
  cib = read_cib(c.xml(), set_id, property).value();
  EXPECT_EQ(cib.value, "x");
  std::string patch = cib_patch(cib, set_id, property, "y");
  EXPECT_NE(
      patch.find("operation=\"modify\" path=\"/cib/configuration/crm_config/cluster_property_set[@id='" +
                 set_id + "']/nvpair[@id='" + property + "']\""),
      std::string::npos)
      << patch;
}

}  // namespace
}  // namespace twinloft::repl::arbiter
