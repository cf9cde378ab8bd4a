#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "twinloft/base/bytes.h"
#include "twinloft/base/crc32c.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/hash.h"
#include "twinloft/base/ids.h"
#include "twinloft/base/log.h"
#include "twinloft/base/random.h"
#include "twinloft/base/result.h"
#include "twinloft/base/utf8.h"

namespace twinloft {
namespace {

// RFC 3720 appendix B.4, and the usual check value.
TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xe3069283u);
  std::vector<std::byte> zeros(32);
  EXPECT_EQ(crc32c(zeros), 0x8a9136aau);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Crc32c, InPiecesAsAWhole) {
  EXPECT_EQ(crc32c(as_bytes("56789"), crc32c(as_bytes("1234"))), crc32c(as_bytes("123456789")));
}

TEST(Hash128, InPiecesAsAWhole) {
  Hasher128 h;
  h.update(as_bytes("abc"));
  h.update(as_bytes("def"));
  EXPECT_EQ(h.digest(), hash128(as_bytes("abcdef")));
  // XXH3-128 of the empty input, from the reference implementation's documentation.
  EXPECT_EQ(hash128({}).hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(Bytes, TextIsReadAsItWasPutAndNeverBeyondTheLimitOrTheEnd) {
  std::vector<std::byte> data;
  Writer(data).put_text("ann");
  EXPECT_EQ(data.size(), 7u);
  Reader whole(data);
  EXPECT_EQ(whole.get_text(3), "ann");
  EXPECT_TRUE(whole.ok());
  Reader too_long(data);
  EXPECT_FALSE(too_long.get_text(2));
  EXPECT_FALSE(too_long.ok());
  for (std::size_t cut = 0; cut < data.size(); ++cut) {
    Reader short_of(ByteSpan(data).first(cut));
    EXPECT_FALSE(short_of.get_text(100));
    EXPECT_FALSE(short_of.ok());
  }
}

TEST(Bytes, ReaderNeverReadsPastItsEnd) {
  std::vector<std::byte> data;
  Writer w(data);
  w.put<std::uint32_t>(0x01020304);
  EXPECT_EQ(data[0], std::byte{4});
  Reader r(data);
  EXPECT_EQ(r.get<std::uint16_t>(), 0x0304);
  EXPECT_EQ(r.get<std::uint32_t>(), 0u);
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.get<std::uint8_t>(), 0u) << "a failed reader stays failed";
}

TEST(Uuid, RoundTripAndRefusal) {
  SeededRandom random(7);
  Uuid u = Uuid::generate(random);
  EXPECT_EQ(u.text()[14], '4');
  EXPECT_EQ(Uuid::parse(u.text()).value(), u);
  EXPECT_FALSE(Uuid::parse("not-a-uuid"));
  EXPECT_FALSE(Uuid::parse("zzzzzzzz-0000-4000-8000-000000000000"));
}

TEST(Result, ErrnoBecomesText) {
  Status s = fail_errno(ENOENT, "open {}", "x");
  EXPECT_EQ(s.error().message, "open x: No such file or directory");
  EXPECT_EQ(s.error().code, Errc::not_found);
  EXPECT_EQ(s.error().sys, ENOENT);
}

TEST(Utf8, OnlyWhatRfc3629Allows) {
  for (std::string_view text : {"", "a", "\xc2\xa0", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                                "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xc3\xa4z"})
    EXPECT_TRUE(is_utf8(text)) << text;
  for (std::string_view text :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3z", "\xe0\x9f\xbf", "\xe2\x82", "\xed\xa0\x80",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"})
    EXPECT_FALSE(is_utf8(text)) << text;
  EXPECT_TRUE(is_utf8("\xc2\x85") && !is_clean_utf8("\xc2\x85"));
  EXPECT_TRUE(is_ascii("a\x7f") && !is_ascii("\x80"));
}

TEST(Utf8, EveryCharacterIsWrittenAsItIsRead) {
  for (char32_t c = 0; c <= 0x110000; c += c < 0x3000 ? 1 : 251) {
    std::string text;
    bool there = append_utf8(text, c);
    EXPECT_EQ(there, c <= 0x10ffff && (c < 0xd800 || c > 0xdfff)) << static_cast<unsigned>(c);
    if (there) {
      EXPECT_EQ(utf8_length(text), text.size()) << static_cast<unsigned>(c);
    }
  }
}

TEST(Fd, ReadExactSaysWhatIsMissing) {
  int p[2];
  ASSERT_EQ(pipe(p), 0);
  Fd in(p[0]), out(p[1]);
  ASSERT_TRUE(write_all(out.get(), as_bytes("abc")));
  out.reset();
  std::vector<std::byte> buffer(4);
  Status s = read_exact(in.get(), buffer);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Errc::corrupt);
}

TEST(Log, IsForProgramsOrForAPerson) {
  log_set_program("test");
  testing::internal::CaptureStderr();
  log_line(LogLevel::warning, "a \"b\"\nc", {{"key", "x y"}});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "level=warning prog=test msg=\"a \\\"b\\\"\\x0ac\" key=\"x y\"\n");
  testing::internal::CaptureStderr();
  log_line(LogLevel::warning, "\x1f \x7f~", {{"path", "C:\\x"}, {"none", ""}, {"last", "plain\xc3\xa4"}});
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "level=warning prog=test msg=\"\\x1f \\x7f~\" path=\"C:\\\\x\" none=\"\" last=\"plain\xc3\xa4\"\n");
  log_set_program("");
  testing::internal::CaptureStderr();
  log_line(LogLevel::warning, "a \"b\"\nc", {{"key", "x y"}});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: a \"b\"\\x0ac key=\"x y\"\n");
  testing::internal::CaptureStderr();
  log_line(LogLevel::warning, "x", {{"from", "j\xc3\xb6rg j\xf6rg \xc2\x9b[2J"}});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: x from=\"j\xc3\xb6rg j\\xf6rg \\xc2\\x9b[2J\"\n")
      << "terminals execute C1 bytes, and the journal needs UTF-8";
  log_set_program("test");
}

}  // namespace
}  // namespace twinloft
