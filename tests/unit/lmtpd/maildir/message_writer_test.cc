// Line ends, sizes, and the same result from memory and from a file.
#include "twinloft/lmtpd/maildir/message_writer.h"

#include "../support/fixture.h"
#include "twinloft/base/crc32c.h"

namespace twinloft::lmtpd {
namespace {

struct Converted {
  std::string text;
  std::uint64_t bare_lf = 0;
};

Converted convert(std::string_view in, std::size_t step) {
  LineEndConverter converter;
  Converted out;
  for (std::size_t at = 0; at < in.size(); at += step) converter.feed(in.substr(at, step), out.text);
  converter.finish(out.text);
  out.bare_lf = converter.bare_lf_count();
  return out;
}

struct Case {
  const char* in;
  const char* out;
  std::uint64_t bare_lf;
};

TEST(LineEnds, AreTheSameWholeAndInAnySplit) {
  const Case cases[] = {{"", "", 0},
                        {"a\r\nb\r\n", "a\nb\n", 2},
                        {"a\nb\r\n", "a\nb\n", 2},
                        {"a\rb\r\n", "a\rb\n", 1},
                        {"a\r\r\nb", "a\r\nb", 0},
                        {"\r\n\r\n", "\n\n", 2},
                        {"a\r", "a\r", 0},
                        {"\r\r\r", "\r\r\r", 0},
                        {"\n", "\n", 1},
                        {"\r", "\r", 0}};
  for (const Case& c : cases)
    for (std::size_t step : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{1000}}) {
      Converted got = convert(c.in, step);
      EXPECT_EQ(got.text, c.out) << "step " << step;
      EXPECT_EQ(got.bare_lf, c.bare_lf) << "step " << step << " of " << testing::PrintToString(c.in);
    }
}

TEST(LineEnds, KeepNulBytes) {
  std::string in("a\0b\r\n\0\r\n", 8);
  EXPECT_EQ(convert(in, 1).text, std::string("a\0b\n\0\n", 6));
}

std::string written(const MessageBody& body, bool crlf, StoredSize* size) {
  std::string out;
  auto done = write_message("X-Head: 1\n", body, crlf, [&](std::string_view chunk) -> Status {
    out += chunk;
    return {};
  });
  EXPECT_TRUE(done.has_value());
  *size = *done;
  return out;
}

TEST(WriteMessage, IsTheSameFromMemoryAndFromAFile) {
  std::string text;
  for (int i = 0; i < 40'000; ++i) text += "line " + std::to_string(i) + "\r\n";
  StoredSize a, b;
  std::string from_memory = written(test::in_memory(text), false, &a);
  EXPECT_EQ(from_memory, written(test::in_file(text), false, &b));
  EXPECT_EQ(a.bytes, from_memory.size());
  EXPECT_EQ(a.crlf_bytes, from_memory.size() + 40'001);
  EXPECT_EQ(b.crlf_bytes, a.crlf_bytes);
}

TEST(WriteMessage, KeepsCrlfWhereAsked) {
  StoredSize size;
  EXPECT_EQ(written(test::in_memory("a\r\nb"), true, &size), "X-Head: 1\r\na\r\nb");
  EXPECT_EQ(size.bytes, 15u);
}

// A file system that accepted the data and then could not write it leaves such a file.
TEST(WriteMessage, FailsOnAFileThatDoesNotHoldWhatWasWritten) {
  const std::string text(300'000, 'x');
  MessageBody body = test::in_file(text);
  body.checksum = crc32c(as_bytes(text));
  auto write = [&](bool crlf) {
    return write_message("X-Head: 1\n", body, crlf, [](std::string_view) -> Status { return {}; });
  };
  EXPECT_TRUE(write(false));
  ASSERT_EQ(::pwrite(body.file.get(), "\0\0", 2, 290'000), 2);
  for (bool crlf : {false, true}) {
    auto done = write(crlf);
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().code, Errc::corrupt);
    EXPECT_NE(done.error().message.find("limits.body_directory"), std::string::npos);
  }
}

TEST(WriteMessage, FailsOnAFileThatIsShorterThanItsSize) {
  MessageBody body = test::in_file("short");
  body.size = 100;
  auto done = write_message("", body, false, [](std::string_view) -> Status { return {}; });
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code, Errc::corrupt);
}

}  // namespace
}  // namespace twinloft::lmtpd
