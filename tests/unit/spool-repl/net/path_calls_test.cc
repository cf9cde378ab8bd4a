// When a further path is called again.
#include "path_calls.h"

#include <gtest/gtest.h>

#include "../support/manual_loop.h"
#include "../support/memory_stream.h"
#include "connection.h"
#include "sample_volume.h"

namespace twinloft::repl::net {
namespace {

struct PathCallsTest : testing::Test {
  static constexpr Duration again = std::chrono::milliseconds(500), again_max = std::chrono::seconds(5),
                            flapping_max = std::chrono::minutes(1);

  Result<std::shared_ptr<Connection>> call(const Address& at, unsigned) {
    called.push_back(at.text);
    if (!refusal.empty()) return fail(Errc::unavailable, "{}", refusal);
    last = std::make_shared<Connection>(
        loop,
        std::make_unique<MemoryStream>(std::make_shared<MemoryPipe>(), std::make_shared<MemoryPipe>(),
                                       MemoryStream::Limits{}, stream::Stream::State::opening),
        nullptr, "a path", Handshake({volume, 1000, 1}, ByStream{}, Handshake::Direction::dialed, 2, random),
        Connection::Limits{std::chrono::hours(1), std::chrono::hours(1), 1u << 20},
        Connection::Events{{}, {}, {}, [](Connection&, const std::string&) {}});
    return last;
  }
  // The time until the next call.
  Duration pause() {
    for (int ms = 0; ms < 100'000; ms += 50) {
      std::size_t before = called.size();
      loop.pass(std::chrono::milliseconds(50));
      loop.run_posted();
      if (called.size() > before) return std::chrono::milliseconds(ms + 50);
    }
    return Duration(0);
  }

  ManualLoop loop;
  OsRandom random;
  std::string refusal;
  std::vector<std::string> called, told;
  std::shared_ptr<Connection> last;
  PathCalls calls{
      {loop,
       [](const std::string& text, const auto& then) { then(std::vector<Address>{*numeric_address(text)}); },
       [this](const Address& at, unsigned number) { return call(at, number); },
       [this](unsigned number, const std::string& why) {
         told.push_back(fmt::format("{}: {}", number, why));
       },
       again, again_max, flapping_max}};
};

TEST_F(PathCallsTest, RefusedCallsAreRepeatedAndToldOfOnce) {
  refusal = "refused";
  calls.need(1, "10.0.0.1:1");
  calls.need(1, "10.0.0.1:1");
  loop.pass(Duration(0));
  EXPECT_EQ(called.size(), 1u);
  for (int ms : {500, 1000, 2000, 4000, 5000, 5000}) EXPECT_EQ(pause(), std::chrono::milliseconds(ms));
  refusal = "";
  EXPECT_EQ(pause(), again_max);
  EXPECT_EQ(told, std::vector<std::string>{"1: refused"});
  EXPECT_EQ(calls.trouble(1), "refused");
  EXPECT_EQ(pause(), Duration(0)) << "one call at a time";
}

TEST_F(PathCallsTest, APathThatDoesNotLastIsCalledLaterEachTime) {
  calls.need(1, "10.0.0.1:1");
  loop.pass(Duration(0));
  for (int ms : {500, 1000, 2000, 4000, 8000, 16'000, 32'000, 60'000, 60'000}) {
    ASSERT_EQ(calls.take(*last), last);
    calls.lost(1, "dropped");
    EXPECT_EQ(pause(), std::chrono::milliseconds(ms));
  }
  EXPECT_EQ(told, std::vector<std::string>{"1: dropped"});
  calls.take(*last);
  calls.usable(1);
  loop.pass(std::chrono::minutes(2));
  calls.lost(1, "pulled");
  EXPECT_EQ(pause(), again) << "it had been stable";
  EXPECT_EQ(told.back(), "1: pulled");
}

TEST_F(PathCallsTest, AnotherAddressIsCalledInstead) {
  calls.need(1, "10.0.0.1:1");
  loop.pass(Duration(0));
  auto first = last;
  calls.need(1, "10.0.0.9:1");
  EXPECT_FALSE(first->is_open());
  EXPECT_FALSE(calls.owns(*first));
  loop.pass(Duration(0));
  EXPECT_EQ(called, (std::vector<std::string>{"10.0.0.1:1", "10.0.0.9:1"}));
  calls.done(1);
  EXPECT_EQ(pause(), Duration(0));
}

}  // namespace
}  // namespace twinloft::repl::net
