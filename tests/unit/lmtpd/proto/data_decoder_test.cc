#include "twinloft/lmtpd/proto/data_decoder.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "twinloft/base/random.h"

namespace twinloft::lmtpd {
namespace {

struct Decoded {
  std::string text;
  bool ended = false;
  std::size_t used = 0;  // bytes of the input
  bool operator==(const Decoded&) const = default;
};

// Feeds `in` in pieces of the sizes from next_size(). Each piece has its own memory.
template <class NextSize>
Decoded decode(std::string_view in, NextSize next_size) {
  DataDecoder decoder;
  Decoded out;
  while (!out.ended && out.used < in.size()) {
    std::string piece(in.substr(out.used, next_size()));
    ByteSpan left = as_bytes(piece);
    std::vector<ByteSpan> spans;
    out.ended = decoder.decode(left, spans);
    EXPECT_TRUE(out.ended || left.empty()) << "unused bytes before the end of the data";
    for (ByteSpan span : spans) out.text += as_text(span);
    out.used += piece.size() - left.size();
  }
  return out;
}

// Every case runs whole and one byte at a time.
Decoded decode(std::string_view in) {
  Decoded whole = decode(in, [&] { return in.size(); });
  EXPECT_EQ(whole, decode(in, [] { return std::size_t{1}; })) << "the results whole and byte by byte differ";
  return whole;
}

constexpr std::string_view nul_after_dot("a\r\n.\0\r\n.\r\n", 10);

struct Case {
  std::string_view in;
  std::string_view text;
};

class Complete : public testing::TestWithParam<Case> {};

TEST_P(Complete, IsDecodedUpToItsEnd) {
  std::string in(GetParam().in);
  EXPECT_EQ(decode(in), (Decoded{std::string(GetParam().text), true, in.size()}));
  // Pipelined input after the end is left alone.
  EXPECT_EQ(decode(in + "MAIL FROM:<>\r\n.\r\n"), (Decoded{std::string(GetParam().text), true, in.size()}));
}

INSTANTIATE_TEST_SUITE_P(
    All, Complete,
    testing::Values(Case{".\r\n", ""}, Case{"\r\n.\r\n", "\r\n"}, Case{"a\r\n.\r\n", "a\r\n"},
                    Case{"..\r\n.\r\n", ".\r\n"}, Case{"...\r\n.\r\n", "..\r\n"},
                    Case{"a\r\n..b\r\n.\r\n", "a\r\n.b\r\n"}, Case{".a\r\n.\r\n", "a\r\n"},
                    Case{"a.b\r\nc.\r\n.\r\n", "a.b\r\nc.\r\n"}, Case{"a\r\n.\r.\r\n.\r\n", "a\r\n\r.\r\n"},
                    Case{"a\r\n.\r\r\n.\r\n", "a\r\n\r\r\n"}, Case{"a\r\r\n.\r\n", "a\r\r\n"},
                    Case{"\xff\x80\r\n.\r\n", "\xff\x80\r\n"},
                    Case{nul_after_dot, std::string_view("a\r\n\0\r\n", 6)}));

// Sequences that servers with a loose definition of a line's end mistook for the end of a message
// (CVE-2023-51764, -51765, -51766). The sending server treats each as data, so this server must do the same.
class Smuggled : public testing::TestWithParam<std::string_view> {};

TEST_P(Smuggled, DoesNotEndTheData) {
  std::string in = "a" + std::string(GetParam()) + "MAIL FROM:<forged@example.org>\r\nDATA\r\n";
  Decoded open = decode(in);
  EXPECT_FALSE(open.ended);
  EXPECT_EQ(open.used, in.size());
  Decoded closed = decode(in + ".\r\n");
  EXPECT_TRUE(closed.ended);
  EXPECT_EQ(closed.used, in.size() + 3);
  EXPECT_NE(closed.text.find("MAIL FROM:<forged@example.org>\r\n"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, Smuggled,
                         testing::Values("\n.\n", "\n.\r\n", "\r\n.\n", "\r.\r", "\r\n.\r", "\r.\r\n",
                                         "\n.\r", "\r.\n", "\n\n.\r\n", "\r\r.\r\n", "\n\r.\r\n",
                                         "\r\n\n.\r\n", "\r\n.\r\r\n", "\r\n. \r\n", "\r\n..\r\n",
                                         "\r\n.\t\r\n", std::string_view("\r\n.\0\r\n", 6),
                                         std::string_view("\r\n\0.\r\n", 6),
                                         std::string_view("\r\0\n.\r\n", 6),
                                         std::string_view("\r\n.\r\0\n", 6)));

TEST(DataDecoder, BareLineEndsAreDataAsTheyAre) {
  EXPECT_EQ(decode("a\nb\rc\n.d\r.e\r\n.\r\n").text, "a\nb\rc\n.d\r.e\r\n");
}

TEST(DataDecoder, CanBeUsedAgainAfterReset) {
  DataDecoder decoder;
  for (int i = 0; i < 2; ++i) {
    std::vector<ByteSpan> spans;
    ByteSpan in = as_bytes("x\r\n.\r");
    EXPECT_FALSE(decoder.decode(in, spans));
    decoder.reset();
    in = as_bytes(".\r\nrest");
    EXPECT_TRUE(decoder.decode(in, spans));
    EXPECT_EQ(as_text(in), "rest");
    decoder.reset();
  }
}

// The output of a large piece is not cut into small pieces.
TEST(DataDecoder, CopiesNothingAndCutsOnlyAtStuffedDots) {
  std::string in;
  for (int i = 0; i < 1000; ++i) in += "A line. With dots. In it.\r\n";
  in += "..\r\n";
  std::vector<ByteSpan> spans;
  DataDecoder decoder;
  ByteSpan left = as_bytes(in);
  EXPECT_FALSE(decoder.decode(left, spans));
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].data(), as_bytes(in).data());
  EXPECT_EQ(spans[0].size() + spans[1].size(), in.size() - 1);
}

// RFC 5321 sections 4.1.1.4 and 4.5.2 in the simplest form, for the whole text.
Decoded model(const std::string& in) {
  std::string all = "\r\n" + in;  // the line end of the DATA command counts
  std::size_t end = all.find("\r\n.\r\n");
  Decoded out{{}, end != std::string::npos, end == std::string::npos ? in.size() : end + 3};
  std::string content = all.substr(0, end == std::string::npos ? end : end + 2);
  for (std::size_t i = 2; i < content.size(); ++i)
    if (content[i] != '.' || content.compare(i - 2, 2, "\r\n") != 0) out.text += content[i];
  return out;
}

TEST(DataDecoder, AgreesWithTheModelInEverySplit) {
  SeededRandom random(20231218);
  constexpr std::string_view alphabet("\r\n.\r\n.a\0", 8);
  std::size_t ended = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string in;
    for (std::uint64_t n = random.below(16); n > 0; --n) in += alphabet[random.below(alphabet.size())];
    in += "\r\n.\r\n";
    if (random.below(2)) in += "QUIT\r\n";
    Decoded expected = model(in);
    ASSERT_TRUE(expected.ended);
    Decoded got = decode(in, [&] { return 1 + random.below(5); });
    ASSERT_EQ(got.text, expected.text);
    ASSERT_EQ(got.used, expected.used);
    ended += got.ended;
  }
  EXPECT_EQ(ended, 200'000u);
}

}  // namespace
}  // namespace twinloft::lmtpd
