// Whole load runs against a misbehaving server in this process, each followed by the verification.
#include "twinloft/mailbench/load.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "fake_server.h"
#include "twinloft/mailbench/report.h"
#include "twinloft/mailbench/search.h"
#include "twinloft/mailbench/session.h"
#include "twinloft/mailbench/verify.h"

namespace twinloft::mailbench {
namespace {

using namespace std::chrono_literals;

// Windows and time limits are seconds, since a busy machine may run nothing for most of a second.
class LoadTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "mb-load.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    std::filesystem::create_directory(spool());
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string spool() const { return directory_ + "/spool"; }

  LoadOptions options(const FakeServer& server, std::uint64_t messages) const {
    LoadOptions o;
    o.server = server.endpoint();
    o.clients = 4;
    o.schedule.messages = messages;
    o.schedule.drain = 60s;
    o.users = 20;
    o.retry_delay = 1ms;
    o.size = SizeDistribution::parse("mean:4KiB").value();
    o.account = directory_ + "/account";
    return o;
  }
  LoadResult load(const LoadOptions& o) {
    auto result = run_load(o);
    EXPECT_TRUE(result) << result.error().message;
    return result ? std::move(*result) : LoadResult{};
  }
  VerifyResult verify(bool strict = false) {
    VerifyOptions o;
    o.accounts = {directory_ + "/account"};
    o.spool = spool();
    o.strict_deferred = strict;
    auto result = run_verify(o);
    EXPECT_TRUE(result) << result.error().message;
    if (!result) return {};
    EXPECT_TRUE(result->accounts_complete);
    return std::move(*result);
  }
  static Plan stall_first(const FakeMessage& message) {
    if (message.ordinal == 0) std::this_thread::sleep_for(3s);
    return accept_all(message);
  }
  static Plan slow(const FakeMessage& message) {
    std::this_thread::sleep_for(1ms);
    return accept_all(message);
  }
  // An open loop of one client, whose 100 messages are all due while the server stalls.
  LoadOptions hundred_in_a_stall(const FakeServer& server) const {
    LoadOptions o = options(server, 1);
    o.clients = 1;
    o.schedule.messages.reset();
    o.schedule.rate = 50;
    o.schedule.duration = 2s;
    return o;
  }
  static std::uint64_t last(const LoadResult& r, Outcome o) {
    return r.stats.last_outcomes[static_cast<std::size_t>(o)];
  }
  static std::uint64_t all(const LoadResult& r, Outcome o) {
    return r.stats.outcomes[static_cast<std::size_t>(o)];
  }

