// A link to a filter that hangs, dies or breaks the protocol at any byte.
#include "twinloft/lmtpd/milter/filter_link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "twinloft/lmtpd/milter/message_edit.h"

namespace twinloft::lmtpd::milter {
namespace {

using namespace std::string_view_literals;
using std::chrono::seconds;

struct ManualClock final : Clock {
  Instant now() const override { return time; }
  WallTime wall() const override { return {}; }
  Instant time{};
};

std::string packet(char kind, std::string_view data = {}) {
  std::string out;
  append_packet(out, kind, data);
  return out;
}
std::string agreement(std::uint32_t wishes) {
  std::string data;
  for (std::uint32_t number : {6u, may::all, wishes}) append_number(data, number);
  return packet(command::negotiate, data);
}

// A filter whose output is fixed. Each packet comes after `wait`. After `bytes`, the filter ends, or is
// silent.
struct Script {
  std::string output;
  std::size_t bytes = std::string::npos;  // that arrive
  bool hangs = false;                     // behind them; otherwise its connection ends
  std::chrono::milliseconds wait{0};      // before each read
  std::string input = {};                 // what it got
  int writes = 0;
};

class ScriptedFilter final : public Stream {
 public:
  ScriptedFilter(Script& script, ManualClock& clock) : script_(script), clock_(clock) {}
  Result<std::size_t> read(MutableByteSpan into, Instant deadline) override {
    std::size_t there = std::min(script_.bytes, script_.output.size()) - at_;
    const auto wait = at_ == 0 ? std::chrono::milliseconds(0) : script_.wait;  // the negotiation takes no
                                                                               // time
    if (clock_.now() + wait > deadline || (there == 0 && script_.hangs)) {
      clock_.time = std::max(clock_.time, deadline);
      return fail(Errc::timeout, "no answer in time");
    }
    clock_.time = clock_.time + wait;
    if (there == 0) return fail(Errc::unavailable, "the connection has ended");
    std::size_t count = std::min({into.size(), there, to_the_end_of_a_packet()});
    std::memcpy(into.data(), script_.output.data() + at_, count);
    at_ += count;
    return count;
  }
  Status write(std::string_view bytes, Instant) override {
    script_.input += bytes;
    ++script_.writes;
    return {};
  }
  Status start_tls(const TlsClientContext&, Instant) override { return fail(Errc::denied, "no TLS"); }
  bool has_news() override { return false; }
  void shut() override {}

 private:
  // A filter answers one event at a time.
  std::size_t to_the_end_of_a_packet() {
    if (at_ == end_) {
      const std::string_view rest = std::string_view(script_.output).substr(at_);
      std::size_t bytes = 4;
      for (std::size_t i = 0, length = 0; i < std::min<std::size_t>(4, rest.size()); ++i)
        length = length << 8 | static_cast<unsigned char>(rest[i]), bytes = 4 + length;
      end_ = at_ + bytes;
    }
    return end_ - at_;
  }

  Script& script_;
  ManualClock& clock_;
  std::size_t at_ = 0;
  std::size_t end_ = 0;  // of the packet at at_
};

// What the filter may do to the message, and the verdict.
struct Outcome {
  Result<Verdict> verdict;
  std::vector<Change> changes;
};

struct FilterLinkTest : testing::Test {
  ManualClock clock;
  FilterSpec spec{.name = "f"};
  Instant most{INT64_MAX / 2};

