#include "mysql_hosts.h"

#include <gtest/gtest.h>

#include "sources.h"

namespace twinloft::lmtpd {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

class MysqlHostsTest : public testing::Test {
 protected:
  // The whole seconds until host 0 may be tried.
  int seconds_until_tried() {
    int passed = 0;
    for (; !hosts.may_try(0) && passed < 1000; ++passed) clock.at = clock.at + seconds(1);
    return passed;
  }

  ManualClock clock;
  std::vector<MysqlHost> list{*parse_mysql_host("db1"), *parse_mysql_host("db2")};
  MysqlHosts hosts{list, clock};
};

TEST_F(MysqlHostsTest, WhoDoesNotAnswerIsLeftAloneTwiceAsLongEachTimeUpToHalfAMinute) {
  for (int expected : {1, 2, 4, 8, 16, 30, 30}) {
    hosts.failed(0, "db1 is away");
    EXPECT_EQ(seconds_until_tried(), expected);
  }
}

TEST_F(MysqlHostsTest, OneThatFailsSaysNothingOfTheOthers) {
  hosts.failed(0, "db1 is away");
  EXPECT_FALSE(hosts.may_try(0));
  EXPECT_TRUE(hosts.may_try(1));
}

TEST_F(MysqlHostsTest, FailuresThatWereUnderWayCountOnce) {
  for (int i = 0; i < 8; ++i) hosts.failed(0, "db1 is away");
  EXPECT_EQ(seconds_until_tried(), 1);
  hosts.failed(0, "db1 is away");
  EXPECT_EQ(seconds_until_tried(), 2);
}

TEST_F(MysqlHostsTest, AnAnswerEndsIt) {
  hosts.failed(0, "db1 is away");
  EXPECT_EQ(seconds_until_tried(), 1);
  hosts.failed(0, "db1 is away");
  hosts.answered(0);  // the answer to a look-up that had begun before
  EXPECT_TRUE(hosts.may_try(0));
  hosts.failed(0, "db1 is away");
  EXPECT_EQ(seconds_until_tried(), 1);
}

TEST(MysqlConnectionAge, TheFirstHostsConnectionsServeFiveMinutesTheOthersOne) {
  EXPECT_TRUE(may_use_again(0, minutes(5) - milliseconds(1), {}));
  EXPECT_FALSE(may_use_again(0, minutes(5), {}));
  EXPECT_TRUE(may_use_again(1, minutes(1) - milliseconds(1), {}));
  EXPECT_FALSE(may_use_again(1, minutes(1), {}));
}

TEST(MysqlConnectionAge, IdleForAMinuteItIsNotTrusted) {
  EXPECT_TRUE(may_use_again(0, minutes(2), minutes(1) - milliseconds(1)));
  EXPECT_FALSE(may_use_again(0, minutes(2), minutes(1)));
}

std::string host(const std::string& text) {
  auto h = parse_mysql_host(text);
  return h ? h->host + " " + std::to_string(h->port) + " " + h->socket : "error: " + h.error().message;
}

TEST(MysqlHost, IsReadInAllItsForms) {
  EXPECT_EQ(host("db.example.org"), "db.example.org 3306 ");
  EXPECT_EQ(host("192.0.2.1:3307"), "192.0.2.1 3307 ");
  EXPECT_EQ(host("[2001:db8::1]"), "2001:db8::1 3306 ");
  EXPECT_EQ(host("[2001:db8::1]:1"), "2001:db8::1 1 ");
  EXPECT_EQ(host("unix:/run/db"), " 3306 /run/db");
  for (const char* bad : {"", ":3306", "db:", "db:0", "db:65536", "db:x", "2001:db8::1", "[]", "[::1]x",
                          "[::1", "[::1]:", "unix:", "unix:db"})
    EXPECT_EQ(host(bad).substr(0, 6), "error:") << bad << ": " << host(bad);
}

}  // namespace
}  // namespace twinloft::lmtpd