  std::string directory_;
};

TEST_F(LoadTest, EveryMessageArrives) {
  for (bool pipelining : {true, false}) {
    FakeServer server(spool(), {.pipelining = pipelining});
    LoadOptions o = options(server, 200);
    o.recipients_per_message = 3;
    o.threads = 2;
    LoadResult r = load(o);
    EXPECT_EQ(last(r, Outcome::acknowledged), 600u);
    EXPECT_EQ(r.stats.acknowledged, 600u);
    EXPECT_EQ(r.stats.messages, 200u);
    EXPECT_EQ(r.stats.latency.good.count(), 200u);
    EXPECT_EQ(r.stats.pipelining, pipelining);
    EXPECT_EQ(server.connections(), 4u);
    EXPECT_GT(messages_per_minute(r.stats), 0);
    VerifyResult v = verify();
    EXPECT_TRUE(v.good());
    EXPECT_EQ(v.acknowledged_found, 600u);
    std::filesystem::remove(o.account);
    std::filesystem::remove_all(spool());
    std::filesystem::create_directory(spool());
  }
}

TEST_F(LoadTest, SlowServerRepliesByteByByte) {
  FakeServer server(spool(), {.bytewise = true});
  LoadResult r = load(options(server, 50));
  EXPECT_EQ(last(r, Outcome::acknowledged), 50u);
  EXPECT_TRUE(r.stats.errors.empty());
  EXPECT_TRUE(verify().good());
}

TEST_F(LoadTest, AConnectionForSomeMessagesOnly) {
  FakeServer server(spool(), {});
  LoadOptions o = options(server, 30);
  o.clients = 1;
  o.messages_per_connection = 3;
  LoadResult r = load(o);
  EXPECT_EQ(last(r, Outcome::acknowledged), 30u);
  EXPECT_EQ(server.connections(), 10u);
  EXPECT_TRUE(r.stats.errors.empty());
  EXPECT_TRUE(verify().good());
}

TEST_F(LoadTest, MultiLineRepliesAndDeferralsAreMatchedInOrder) {
  FakeServer server(spool(), {.on_message = [](const FakeMessage& m) {
                      Plan plan;
                      for (std::size_t i = 0; i < m.recipients.size(); ++i) {
                        bool good = i % 2 == 1;
                        plan.replies += good ? "250-2.0.0 it\r\n250 2.0.0 is there\r\n"
                                             : "451-4.3.0 not\r\n451 4.3.0 now\r\n";
                        plan.store.push_back(good);
                      }
                      return plan;
                    }});
  LoadOptions o = options(server, 40);
  o.recipients_per_message = 4;
  LoadResult r = load(o);
  EXPECT_EQ(last(r, Outcome::acknowledged), 80u);
  EXPECT_EQ(last(r, Outcome::deferred), 80u);
  EXPECT_EQ(r.stats.codes.at(451), 80u);
  VerifyResult v = verify(true);
  EXPECT_TRUE(v.good());
  EXPECT_EQ(v.acknowledged_found, 80u);
}

TEST_F(LoadTest, RetryRepeatsOnlyWhatIsNotSettled) {
  FakeServer server(spool(), {.on_message = [](const FakeMessage& m) {
                      Plan plan = accept_all(m);
                      if (m.recipients.size() == 1) return plan;  // the repetition of the message
                      plan.replies = "451 4.3.0 later\r\n250 ok\r\n550 5.1.1 never\r\n";
                      plan.store = {false, true, false};
                      return plan;
                    }});
  LoadOptions o = options(server, 20);
  o.recipients_per_message = 3;
  o.attempts = 3;
  LoadResult r = load(o);
  EXPECT_EQ(last(r, Outcome::acknowledged), 40u);
  EXPECT_EQ(last(r, Outcome::refused), 20u);
  EXPECT_EQ(all(r, Outcome::deferred), 20u);
  EXPECT_EQ(r.stats.attempts, 40u);
  EXPECT_EQ(r.stats.retries, 20u);
  VerifyResult v = verify(true);
  EXPECT_TRUE(v.good());
  EXPECT_EQ(v.refused, 20u);
}

TEST_F(LoadTest, RefusedAtRcpt) {
  FakeServer server(
      spool(), {.on_recipient = [](const std::string& address) {
        return std::string(address.starts_with("user1") ? "550 5.1.1 no such user\r\n" : "250 ok\r\n");
      }});
  LoadOptions o = options(server, 100);
  LoadResult r = load(o);
  EXPECT_GT(last(r, Outcome::refused), 0u);
  EXPECT_EQ(last(r, Outcome::refused) + last(r, Outcome::acknowledged), 100u);
  EXPECT_TRUE(verify().good());
}

// The server stores the message, acknowledges the first recipient and disconnects. The second copy is
// allowed, but not required.
TEST_F(LoadTest, ClosesAmidTheReplies) {
  FakeServer server(spool(), {.on_message = [](const FakeMessage& m) {
                      Plan plan = accept_all(m);
                      if (m.ordinal % 5 != 0) return plan;
                      plan.replies = "250 ok\r\n25";
                      plan.store = {true, m.ordinal % 10 == 0};
                      plan.close = true;
                      return plan;
                    }});
  LoadOptions o = options(server, 50);
  o.recipients_per_message = 2;
  LoadResult r = load(o);
  EXPECT_EQ(last(r, Outcome::unknown), 10u);
  EXPECT_EQ(last(r, Outcome::acknowledged), 90u);
  EXPECT_EQ(r.stats.errors.at("closed by the server within a transaction"), 10u);
  VerifyResult v = verify();
  EXPECT_TRUE(v.good());
  EXPECT_EQ(v.unknown_present, 5u);
  EXPECT_EQ(v.unknown_absent, 5u);
}

TEST_F(LoadTest, RepeatsAfterALostConnectionAndAllowsTheSecondCopy) {
  FakeServer server(spool(), {.on_message = [](const FakeMessage& m) {
                      Plan plan = accept_all(m);
                      if (m.ordinal % 4 == 0) {
                        plan.replies.clear();
                        plan.close = true;
                      }
                      return plan;
                    }});
  LoadOptions o = options(server, 40);
  o.attempts = 1000;
  LoadResult r = load(o);
  EXPECT_EQ(last(r, Outcome::acknowledged), 40u);
  std::uint64_t lost = all(r, Outcome::unknown);
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(server.messages(), 40 + lost);
  VerifyResult v = verify();
  EXPECT_TRUE(v.good());
  EXPECT_EQ(v.acknowledged_found, 40u);
  EXPECT_EQ(v.extra_copies_allowed, lost);
}

TEST_F(LoadTest, AReplyTooManyEndsTheConnectionAndNothingElse) {
  FakeServer server(spool(), {.on_message = [](const FakeMessage& m) {
                      Plan plan = accept_all(m);
                      if (m.ordinal % 7 == 0) plan.replies += "250 and another\r\n";
                      return plan;
                    }});
  LoadOptions o = options(server, 70);
  o.attempts = 50;
  LoadResult r = load(o);
  EXPECT_EQ(last(r, Outcome::acknowledged), 70u);
  EXPECT_GT(server.connections(), 4u);
  EXPECT_FALSE(r.stats.errors.empty());
  EXPECT_TRUE(verify().good());
}

TEST_F(LoadTest, AReplyTooFewEndsWithTheTimeLimit) {
  FakeServer server(spool(), {.on_message = [](const FakeMessage& m) {
                      Plan plan = accept_all(m);
                      plan.replies = "250 for the first only\r\n";
                      return plan;
                    }});
  LoadOptions o = options(server, 4);
  o.recipients_per_message = 2;
  o.timeout = 3s;
  LoadResult r = load(o);
  EXPECT_EQ(last(r, Outcome::acknowledged), 4u);
  EXPECT_EQ(last(r, Outcome::unknown), 4u);
  EXPECT_EQ(r.stats.errors.at("time limit on a reply"), 4u);
  VerifyResult v = verify();
  EXPECT_TRUE(v.good());
  EXPECT_EQ(v.unknown_present, 4u);
}

TEST_F(LoadTest, NotLmtpAtAll) {
  FakeServer server(spool(), {.greeting = "SSH-2.0-OpenSSH\r\n"});
  LoadOptions o = options(server, 4);
  o.connect_timeout = 1s;
  auto result = run_load(o);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::unavailable);
  EXPECT_NE(result.error().message.find("SSH-2.0"), std::string::npos);
}

