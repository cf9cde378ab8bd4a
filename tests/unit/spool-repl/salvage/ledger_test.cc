// The ledger keeps its records, and distinguishes an incomplete record from a damaged one.
#include "twinloft/spool-repl/salvage/ledger.h"

#include <sys/stat.h>

#include <filesystem>

#include "fault_ops.h"
#include "spool.h"

namespace twinloft::repl::salvage {
namespace {

namespace fs = std::filesystem;

LedgerKey key(int n, const std::string& maildir = ann) {
  LedgerKey out{maildir, {}};
  out.content.bytes.fill(static_cast<std::byte>(n));
  return out;
}

class LedgerTest : public testing::Test {
 protected:
  Result<Ledger> open() { return Ledger::open(root_.get(), ops_); }
  Ledger opened() {
    auto out = open();
    TL_CHECK_MSG(out.has_value(), out ? "" : out.error().message.c_str());
    return std::move(*out);
  }
  std::string path() { return spool_ / ".twinloft-salvage/ledger"; }

  Spool spool_;
  Fd root_ = spool_.open();
  OsFileOps ops_;
};

TEST_F(LedgerTest, TheLastRecordOfAMessageCounts) {
  {
    Ledger ledger = opened();
    EXPECT_EQ(ledger.find(key(1)), std::nullopt);
    for (Mark mark : {Mark::intent, Mark::undone, Mark::intent, Mark::delivered})
      ASSERT_TRUE(ledger.append(key(1), mark));
    ASSERT_TRUE(ledger.append(key(2), Mark::intent));
    ASSERT_TRUE(ledger.append(key(1, "odd %\n maildir"), Mark::present));
  }
  Ledger ledger = opened();
  EXPECT_EQ(ledger.find(key(1)), Mark::delivered);
  EXPECT_EQ(ledger.find(key(2)), Mark::intent);
  EXPECT_EQ(ledger.find(key(1, "odd %\n maildir")), Mark::present);
  EXPECT_EQ(ledger.find(key(1, bob)), std::nullopt);
  EXPECT_FALSE(ledger.was_torn());
  ASSERT_TRUE(ledger.append(key(2), Mark::undone));
  EXPECT_EQ(Ledger::open_to_look(root_.get())->find(key(2)), Mark::undone);
}

TEST_F(LedgerTest, AsTheFormatDocumentHasIt) {
  ASSERT_TRUE(opened().append(key(0xa1), Mark::delivered));
  std::string digest;
  for (int i = 0; i < 32; ++i) digest += "a1";
  std::string text = read(path());
  EXPECT_TRUE(
      text.starts_with("#twinloft-salvage-ledger 1\ndelivered example.org/ann/Maildir " + digest + " "))
      << text;
  EXPECT_EQ(
      text.size(),
      std::string("#twinloft-salvage-ledger 1\ndelivered example.org/ann/Maildir ").size() + 64 + 1 + 8 + 1);
}

TEST_F(LedgerTest, HalfARecordIsCutOffAndWrittenOver) {
  {
    Ledger ledger = opened();
    for (int n : {1, 2}) ASSERT_TRUE(ledger.append(key(n), Mark::delivered));
  }
  const std::string whole = read(path());
  const std::size_t second = whole.rfind("delivered");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write(path(), whole.substr(0, length));
    Ledger ledger = opened();
    EXPECT_EQ(ledger.find(key(1)) == Mark::delivered, length >= second) << length;
    EXPECT_EQ(ledger.find(key(2)), std::nullopt) << length;
    ASSERT_TRUE(ledger.append(key(3), Mark::present));
    EXPECT_EQ(Ledger::open_to_look(root_.get())->find(key(3)), Mark::present) << length;
  }
  std::string garbage = whole;
  for (std::size_t i = second + 10; i < garbage.size(); ++i)
    garbage[i] = '\0';  // the new size is durable, but the data is not
  write(path(), garbage);
  Ledger ledger = opened();
  EXPECT_TRUE(ledger.was_torn());
  EXPECT_EQ(ledger.find(key(1)), Mark::delivered);
  EXPECT_EQ(read(path()).size(), second);
}

TEST_F(LedgerTest, DamageInTheMiddleIsRefused) {
  {
    Ledger ledger = opened();
    for (int n : {1, 2, 3}) ASSERT_TRUE(ledger.append(key(n), Mark::delivered));
  }
  const std::string whole = read(path());
  const std::size_t last = whole.rfind("delivered");
  for (std::size_t i = 0; i < last; ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    write(path(), changed);
    auto refused = open();
    ASSERT_FALSE(refused) << i;
    EXPECT_TRUE(refused.error().code == Errc::corrupt || refused.error().code == Errc::invalid)
        << refused.error().message;
    EXPECT_EQ(read(path()), changed) << "a refused ledger is left unchanged";
  }
  // Each record must be at its own place: a missing or repeated record is detected.
  std::string first = whole.substr(0, whole.find("delivered")), record = whole.substr(last);
  write(path(), first + record + record);
  EXPECT_FALSE(open());
}

TEST_F(LedgerTest, OneAtATime) {
  Ledger ledger = opened();
  auto second = open();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::unavailable);
  EXPECT_NE(second.error().message.find("another spool-repl salvage deliver is running"), std::string::npos);
  EXPECT_TRUE(Ledger::open_to_look(root_.get())) << "a dry run does not wait";
}

TEST_F(LedgerTest, LookingMakesNothing) {
  auto looking = Ledger::open_to_look(root_.get());
  ASSERT_TRUE(looking);
  EXPECT_EQ(looking->find(key(1)), std::nullopt);
  EXPECT_FALSE(looking->append(key(1), Mark::intent));
  EXPECT_FALSE(fs::exists(spool_ / ".twinloft-salvage"));
}

TEST_F(LedgerTest, AFailureIsNotForgotten) {
  int calls;
  {
    FaultOps counting;
    auto ledger = Ledger::open(root_.get(), counting);
    ASSERT_TRUE(ledger);
    calls = counting.calls();
    fs::remove_all(spool_ / ".twinloft-salvage");
  }
  for (int step : {1, 2}) {  // the write and the sync
    FaultOps failing(FaultOps::Fault::fails, calls + step);
    auto ledger = Ledger::open(root_.get(), failing);
    ASSERT_TRUE(ledger) << ledger.error().message;
    EXPECT_FALSE(ledger->append(key(1), Mark::delivered));
    EXPECT_EQ(ledger->find(key(1)), std::nullopt);
    EXPECT_FALSE(ledger->append(key(2), Mark::intent)) << "the kernel reports a failed sync once";
    fs::remove_all(spool_ / ".twinloft-salvage");
  }
}

TEST_F(LedgerTest, NobodyElsesDirectory) {
  TemporaryDirectory elsewhere;
  fs::create_directory_symlink(elsewhere.path(), spool_ / ".twinloft-salvage");
  EXPECT_FALSE(open());
  EXPECT_TRUE(fs::is_empty(elsewhere.path()));
  fs::remove(spool_ / ".twinloft-salvage");
  fs::create_directory(spool_ / ".twinloft-salvage");
  ASSERT_EQ(::chmod((spool_ / ".twinloft-salvage").c_str(), 0777), 0);
  auto refused = open();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::denied) << refused.error().message;
}

}  // namespace
}  // namespace twinloft::repl::salvage
