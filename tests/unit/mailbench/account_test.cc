#include "twinloft/mailbench/account.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace twinloft::mailbench {
namespace {

class AccountTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "mb-account.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    path_ = directory_ + "/account";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  void write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  // Reads the whole account. Returns the error, or "".
  std::string read_error() {
    auto reader = AccountReader::open(path_);
    if (!reader) return reader.error().message;
    AccountLine line;
    for (;;) {
      auto there = reader->next(line);
      if (!there) return there.error().message;
      if (!*there) return "";
    }
  }
  std::string directory_, path_;
};

const Hash128 kDigest = hash128(as_bytes("body"));

AccountLine sample(Outcome outcome, int code) {
  return {"run1-12", "u@example.org", kDigest, 4096, outcome, code, 2, 1234567};
}

TEST_F(AccountTest, RoundTrip) {
  const Outcome outcomes[] = {Outcome::acknowledged, Outcome::deferred, Outcome::refused, Outcome::unknown,
                              Outcome::unsent};
  {
    auto writer = AccountWriter::create(path_, "run1", {1700000000, 42});
    ASSERT_TRUE(writer);
    for (Outcome outcome : outcomes) {
      std::string text;
      append_line(sample(outcome, outcome == Outcome::unknown ? 0 : 451), text);
      ASSERT_TRUE(writer->append(text));
    }
    ASSERT_TRUE(writer->close());
  }
  auto reader = AccountReader::open(path_);
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->run(), "run1");
  AccountLine line;
  for (Outcome outcome : outcomes) {
    auto there = reader->next(line);
    ASSERT_TRUE(there && *there);
    EXPECT_EQ(line.id, "run1-12");
    EXPECT_EQ(line.recipient, "u@example.org");
    EXPECT_EQ(line.digest, kDigest);
    EXPECT_EQ(line.size, 4096u);
    EXPECT_EQ(line.outcome, outcome);
    EXPECT_EQ(line.code, outcome == Outcome::unknown ? 0 : 451);
    EXPECT_EQ(line.attempt, 2u);
    EXPECT_EQ(line.since_us, 1234567u);
  }
  auto end = reader->next(line);
  ASSERT_TRUE(end);
  EXPECT_FALSE(*end);
  EXPECT_TRUE(reader->complete());
  EXPECT_FALSE(reader->torn());
}

TEST_F(AccountTest, TheFormatIsTheDocumentedOne) {
  std::string text;
  append_line(sample(Outcome::acknowledged, 250), text);
  EXPECT_EQ(text, "run1-12 u@example.org " + kDigest.hex() + " 4096 acknowledged 250 2 1234567\n");
}

TEST_F(AccountTest, ATornLastLineIsLeftOut) {
  std::string whole;
  append_line(sample(Outcome::acknowledged, 250), whole);
  for (std::size_t cut = 1; cut < whole.size(); ++cut) {
    write("#mailbench-account 1 run=run1\n" + whole + whole.substr(0, cut));
    auto reader = AccountReader::open(path_);
    ASSERT_TRUE(reader);
    AccountLine line;
    ASSERT_TRUE(reader->next(line).value_or(false));
    auto second = reader->next(line);
    ASSERT_TRUE(second);
    EXPECT_FALSE(*second);
    EXPECT_TRUE(reader->torn());
    EXPECT_FALSE(reader->complete());
  }
}

TEST_F(AccountTest, DamageIsNamedWithItsLine) {
  std::string head = "#mailbench-account 1 run=run1\n", whole;
  append_line(sample(Outcome::acknowledged, 250), whole);
  write(head + whole + "run1-13 u@example.org 00 1 acknowledged 250 1 1\n");
  EXPECT_NE(read_error().find("account:3:"), std::string::npos);
  write(head + whole + "run1-13 u@example.org " + kDigest.hex() + " 1 perhaps 250 1 1\n");
  EXPECT_NE(read_error().find("account:3:"), std::string::npos);
  write(head + whole + "#end lines=2\n");
  EXPECT_NE(read_error().find("closing line"), std::string::npos);
  write(head + "#end lines=0\n" + whole);
  EXPECT_NE(read_error().find("after the closing line"), std::string::npos);
  write("something else\n");
  EXPECT_NE(read_error().find("not an account"), std::string::npos);
  write("");
  EXPECT_NE(read_error().find("not an account"), std::string::npos);
}

TEST_F(AccountTest, AnotherRunIsNotOverwritten) {
  ASSERT_TRUE(AccountWriter::create(path_, "run1", {1700000000, 42}));
  auto second = AccountWriter::create(path_, "run2", {1700000000, 42});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::conflict);
}

}  // namespace
}  // namespace twinloft::mailbench