TEST_F(LoadTest, NobodyListens) {
  LoadOptions o;
  {
    FakeServer server(spool(), {});
    o = options(server, 4);
  }
  o.connect_timeout = 100ms;
  auto result = run_load(o);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::unavailable);
  // No message was sent, so the next run may use the same account.
  FakeServer server(spool(), {});
  EXPECT_TRUE(run_load(options(server, 4)));
}

// The server answers 250, but discards every seventh message. The verification must fail, and name exactly
// these messages.
TEST_F(LoadTest, ALiarIsFoundOut) {
  FakeServer server(spool(), {.on_message = [](const FakeMessage& m) {
                      Plan plan = accept_all(m);
                      if (m.ordinal % 7 == 3) plan.store.assign(m.recipients.size(), false);
                      return plan;
                    }});
  load(options(server, 70));
  VerifyResult v = verify();
  EXPECT_FALSE(v.good());
  EXPECT_EQ(v.problem_counts[static_cast<std::size_t>(ProblemKind::lost)], 10u);
  EXPECT_EQ(v.acknowledged_found, 60u);
}

TEST_F(LoadTest, OpenLoopSendsAtItsRateAndMeasuresFromWhenItWasDue) {
  FakeServer server(spool(), {});
  LoadOptions o = options(server, 40);
  o.schedule.rate = 2000;
  LoadResult r = load(o);
  EXPECT_EQ(last(r, Outcome::acknowledged), 40u);
  // The last message was due 19.5 ms after the start, so the run took at least that long.
  EXPECT_GE(r.stats.window, Duration(19ms));
  EXPECT_TRUE(verify().good());
}

