#include "command_desk.h"

#include <gtest/gtest.h>

namespace twinloft::repl::daemon {
namespace {

struct CommandDeskTest : testing::Test, CommandDesk::Volume {
  bool is_suspended() override { return suspended; }
  bool is_stopping() override { return stopping; }
  bool is_draining() override { return draining; }
  std::string show_status(command::Status::Form form) override {
    return form == command::Status::Form::json ? "{}\n" : "status\n";
  }
  Result<std::string> show_events(const std::string& range) override { return "events of " + range; }
  void command_core(core::Event command) override { to_core.push_back(std::move(command)); }
  void demote(CommandDesk::Reply reply) override { reply("demoted\n"); }
  Status set_peers_wanted(bool w) override {
    if (!has_peers) return fail(Errc::invalid, "this volume has no peers");
    wanted = w;
    return {};
  }
  std::string ask(const std::string& line) {
    std::string answer = "none yet";
    desk.on_line(line, [&answer, this](Result<std::string> r) {
      last = answer = r ? *r : "error: " + r.error().message;
    });
    return answer;
  }

  bool suspended = false, stopping = false, draining = false, has_peers = true;
  std::optional<bool> wanted;
  std::vector<core::Event> to_core;
  std::string last;
  CommandDesk desk{*this};
};

TEST_F(CommandDeskTest, WhatIsAnsweredAtOnce) {
  EXPECT_EQ(ask("status"), "status\n");
  EXPECT_EQ(ask("status json"), "{}\n");
  EXPECT_EQ(ask("events 3 json"), "events of 3 json");
  EXPECT_EQ(ask("demote"), "demoted\n");
  EXPECT_EQ(ask("connect"), "connecting to every peer\n");
  EXPECT_EQ(wanted, true);
  EXPECT_EQ(ask("disconnect"), "disconnected from every peer\n");
  EXPECT_EQ(wanted, false);
  EXPECT_EQ(ask("explode"), "error: unknown command \"explode\"");
  has_peers = false;
  EXPECT_EQ(ask("connect"), "error: this volume has no peers");
  EXPECT_TRUE(to_core.empty());
}

TEST_F(CommandDeskTest, WhatWaitsForTheCore) {
  std::string first, second;
  desk.on_line("promote accept-loss", [&](Result<std::string> r) { first = *r; });
  desk.on_line("discard force", [&](Result<std::string> r) { second = *r; });
  ASSERT_EQ(to_core.size(), 2u);
  const auto& promote = std::get<core::Promote>(to_core[0]);
  const auto& discard = std::get<core::Discard>(to_core[1]);
  EXPECT_TRUE(promote.force && promote.accept_loss);
  EXPECT_TRUE(discard.force);
  EXPECT_NE(promote.token, 0u) << "the node's own promotion";
  EXPECT_NE(promote.token, discard.token);
  EXPECT_TRUE(desk.waits_for_core());
  desk.take(discard.token)("discarded");
  desk.take(promote.token)("promoted");
  EXPECT_EQ(first, "promoted");
  EXPECT_EQ(second, "discarded");
  EXPECT_FALSE(desk.waits_for_core());
  EXPECT_EQ(desk.take(promote.token), nullptr) << "answered once";
}

TEST_F(CommandDeskTest, ACommandThatNobodyWaitsFor) {
  core::Token token = desk.keep(nullptr);
  EXPECT_NE(token, 0u);
  EXPECT_FALSE(desk.waits_for_core());
  EXPECT_EQ(desk.take(token), nullptr);
}

// A command may end a wait of the stop. Status commands work until the end.
TEST_F(CommandDeskTest, WhatIsCarriedOutWhileTheVolumeIsBeingStopped) {
  constexpr std::string_view refused = "error: the node is being stopped";
  struct Row {
    const char* line;
    bool stopping, suspended, draining, carried_out;
  };
  for (const Row& r : std::initializer_list<Row>{
           {"status", true, false, true, true},
           {"events 0", true, false, true, true},
           {"promote", true, true, false, false},
           {"promote force", true, false, false, false},
           {"promote force", true, true, false, true},
           {"promote accept-loss", true, true, false, false},
           {"promote force", true, true, true, false},
           {"connect", true, false, false, true},
           {"connect", true, false, true, false},
           {"disconnect", true, true, false, false},
           {"demote", true, false, false, false},
           {"discard", true, false, false, false},
           {"demote", false, false, false, true},
       }) {
    stopping = r.stopping, suspended = r.suspended, draining = r.draining;
    EXPECT_EQ(ask(r.line) != refused, r.carried_out) << r.line << " " << r.suspended << r.draining;
  }
}

}  // namespace
}  // namespace twinloft::repl::daemon