  Outcome run(Script& script) {
    FilterLink link(std::make_unique<ScriptedFilter>(script, clock), spec, clock);
    Outcome outcome{fail(Errc::internal, "not asked"), {}};
    if (auto opened = link.open(); !opened) {
      outcome.verdict = std::unexpected(opened.error());
      return outcome;
    }
    const Event events[] = {
        Connect{}, Helo{},           Mail{"a@b.example", {}}, Rcpt{"c@d.example", {}, false},
        Data{},    Header{"A", "b"}, EndOfHeaders{},          BodyChunk{"body\r\n"}};
    for (const Event& event : events) {
      outcome.verdict = link.say(event, {}, most);
      if (!outcome.verdict || !std::holds_alternative<Continue>(*outcome.verdict)) return outcome;
    }
    outcome.verdict = link.end_message({}, most, [&](Change&& change) -> Status {
      outcome.changes.push_back(std::move(change));
      return {};
    });
    return outcome;
  }
};

constexpr std::uint32_t all_silent = wish::silent_connect | wish::silent_helo | wish::silent_mail |
                                     wish::silent_rcpt | wish::silent_data | wish::silent_header |
                                     wish::silent_end_of_headers | wish::silent_body;

std::string whole_script() {
  std::string output = agreement(0);
  for (int i = 0; i < 8; ++i) output += packet(answer::continue_);
  return output + packet(answer::progress) + packet(answer::add_header, "X\0y\0"sv) +
         packet(answer::replace_body, "new") + packet(answer::continue_);
}

TEST_F(FilterLinkTest, AWholeMessage) {
  Script script{whole_script()};
  Outcome outcome = run(script);
  ASSERT_TRUE(outcome.verdict) << outcome.verdict.error().message;
  EXPECT_EQ(*outcome.verdict, Verdict(Continue{}));
  EXPECT_EQ(outcome.changes, (std::vector<Change>{AddHeader{"X", "y"}, ReplaceBody{"new"}}));
  EXPECT_EQ(script.writes, 10) << "the negotiation, and each event with its macros";
}

// The end of the message is the only event that a filter always answers.
TEST_F(FilterLinkTest, SilentEventsLeaveTogether) {
  Script script{agreement(all_silent) + packet(answer::continue_)};
  ASSERT_TRUE(run(script).verdict);
  EXPECT_EQ(script.writes, 2);
}

TEST_F(FilterLinkTest, MuchOfASilentMessageIsNotCollected) {
  Script script{agreement(all_silent)};
  FilterLink link(std::make_unique<ScriptedFilter>(script, clock), spec, clock);
  ASSERT_TRUE(link.open());
  ASSERT_TRUE(link.say(Mail{}, {}, most));
  std::string chunk(data_bytes_max, 'b');
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(link.say(BodyChunk{chunk}, {}, most));
  EXPECT_GT(script.input.size(), 8 * chunk.size());
}

TEST_F(FilterLinkTest, AFilterThatDiesAtAnyByteGivesNoVerdict) {
  const std::string output = whole_script();
  for (std::size_t bytes = 0; bytes < output.size(); ++bytes) {
    Script script{.output = output, .bytes = bytes};
    Outcome outcome = run(script);
    ASSERT_FALSE(outcome.verdict) << bytes;
    EXPECT_EQ(outcome.verdict.error().code, Errc::unavailable) << bytes;
  }
}

TEST_F(FilterLinkTest, AFilterThatHangsAtAnyByteCostsItsTimeLimit) {
  const std::string output = whole_script();
  for (std::size_t bytes = 0; bytes < output.size(); ++bytes) {
    Script script{.output = output, .bytes = bytes, .hangs = true};
    clock.time = {};
    Outcome outcome = run(script);
    ASSERT_FALSE(outcome.verdict) << bytes;
    EXPECT_EQ(outcome.verdict.error().code, Errc::timeout) << bytes;
    EXPECT_LE(clock.now() - Instant{}, spec.message_timeout) << bytes;
  }
}

TEST_F(FilterLinkTest, ProgressRenewsTheTime) {
  std::string output = agreement(all_silent);
  for (int i = 0; i < 4; ++i) output += packet(answer::progress);
  output += packet(answer::accept);
  Script script{.output = output, .wait = seconds(20)};
  spec.message_timeout = seconds(30);
  Outcome outcome = run(script);
  ASSERT_TRUE(outcome.verdict) << outcome.verdict.error().message;
  EXPECT_GT(clock.now() - Instant{}, seconds(80));
}

TEST_F(FilterLinkTest, ProgressIsNotRenewedBeyondTheCapOfAMessage) {
  std::string output = agreement(all_silent);
  for (int i = 0; i < 1000; ++i) output += packet(answer::progress);
  Script script{.output = output, .wait = seconds(20)};
  most = clock.now() + seconds(300);
  Outcome outcome = run(script);
  ASSERT_FALSE(outcome.verdict);
  EXPECT_EQ(outcome.verdict.error().code, Errc::timeout);
  EXPECT_LE(clock.now(), most);
}

TEST_F(FilterLinkTest, AnErrorOfTheTakerEndsTheDialogue) {
  Script script{agreement(0) + packet(answer::continue_) + packet(answer::add_header, "X\0y\0"sv)};
  FilterLink link(std::make_unique<ScriptedFilter>(script, clock), spec, clock);
  ASSERT_TRUE(link.open());
  ASSERT_TRUE(link.say(Mail{}, {}, most));
  auto verdict = link.end_message({}, most,
                                  [](Change&&) -> Status { return fail(Errc::io, "the disk is full"); });
  ASSERT_FALSE(verdict);
}

// Its packets are always there, so no read ever waits.
class EndlessFilter final : public Stream {
 public:
  EndlessFilter(std::string talk, ManualClock& clock) : talk_(std::move(talk)), clock_(clock) {}
  Result<std::size_t> read(MutableByteSpan into, Instant) override {
    std::string out = std::exchange(negotiated_, true) ? talk_ : agreement(all_silent);
    std::memcpy(into.data(), out.data(), out.size());
    clock_.time = clock_.time + std::chrono::milliseconds(1);
    return out.size();
  }
  Status write(std::string_view, Instant) override { return {}; }
  Status start_tls(const TlsClientContext&, Instant) override { return fail(Errc::denied, "no TLS"); }
  bool has_news() override { return false; }
  void shut() override {}