// For example, the terminal has gone. The results so far are reported, and the account is complete.
TEST_F(LoadTest, AHangupEndsARunInGoodOrder) {
  for (int number : {SIGHUP, SIGINT, SIGTERM}) {
    std::filesystem::remove(directory_ + "/account");
    FakeServer::Behaviour behaviour;
    behaviour.on_message = [number](const FakeMessage& message) {
      if (message.ordinal == 20) ::kill(::getpid(), number);
      return accept_all(message);
    };
    FakeServer server(spool(), behaviour);
    LoadOptions o = options(server, 1);
    o.schedule.messages.reset();
    o.schedule.duration = 1h;
    LoadResult r = load(o);
    EXPECT_TRUE(r.interrupted) << number;
    EXPECT_LT(r.stats.window, Duration(1h));  // it ended at the signal
    EXPECT_GT(r.stats.window, Duration(0));
    EXPECT_GE(last(r, Outcome::acknowledged), 20u);
    EXPECT_NE(report_text(o, r).find("(interrupted)"), std::string::npos);
    EXPECT_TRUE(verify().good());
    std::filesystem::remove_all(spool());
    std::filesystem::create_directory(spool());
  }
}

TEST_F(LoadTest, DurationEndsARun) {
  FakeServer server(spool(), {.on_message = slow});
  LoadOptions o = options(server, 1);
  o.schedule.messages.reset();
  o.schedule.duration = 2s;
  o.schedule.warmup = 2s;
  LoadResult r = load(o);
  EXPECT_EQ(r.stats.window, Duration(2s));
  EXPECT_GT(r.stats.acknowledged, 0u);
  EXPECT_LT(r.stats.acknowledged, last(r, Outcome::acknowledged));
  EXPECT_TRUE(verify().good());
  std::string json = report_json(o, r);
  EXPECT_NE(json.find("\"messages_per_minute\""), std::string::npos);
}

// Every form of sending stores the same messages.
TEST_F(LoadTest, SmtpAndChunksStoreTheSameMessages) {
  for (auto [protocol, chunk] :
       {std::pair{Protocol::smtp, std::uint64_t{0}}, {Protocol::lmtp, 300}, {Protocol::smtp, 1 << 20}}) {
    std::filesystem::remove(directory_ + "/account");
    std::filesystem::remove_all(spool());
    std::filesystem::create_directory(spool());
    FakeServer server(spool(), {});
    LoadOptions o = options(server, 60);
    o.protocol = protocol;
    o.recipients_per_message = 3;
    o.bdat = chunk > 0;
    o.chunk = chunk;
    LoadResult r = load(o);
    EXPECT_EQ(last(r, Outcome::acknowledged), 180u);
    EXPECT_TRUE(r.stats.errors.empty());
    VerifyResult v = verify();
    EXPECT_TRUE(v.good());
    EXPECT_EQ(v.acknowledged_found, 180u);
    bool warned = report_text(o, r).find("is no delivery") != std::string::npos;
    EXPECT_EQ(warned, protocol == Protocol::smtp);
  }
}

TEST_F(LoadTest, AServerThatLacksWhatIsDemandedEndsTheRunAtOnce) {
  FakeServer server(spool(), {.pipelining = false});
  for (bool bdat : {true, false}) {
    LoadOptions o = options(server, 4);
    o.connect_timeout = 1h;
    o.bdat = bdat;
    if (!bdat) o.starttls.emplace();
    auto result = run_load(o);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Errc::unavailable);
    EXPECT_NE(result.error().message.find("does not offer"), std::string::npos) << result.error().message;
  }
}

TEST_F(LoadTest, RealMessagesAreVerifiedToo) {
  std::filesystem::create_directory(directory_ + "/corpus");
  std::ofstream(directory_ + "/corpus/a") << "Subject: a\nMessage-ID: <1@x>\n\n.a\n";
  std::ofstream(directory_ + "/corpus/b") << "Subject: b\n\nna\xc3\xafve, without a line end";
  FakeServer server(spool(), {});
  LoadOptions o = options(server, 50);
  o.messages_from = directory_ + "/corpus";
  o.zipf = 1.2;
  LoadResult r = load(o);
  EXPECT_EQ(last(r, Outcome::acknowledged), 50u);
  EXPECT_TRUE(r.stats.eight_bit_refused);  // the server offers no 8BITMIME
  EXPECT_NE(report_text(o, r).find("8BITMIME"), std::string::npos);
  VerifyResult v = verify();
  EXPECT_TRUE(v.good());
  EXPECT_EQ(v.acknowledged_found, 50u);
}

