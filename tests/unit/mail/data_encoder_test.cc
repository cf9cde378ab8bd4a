#include "twinloft/mail/data_encoder.h"

#include <gtest/gtest.h>

namespace twinloft::mail {
namespace {

std::string encoded(std::string_view message, LoneCr lone_cr = LoneCr::blank) {
  DataEncoder at_once(lone_cr), byte_by_byte(lone_cr);
  std::string whole, trickled;
  at_once.feed(message, whole);
  at_once.finish(whole);
  for (char c : message) byte_by_byte.feed({&c, 1}, trickled);
  byte_by_byte.finish(trickled);
  EXPECT_EQ(whole, trickled);
  return whole;
}

TEST(DataEncoder, DoublesDotsAtTheStartOfLines) {
  EXPECT_EQ(encoded(".a\r\n..\r\nb.c\r\n.\r\n"), "..a\r\n...\r\nb.c\r\n..\r\n.\r\n");
}
TEST(DataEncoder, EndsTheLastLine) {
  EXPECT_EQ(encoded(""), ".\r\n");
  EXPECT_EQ(encoded("a"), "a\r\n.\r\n");
  EXPECT_EQ(encoded("a\r"), "a \r\n.\r\n");
}
TEST(DataEncoder, KeepsALoneCrWhereItIsAskedTo) {
  auto kept = [](std::string_view message) { return encoded(message, LoneCr::keep); };
  EXPECT_EQ(kept(""), ".\r\n");
  EXPECT_EQ(kept("a\nb\r\nc"), "a\r\nb\r\nc\r\n.\r\n");
  EXPECT_EQ(kept("."), "..\r\n.\r\n");
  EXPECT_EQ(kept("a\n.\n..b\r\n.\r\n"), "a\r\n..\r\n...b\r\n..\r\n.\r\n");
  EXPECT_EQ(kept("a.b\n"), "a.b\r\n.\r\n");
  EXPECT_EQ(kept("a\r.\rb\n"), "a\r.\rb\r\n.\r\n") << "it does not end a line";
  EXPECT_EQ(kept("a\r\r\n"), "a\r\r\n.\r\n");
  EXPECT_EQ(kept("a\r"), "a\r\n.\r\n");
}
TEST(DataEncoder, TheLineEndGoesOutBeforeTheDot) {
  DataEncoder encoder;
  std::string out;
  encoder.feed("a", out);
  encoder.end_line(out);
  EXPECT_EQ(out, "a\r\n");
  encoder.finish(out);
  EXPECT_EQ(out, "a\r\n.\r\n");
}
TEST(DataEncoder, LetsNoOtherLineEndOut) {
  for (std::string_view message : {"a\n.\nb\r\n", "a\r.\rb\r\n", "a\r\n.\rb\r\n", "a\n.\r\nb\r\n",
                                   "a\r\r\n.\r\n", "\r\r\r\n\n.\n\r.\r"}) {
    std::string out = encoded(message);
    for (std::size_t i = 0; i < out.size(); ++i) {
      bool lone_lf = out[i] == '\n' && (i == 0 || out[i - 1] != '\r');
      bool lone_cr = out[i] == '\r' && (i + 1 == out.size() || out[i + 1] != '\n');
      EXPECT_FALSE(lone_lf || lone_cr) << message;
    }
    EXPECT_EQ(out.find("\r\n.\r\n"), out.size() - 5) << message;
  }
}

}  // namespace
}  // namespace twinloft::mail
