#include "twinloft/mailbench/message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "twinloft/mailbench/spool.h"

namespace twinloft::mailbench {
namespace {

MessageFactory::Settings settings(const char* size, std::size_t recipients = 1) {
  auto distribution = SizeDistribution::parse(size);
  EXPECT_TRUE(distribution);
  return {.run = "run1",
          .from = "a@example.net",
          .seed = 5,
          .recipients_per_message = recipients,
          .size = *distribution,
          .date = {1700000000, 0}};
}

std::string as_sent(const Message& m) {
  std::string out = m.head;
  for (std::string_view piece : m.middle) out += piece;
  return out + m.tail;
}

// The message as a server receives it: up to the dot, and without stuffing (RFC 5321 section 4.5.2).
std::string as_received(const std::string& sent) {
  std::string out;
  for (std::size_t at = 0;;) {
    std::size_t end = sent.find("\r\n", at);
    EXPECT_NE(end, sent.npos) << "no final dot";
    if (end == sent.npos) return out;
    std::string line = sent.substr(at, end - at);
    at = end + 2;
    if (line == ".") {
      EXPECT_EQ(at, sent.size()) << "content after the final dot";
      return out;
    }
    if (line.starts_with('.')) line.erase(0, 1);
    EXPECT_LE(line.size(), 998u);
    EXPECT_EQ(line.find_first_of("\r\n"), line.npos);
    out += line + "\r\n";
  }
}

std::string with_lf(std::string text) {
  std::string out;
  for (char c : text)
    if (c != '\r') out += c;
  return out;
}

TEST(Message, HasExactlyTheSizeAskedFor) {
  auto users = Users::from_format("u%u@example.org", 1, 10);
  ASSERT_TRUE(users);
  TextBlock block(5, true, 1 << 14);  // a small block, so that messages wrap around
  for (int size : {1000, 1001, 1002, 1003, 4096, 16384, 65536, 100001}) {
    MessageFactory factory(settings(std::to_string(size).c_str()), *users, block);
    Message m;
    for (std::uint64_t n = 0; n < 60; ++n) {
      factory.make(n, m);
      std::string received = as_received(as_sent(m));
      ASSERT_EQ(received.size(), static_cast<std::size_t>(size)) << n;
      ASSERT_EQ(m.size, received.size());
    }
  }
}

TEST(Message, IsWholeInEitherLineEnd) {
  auto users = Users::from_format("u%u@example.org", 1, 10);
  ASSERT_TRUE(users);
  TextBlock block(5, true, 1 << 16);
  MessageFactory factory(settings("mean:8KiB", 3), *users, block);
  Message m;
  Hasher128 hasher;
  bool stuffed = false;
  for (std::uint64_t n = 0; n < 200; ++n) {
    factory.make(n, m);
    std::string sent = as_sent(m), received = as_received(sent);
    stuffed = stuffed || sent.find("\r\n..") != sent.npos;
    for (const std::string& text : {received, with_lf(received)}) {
      StoredMessage stored = parse_stored(text);
      EXPECT_EQ(stored.id, m.id);
      EXPECT_EQ(find_damage(stored, m.digest, true, hasher), "");
    }
  }
  EXPECT_TRUE(stuffed) << "no line with a leading dot in 200 messages";
}

TEST(Message, IsAFunctionOfSeedAndNumber) {
  auto users = Users::from_format("u%u@example.org", 1, 1000);
  ASSERT_TRUE(users);
  TextBlock block(5, true, 1 << 16);
  MessageFactory a(settings("mean:8KiB"), *users, block), b(settings("mean:8KiB"), *users, block);
  Message from_a, from_b;
  a.make(1, from_a);
  a.make(7, from_a);
  b.make(7, from_b);
  EXPECT_EQ(as_sent(from_a), as_sent(from_b));
  EXPECT_EQ(from_a.digest, from_b.digest);
  b.make(8, from_b);
  EXPECT_NE(from_a.digest, from_b.digest);
}

// The generator's state grows by a constant with each draw. Messages with states at a multiple of this
// distance would draw the same values.
TEST(Message, NeighboursHaveNoMoreRecipientsInCommonThanOthers) {
  auto users = Users::from_format("u%u@example.org", 1, 1000);
  ASSERT_TRUE(users);
  TextBlock block(5, true, 1 << 14);
  MessageFactory factory(settings("1KiB", 20), *users, block);
  Message one, next;
  std::size_t common = 0;
  for (std::uint64_t number = 1; number <= 200; ++number) {
    factory.make(number, one);
    factory.make(number + 1, next);
    for (const auto& recipient : one.recipients)
      common += static_cast<std::size_t>(std::ranges::count(next.recipients, recipient));
  }
  EXPECT_LT(common, 200u);  // 80 are expected
}

TEST(Message, RecipientsAreDifferentAndSpread) {
  auto users = Users::from_format("u%u@example.org", 1, 20);
  ASSERT_TRUE(users);
  TextBlock block(5, true, 1 << 14);
  for (std::size_t count : {1, 5, 15, 20}) {
    MessageFactory factory(settings("2KiB", count), *users, block);
    std::set<std::string> seen;
    Message m;
    for (std::uint64_t n = 0; n < 400; ++n) {
      factory.make(n, m);
      std::set<std::string> here(m.recipients.begin(), m.recipients.end());
      ASSERT_EQ(here.size(), count);
      seen.merge(here);
    }
    EXPECT_EQ(seen.size(), 20u);
  }
}

TEST(Users, Formats) {
  auto padded = Users::from_format("u%03u%%@example.org", 7, 2);
  ASSERT_TRUE(padded);
  EXPECT_EQ(padded->address(0), "u007%@example.org");
  EXPECT_EQ(padded->address(1), "u008%@example.org");
  EXPECT_TRUE(Users::from_format("one@example.org", 1, 1));
  for (const char* bad : {"u%x@d", "u%", "u%u%u@d", "u%5u@d", "u%099u@d", "a b%u@d", "<%u@d>"})
    EXPECT_FALSE(Users::from_format(bad, 1, 2)) << bad;
  EXPECT_FALSE(Users::from_format("one@example.org", 1, 2));
  EXPECT_EQ(Users::from_format("one@example.org", 1, 1)->address(0), "one@example.org");
  EXPECT_FALSE(Users::from_format("u%u@d", 1, 0));
  EXPECT_FALSE(Users::from_list({}));
  EXPECT_FALSE(Users::from_list({"a@d", "b @d"}));
  auto list = Users::from_list({"b@d", "a@d", "b@d"});
  ASSERT_TRUE(list);
  EXPECT_EQ(list->size(), 2u);
  EXPECT_EQ(list->address(0), "b@d")
      << "the order is that of the file: with --zipf, the first user gets most mail";
}

TEST(Message, DateIsRfc5322) {
  EXPECT_EQ(format_date({1700000000, 5}), "Tue, 14 Nov 2023 22:13:20 +0000");
}

}  // namespace
}  // namespace twinloft::mailbench