// The first message takes 3 s, and the others wait behind it. An open loop counts that wait for each of
// them, also for those that end after the window.
TEST_F(LoadTest, AnOpenLoopCountsTheWaitBehindAStall) {
  FakeServer server(spool(), {.on_message = stall_first});
  LoadOptions o = hundred_in_a_stall(server);
  LoadResult r = load(o);
  EXPECT_EQ(r.messages_started, 100u);
  EXPECT_EQ(r.behind, 0u);
  EXPECT_GE(r.waiting, 95u);  // the one client was busy to the end of the window
  EXPECT_EQ(r.stats.latency.good.count(), 100u);
  // The last message was due 1.98 s after the first one, and was sent after the stall.
  EXPECT_GE(r.stats.latency.good.percentile(50), 1'000'000'000u);
  EXPECT_LT(r.stats.service.good.percentile(50), r.stats.latency.good.percentile(50));
  EXPECT_EQ(r.stats.generator.late_ns.count() + r.stats.generator.without_client +
                r.stats.generator.without_connection,
            100u);
}

// Without time for the drain, they are not sent. The report does not hide them.
TEST_F(LoadTest, MessagesThatAreNeverSentAreNamed) {
  FakeServer server(spool(), {.on_message = stall_first});
  LoadOptions o = hundred_in_a_stall(server);
  o.schedule.drain = 0s;
  LoadResult r = load(o);
  EXPECT_GE(r.behind, 90u);
  EXPECT_EQ(r.stats.latency.good.count(), 0u);
  EXPECT_EQ(r.stats.latency.failed.count(), 1u);  // the message in flight
  EXPECT_NE(report_text(o, r).find("messages were due and never sent"), std::string::npos);
}

TEST_F(LoadTest, FailuresAreApartFromLatencies) {
  FakeServer server(spool(), {.on_message = [](const FakeMessage& m) {
                      Plan plan = accept_all(m);
                      if (m.ordinal % 10 == 9) {
                        plan.replies = "451 4.3.0 later\r\n";
                        plan.store = {false};
                      }
                      return plan;
                    }});
  LoadOptions o = options(server, 100);
  o.clients = 1;
  LoadResult r = load(o);
  EXPECT_EQ(r.stats.latency.failed.count(), 10u);
  EXPECT_EQ(r.stats.latency.good.count(), 90u);
  EXPECT_EQ(r.stats.phase(Phase::message).failed.count(), 10u);
  EXPECT_EQ(r.stats.phase(Phase::message).good.count(), 90u);
  EXPECT_EQ(r.stats.phase(Phase::rcpt).good.count(), 100u);
}

TEST_F(LoadTest, AMessageWithoutAReplyIsAFailureToo) {
  FakeServer server(spool(), {.on_message = [](const FakeMessage& m) {
                      Plan plan = accept_all(m);
                      if (m.ordinal == 3) plan.replies.clear();
                      return plan;
                    }});
  LoadOptions o = options(server, 10);
  o.clients = 1;
  o.timeout = 3s;
  LoadResult r = load(o);
  EXPECT_EQ(r.stats.latency.failed.count(), 1u);
  EXPECT_GE(r.stats.latency.failed.max(), 3'000'000'000u);
  EXPECT_EQ(r.stats.latency.good.count(), 9u);
}

// A server that dies in the middle: the time until the end of the window is a gap.
TEST_F(LoadTest, TheGapLastsToTheEndOfTheWindow) {
  LoadResult r;
  r.stats.acknowledged_per_tick = {0, 3, 0, 0, 2};
  r.seconds.resize(1);
  EXPECT_EQ(longest_gap(r.stats), Duration(200ms));
  cover_window(r, 4s);
  EXPECT_EQ(r.stats.acknowledged_per_tick.size(), 40u);
  EXPECT_EQ(r.seconds.size(), 4u);
  EXPECT_EQ(longest_gap(r.stats), Duration(3500ms));
  cover_window(r, 1s);  // what came in the drain stays
  EXPECT_EQ(r.stats.acknowledged_per_tick.size(), 40u);
}

// The server serves one connection only. The other thread's client never gets one, and the run goes on.
TEST_F(LoadTest, AThreadWithoutAConnectionDoesNotEndTheRun) {
  FakeServer* running = nullptr;
  auto last_after_a_refusal = [&](const FakeMessage& m) {
    for (int i = 0; i < 10'000 && m.ordinal == 199 && running->connections() < 3; ++i)
      std::this_thread::sleep_for(1ms);
    return accept_all(m);
  };
  FakeServer server(spool(), {.on_message = last_after_a_refusal, .connections_max = 1});
  running = &server;
  LoadOptions o = options(server, 200);
  o.clients = 2;
  o.threads = 2;
  o.connect_timeout = 1ns;  // has passed when the other client learns that it is refused
  LoadResult r = load(o);
  EXPECT_EQ(r.stats.acknowledged, 200u);
  EXPECT_GT(r.stats.failed_connections, 0u);
  EXPECT_GT(r.stats.phase(Phase::connect).failed.count(), 0u);
}

// RFC 3030: the connection ends, but a 4xx is still a 4xx.
TEST_F(LoadTest, ADeferredChunkIsRepeatedAfterTheDelay) {
  FakeServer server(spool(), {.on_chunk = "452 4.3.1 later\r\n"});
  LoadOptions o = options(server, 1);
  o.clients = 1;
  o.bdat = true;
  o.chunk = 300;
  o.attempts = 3;
  o.retry_delay = 100ms;
  LoadResult r = load(o);
  EXPECT_EQ(all(r, Outcome::deferred), 3u);
  EXPECT_EQ(last(r, Outcome::deferred), 1u);
  EXPECT_GE(r.stats.latency.failed.max(), 200'000'000u);
}

TEST_F(LoadTest, TheSecondsAreThoseOfTheRun) {
  FakeServer server(spool(), {});
  LoadOptions o = options(server, 300);
  o.threads = 2;
  o.schedule.rate = 200;
  LoadResult r = load(o);
  std::uint64_t acknowledged = 0, messages = 0;
  for (const Second& s : r.seconds) {
    acknowledged += s.acknowledged;
    messages += s.messages;
  }
  EXPECT_EQ(acknowledged, 300u);
  EXPECT_EQ(messages, 300u);
  EXPECT_GE(r.seconds.size(), 2u);  // the last message was due after 1.495 s
}

TEST_F(LoadTest, ClientsBeginOneAfterTheOtherInARamp) {
  FakeServer server(spool(), {.on_message = slow});
  LoadOptions o = options(server, 1);
  o.clients = 4;
  o.schedule.messages.reset();
  o.schedule.ramp = 2s;
  o.schedule.duration = 1s;
  LoadResult r = load(o);
  EXPECT_EQ(server.connections(), 4u);
  EXPECT_EQ(r.stats.window, Duration(1s));
  EXPECT_LT(r.stats.acknowledged, last(r, Outcome::acknowledged));
}

TEST_F(LoadTest, AThreadWithoutIdleTimeIsNamed) {
  LoadOptions o;
  LoadResult r;
  EXPECT_TRUE(warnings(o, r).empty());
  r.stats.generator.busiest = 0.95;
  r.stats.generator.waited = 0.3;
  ASSERT_EQ(warnings(o, r).size(), 1u);
  EXPECT_NE(warnings(o, r)[0].find("95 % of the time (32 % of it waiting"), std::string::npos)
      << warnings(o, r)[0];
  r.stats.generator.busiest = 0.5;
  for (int i = 0; i < 100; ++i) r.stats.generator.late_ns.record(6'000'000);
  r.stats.generator.without_client = 5;
  r.stats.generator.without_connection = 5;
  EXPECT_EQ(warnings(o, r).size(), 3u);
}

TEST_F(LoadTest, ASearchFindsARate) {
  FakeServer server(spool(), {.on_message = slow});
  LoadOptions o = options(server, 1);
  o.schedule.messages.reset();
  o.schedule.duration = 2s;
  int shown = 0;
  auto result = run_search(o, Promise::parse("p50<10s").value(), 0.5, 1, [&](const Trial&) { ++shown; });
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->trials.size(), static_cast<std::size_t>(shown));
  EXPECT_FALSE(result->trials[0].rate);
  EXPECT_TRUE(std::filesystem::exists(o.account + ".1"));
  EXPECT_NE(search_json(o, Promise::parse("p50<10s").value(), *result).find("mailbench-search"),
            std::string::npos);
}

}  // namespace
}  // namespace twinloft::mailbench
