#include "twinloft/mail/subscriptions.h"

#include <gtest/gtest.h>

namespace twinloft::mail {
namespace {

std::string added(std::string_view file, std::string_view folder) {
  return add_subscription(file, folder).value_or("there");
}

TEST(Subscriptions, ANewFileIsOfVersion2) {
  EXPECT_EQ(added("", ".Lists.Dev"), "V\t2\n\nLists\tDev\n");
}

TEST(Subscriptions, EachVersionKeepsItsForm) {
  EXPECT_EQ(added("V\t2\n\nA\n", ".Lists.Dev"), "V\t2\n\nA\nLists\tDev\n");
  EXPECT_EQ(added("A\n", ".Lists.Dev"), "A\nLists.Dev\n");
  EXPECT_EQ(added("A", ".B"), "A\nB\n");  // the unfinished last line is kept as its own line
  EXPECT_EQ(added("V\t2", ".Lists.Dev"), "V\t2\nLists\tDev\n");
}

TEST(Subscriptions, WhatIsThereIsNotAddedAgain) {
  EXPECT_EQ(added("V\t2\n\nLists\tDev\n", ".Lists.Dev"), "there");
  EXPECT_EQ(added("V\t2\n\nA\nLists\tDev", ".Lists.Dev"), "there");
  EXPECT_EQ(added("Lists.Dev\n", ".Lists.Dev"), "there");
  EXPECT_EQ(added("Lists.Dev\n", ".Lists"), "Lists.Dev\nLists\n");
  EXPECT_EQ(added("V\t2\n\nLists\tDev\n", ".Dev"), "V\t2\n\nLists\tDev\nDev\n");
}

TEST(Subscriptions, ALockIsStaleAfter30Seconds) {
  constexpr std::int64_t now = 1'700'000'000;
  for (std::int64_t age : {0, 30, -30}) EXPECT_FALSE(is_stale_lock(now - age, now)) << age;
  for (std::int64_t age : {31, 3600, -31, -3600}) EXPECT_TRUE(is_stale_lock(now - age, now)) << age;
  EXPECT_TRUE(is_stale_lock(INT64_MIN, now));  // any user can set such a time
  EXPECT_TRUE(is_stale_lock(INT64_MAX, now));
}

}  // namespace
}  // namespace twinloft::mail