 private:
  const std::string talk_;
  ManualClock& clock_;
  bool negotiated_ = false;
};

TEST_F(FilterLinkTest, AFilterThatNeverStopsToTalkMeetsItsLimit) {
  for (const std::string& talk :
       {packet(answer::progress), packet(answer::replace_body, ""), packet(answer::add_header, "X\0y\0"sv)}) {
    FilterLink link(std::make_unique<EndlessFilter>(talk, clock), spec, clock);
    ASSERT_TRUE(link.open());
    ASSERT_TRUE(link.say(Mail{}, {}, most));
    auto verdict = link.end_message({}, clock.now() + seconds(700), [](Change&&) { return Status(); });
    ASSERT_FALSE(verdict);
    EXPECT_EQ(verdict.error().code, Errc::timeout);
  }
}

// Takes `bytes_max` bytes, then nothing more.
class StuckFilter final : public Stream {
 public:
  StuckFilter(std::size_t bytes_max, std::string& got) : left_(bytes_max), got_(got) {}
  Result<std::size_t> read(MutableByteSpan into, Instant) override {
    const std::string out = agreement(all_silent);
    std::memcpy(into.data(), out.data(), out.size());
    return out.size();
  }
  Status write(std::string_view bytes, Instant) override {
    const std::size_t count = std::min(left_, bytes.size());
    got_ += bytes.substr(0, count);
    left_ -= count;
    return count == bytes.size() ? Status() : fail(Errc::timeout, "no answer in time");
  }
  Status start_tls(const TlsClientContext&, Instant) override { return fail(Errc::denied, "no TLS"); }
  bool has_news() override { return false; }
  void shut() override {}

 private:
  std::size_t left_;
  std::string& got_;
};

// The filter would read them at a wrong place of its stream.
TEST_F(FilterLinkTest, NoByteIsSentAgainAfterAPartialWrite) {
  std::string all, part;
  for (auto [bytes, got] : {std::pair<std::size_t, std::string*>(1'000'000, &all), {60, &part}}) {
    FilterLink link(std::make_unique<StuckFilter>(bytes, *got), spec, clock);
    ASSERT_TRUE(link.open());
    ASSERT_TRUE(link.say(Mail{"a@b.example", {}}, {}, most));
    ASSERT_TRUE(link.say(Rcpt{"c@d.example", {}, false}, {}, most));
    (void)link.abort();
    link.quit();
  }
  EXPECT_EQ(part, all.substr(0, 60));
}

}  // namespace
}  // namespace twinloft::lmtpd::milter
