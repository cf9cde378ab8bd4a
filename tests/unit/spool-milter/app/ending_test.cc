#include "ending.h"

#include <gtest/gtest.h>
#include <sysexits.h>

namespace twinloft::spool_milter {
namespace {

using std::chrono::seconds;
using Code = std::optional<int>;

struct EndingTest : testing::Test {
  Ending ending{seconds(18)};
  Instant now{1'000'000'000'000};
  Code with(std::size_t connections, std::size_t questions) const {
    return ending.exit_code({connections, questions}, now);
  }
};

TEST_F(EndingTest, WithoutAnOrderItGoesOn) {
  EXPECT_EQ(with(0, 0), Code());
  EXPECT_EQ(with(5, 2), Code());
  ending.hurry();
  EXPECT_EQ(with(0, 0), Code()) << "the supervisor has not replaced it yet";
}

TEST_F(EndingTest, DrainingWaitsForTheLastConnection) {
  EXPECT_FALSE(ending.asks_for_connections());
  ending.drain(now);
  EXPECT_TRUE(ending.asks_for_connections());
  EXPECT_EQ(with(1, 0), Code());
  EXPECT_EQ(with(0, 0), Code()) << "a connection may be on its way into the process";
  now = now + Ending::settle_time;
  EXPECT_EQ(with(1, 0), Code());
  EXPECT_EQ(with(0, 0), Code(0));
  now = now + (Ending::drain_time - Ending::settle_time - seconds(1));
  ending.drain(now);
  EXPECT_EQ(with(1, 0), Code());
  now = now + seconds(1);
  EXPECT_EQ(with(1, 1), Code()) << "an answer is awaited";
  EXPECT_EQ(with(1, 0), Code(0));
}

TEST_F(EndingTest, DrainingWithoutAUserDatabaseKeepsNoConnection) {
  ending.drain(now);
  ending.hurry();
  EXPECT_EQ(with(3, 1), Code());
  EXPECT_EQ(with(3, 0), Code(0));
}

TEST_F(EndingTest, AStopWaitsForAnswersAndNotForConnections) {
  ending.stop(now);
  EXPECT_EQ(with(3, 1), Code());
  EXPECT_EQ(with(3, 0), Code(0));
  now = now + seconds(18);
  EXPECT_EQ(with(3, 1), Code(EX_TEMPFAIL));
}

TEST_F(EndingTest, AnAbortWaitsForNothing) {
  ending.abort();
  EXPECT_EQ(with(3, 0), Code(0));
  EXPECT_EQ(with(3, 1), Code(EX_TEMPFAIL));
}

TEST_F(EndingTest, WithoutLibmilterThereIsNoUseInGoingOn) {
  ending.lost_libmilter(now);
  EXPECT_EQ(with(3, 0), Code()) << "an order to stop may follow";
  now = now + Ending::lost_time;
  EXPECT_EQ(with(3, 1), Code(EX_SOFTWARE));
  ending.stop(now);
  EXPECT_EQ(with(3, 1), Code());
  EXPECT_EQ(with(0, 0), Code(0));
}

}  // namespace
}  // namespace twinloft::spool_milter
