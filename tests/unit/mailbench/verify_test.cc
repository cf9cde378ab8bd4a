// The verifier on Maildirs that the test creates, with every kind of fault.
#include "twinloft/mailbench/verify.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "twinloft/mailbench/account.h"
#include "twinloft/mailbench/message.h"

namespace twinloft::mailbench {
namespace {

namespace fs = std::filesystem;

class VerifyTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "mb-verify.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    for (int user = 1; user <= 10; ++user)
      for (const char* part : {"tmp", "new", "cur"})
        fs::create_directories(spool() / "example.org" / ("u" + std::to_string(user)) / "Maildir" / part);
  }
  void TearDown() override { fs::remove_all(directory_); }
  fs::path spool() const { return fs::path(directory_) / "spool"; }
  fs::path maildir(const std::string& recipient) const {
    return spool() / "example.org" / recipient.substr(0, recipient.find('@')) / "Maildir";
  }

  const Message& make(std::uint64_t number, std::size_t recipients = 1) {
    MessageFactory factory({.run = "run1",
                            .from = "a@b",
                            .seed = 5,
                            .recipients_per_message = recipients,
                            .size = SizeDistribution::parse("2KiB").value(),
                            .date = {}},
                           users_, block_);
    factory.make(number, message_);
    return message_;
  }
  void note(const Message& m, const std::string& recipient, Outcome outcome, unsigned attempt = 1) {
    int code = outcome == Outcome::acknowledged ? 250
               : outcome == Outcome::deferred   ? 451
               : outcome == Outcome::refused    ? 550
                                                : 0;
    append_line({m.id, recipient, m.digest, m.size, outcome, code, attempt, 1}, lines_);
  }
  // Stores the message like an agent: LF, no stuffing, more header fields at the top.
  fs::path store(const Message& m, const std::string& recipient, const std::string& name,
                 const char* sub = "new") {
    std::string sent = m.head;
    for (std::string_view piece : m.middle) sent += piece;
    sent += m.tail;
    std::istringstream in(sent);
    std::string text = "Delivered-To: " + recipient + "\n", line;
    while (std::getline(in, line) && line != ".\r") {
      if (line.ends_with('\r')) line.pop_back();
      text += (line.starts_with('.') ? line.substr(1) : line) + "\n";
    }
    fs::path path = maildir(recipient) / sub / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  // Stores an acknowledged message for each of its recipients. Returns the first file.
  fs::path good(std::uint64_t number, std::size_t recipients = 1) {
    const Message& m = make(number, recipients);
    fs::path first;
    for (const std::string& recipient : m.recipients) {
      note(m, recipient, Outcome::acknowledged);
      fs::path path = store(m, recipient, "file" + std::to_string(number));
      if (first.empty()) first = path;
    }
    return first;
  }
  Result<VerifyResult> verify(VerifyOptions o = {}, bool closed = true) {
    std::string path = directory_ + "/account";
    std::string text = "#mailbench-account 1 run=run1\n" + lines_;
    if (closed) text += "#end lines=" + std::to_string(std::ranges::count(lines_, '\n')) + "\n";
    std::ofstream(path, std::ios::binary) << text;
    o.accounts = {path};
    o.spool = spool();
    return run_verify(o);
  }
  // Expects exactly one problem of this kind, with this id and path.
  void expect_problem(ProblemKind kind, const std::string& id, const fs::path& path,
                      const VerifyOptions& o = {}) {
    auto r = verify(o);
    ASSERT_TRUE(r) << r.error().message;
    EXPECT_FALSE(r->good());
    ASSERT_EQ(r->problems.size(), 1u) << verify_text(o, *r);
    EXPECT_EQ(r->problems[0].kind, kind) << verify_text(o, *r);
    EXPECT_EQ(r->problems[0].id, id);
    EXPECT_EQ(r->problems[0].path, path.empty() ? "" : fs::relative(path, spool()).string());
    EXPECT_NE(verify_text(o, *r).find(id), std::string::npos);
    EXPECT_NE(verify_json(o, *r).find("\"good\": false"), std::string::npos);
  }
  void expect_good(const VerifyOptions& o = {}) {
    auto r = verify(o);
    ASSERT_TRUE(r) << r.error().message;
    EXPECT_TRUE(r->good()) << verify_text(o, *r);
  }
  static void change_byte(const fs::path& path, std::uintmax_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    char c = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(c ^ 1));
  }

  std::string directory_, lines_;
  Users users_ = Users::from_format("u%u@example.org", 1, 10).value();
  TextBlock block_{5, true, 1 << 14};
  Message message_;
};

TEST_F(VerifyTest, AllGood) {
  for (std::uint64_t n = 0; n < 100; ++n) good(n, 1 + n % 3);
  fs::path file = good(200);
  fs::rename(file, file.parent_path().parent_path() / "cur" / "file200:2,S");  // the owner has read it
  auto r = verify();
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_TRUE(r->good()) << verify_text({}, *r);
  EXPECT_EQ(r->acknowledged, 200u);
  EXPECT_EQ(r->acknowledged_found, 200u);
  expect_good({.maildir_formats = {"%d/%n/Maildir"}});
}

TEST_F(VerifyTest, AMissingFileIsLost) {
  good(1);
  fs::path file = good(2);
  fs::remove(file);
  expect_problem(ProblemKind::lost, "run1-2", "");
}

TEST_F(VerifyTest, MissingForOneOfTheRecipients) {
  good(1, 3);
  std::string third = make(1, 3).recipients[2];
  fs::remove(maildir(third) / "new" / "file1");
  expect_problem(ProblemKind::lost, "run1-1", "");
}

// Each single byte of a message is changed. The verifier finds every change: as damage, or as a loss if the
// id was changed.
TEST_F(VerifyTest, AnyChangedByteIsFound) {
  fs::path file = good(1);
  std::uintmax_t size = fs::file_size(file);
  for (std::uintmax_t at = std::string("Delivered-To: ").size(); at < size; ++at) {
    change_byte(file, at);
    auto r = verify();
    ASSERT_TRUE(r);
    EXPECT_FALSE(r->good()) << "byte " << at;
    change_byte(file, at);
  }
  expect_good();
}

TEST_F(VerifyTest, AChangedByteOfTheBodyIsNamedWithItsFile) {
  good(1);
  fs::path file = good(2);
  change_byte(file, fs::file_size(file) - 10);
  expect_problem(ProblemKind::damaged, "run1-2", file);
}

TEST_F(VerifyTest, ACutFileIsDamagedAtAnyLength) {
  fs::path file = good(2);
  std::uintmax_t size = fs::file_size(file);
  for (std::uintmax_t length = 0; length < size; length += 13) {
    fs::path copy = file;
    std::ifstream in(file, std::ios::binary);
    std::string whole((std::istreambuf_iterator<char>(in)), {});
    fs::resize_file(file, length);
    auto r = verify();
    ASSERT_TRUE(r);
    EXPECT_FALSE(r->good()) << length;
    std::ofstream(file, std::ios::binary) << whole;
  }
  fs::resize_file(file, size - 1);
  expect_problem(ProblemKind::damaged, "run1-2", file);
}

TEST_F(VerifyTest, AnEmptyFileIsNamedBesideTheLoss) {
  fs::path file = good(2);
  fs::resize_file(file, 0);
  auto r = verify();
  ASSERT_TRUE(r);
  EXPECT_FALSE(r->good());
  EXPECT_EQ(r->unmarked, 1u);
  EXPECT_NE(verify_text({}, *r).find(fs::relative(file, spool()).string()), std::string::npos);
}

TEST_F(VerifyTest, ASecondCopyIsADuplicate) {
  fs::path file = good(2), copy = file.parent_path().parent_path() / "cur" / "file2.copy:2,";
  fs::copy_file(file, copy);
  auto r = verify();
  ASSERT_TRUE(r);
  ASSERT_EQ(r->problems.size(), 1u);
  EXPECT_EQ(r->problems[0].kind, ProblemKind::duplicate);
  EXPECT_EQ(r->problems[0].id, "run1-2");
  EXPECT_EQ(r->acknowledged_found, 0u);
}

TEST_F(VerifyTest, TwiceIsAllowedAfterAnAttemptWithoutReply) {
  const Message& m = make(3);
  std::string to = m.recipients[0];
  note(m, to, Outcome::unknown);
  note(m, to, Outcome::acknowledged, 2);
  store(m, to, "a");
  expect_good();
  store(m, to, "b");
  auto r = verify();
  ASSERT_TRUE(r);
  EXPECT_TRUE(r->good());
  EXPECT_EQ(r->extra_copies_allowed, 1u);
  store(m, to, "c");
  r = verify();
  ASSERT_TRUE(r);
  EXPECT_EQ(r->problem_counts[static_cast<std::size_t>(ProblemKind::duplicate)], 1u);
}

TEST_F(VerifyTest, UnsentAttemptsLeaveNothing) {
  const Message& m = make(3);
  note(m, m.recipients[0], Outcome::unsent);
  note(m, m.recipients[0], Outcome::acknowledged, 2);
  store(m, m.recipients[0], "a");
  expect_good();
  store(m, m.recipients[0], "b");
  auto r = verify();
  ASSERT_TRUE(r);
  EXPECT_FALSE(r->good());
}

TEST_F(VerifyTest, ACopyAfterADeferralOnlyWhereItIsAllowed) {
  const Message& m = make(3);
  note(m, m.recipients[0], Outcome::deferred);
  note(m, m.recipients[0], Outcome::acknowledged, 2);
  store(m, m.recipients[0], "a");
  store(m, m.recipients[0], "b");
  auto r = verify();
  ASSERT_TRUE(r);
  EXPECT_EQ(r->problem_counts[static_cast<std::size_t>(ProblemKind::duplicate)], 1u);
  expect_good({.allow_deferred_copies = true});
}

TEST_F(VerifyTest, UnacknowledgedIsAllowedEitherWayAndCounted) {
  good(1);
  const Message& there = make(2);
  note(there, there.recipients[0], Outcome::unknown);
  store(there, there.recipients[0], "x");
  const Message& absent = make(3);
  note(absent, absent.recipients[0], Outcome::unknown);
  auto r = verify();
  ASSERT_TRUE(r);
  EXPECT_TRUE(r->good());
  EXPECT_EQ(r->unknown_present, 1u);
  EXPECT_EQ(r->unknown_absent, 1u);
}

TEST_F(VerifyTest, DeferredAndThereCountsUnlessStrict) {
  good(1);
  const Message& m = make(2);
  note(m, m.recipients[0], Outcome::deferred);
  fs::path file = store(m, m.recipients[0], "x");
  auto r = verify();
  ASSERT_TRUE(r);
  EXPECT_TRUE(r->good());
  EXPECT_EQ(r->deferred_present, 1u);
  expect_problem(ProblemKind::deferred, "run1-2", file, {.strict_deferred = true});
}

TEST_F(VerifyTest, RefusedForGoodMustNotBeThere) {
  good(1);
  const Message& m = make(2);
  note(m, m.recipients[0], Outcome::refused);
  expect_good();
  fs::path file = store(m, m.recipients[0], "x");
  expect_problem(ProblemKind::refused, "run1-2", file);
}

TEST_F(VerifyTest, InTheWrongMaildir) {
  fs::path file = good(1);
  std::string to = make(1).recipients[0];
  std::string other = to == "u1@example.org" ? "u2@example.org" : "u1@example.org";
  good(2);
  fs::path moved = maildir(other) / "new" / "moved";
  fs::rename(file, moved);
  VerifyOptions by_directory{.maildir_formats = {"%d/%n/Maildir"}};
  auto r = verify(by_directory);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->problem_counts[static_cast<std::size_t>(ProblemKind::misdelivered)], 1u);
  EXPECT_EQ(r->problem_counts[static_cast<std::size_t>(ProblemKind::lost)], 1u);
}

TEST_F(VerifyTest, WhatACompleteAccountDoesNotListIsAProblem) {
  good(1);
  const Message& m = make(9);
  fs::path file = store(m, m.recipients[0], "x");
  expect_problem(ProblemKind::unlisted, "run1-9", file);
  auto r = verify({}, false);
  ASSERT_TRUE(r);
  EXPECT_TRUE(r->good());
  EXPECT_EQ(r->unlisted_allowed, 1u);
  EXPECT_FALSE(r->accounts_complete);
}

TEST_F(VerifyTest, OtherMailIsLeftAlone) {
  good(1);
  std::ofstream(maildir("u1@example.org") / "new" / "private") << "Subject: hello\n\nhi\n";
  std::ofstream(maildir("u1@example.org") / "new" / "other") << "X-Mailbench-Id: run2-1\n\nhi\n";
  std::ofstream(maildir("u1@example.org") / "tmp" / "half") << "X-Mailbench-Id: run1-1\n";
  std::ofstream(maildir("u1@example.org") / "dovecot.index") << "X-Mailbench-Id: run1-1\n\n";
  auto r = verify();
  ASSERT_TRUE(r);
  EXPECT_TRUE(r->good());
  EXPECT_EQ(r->unmarked, 1u);
  EXPECT_EQ(r->foreign, 1u);
  EXPECT_EQ(r->left_in_tmp, 1u);
}

TEST_F(VerifyTest, NothingToProveIsNotAProof) {
  auto empty = verify();
  ASSERT_FALSE(empty);
  EXPECT_NE(empty.error().message.find("nothing to prove"), std::string::npos);
  good(1);
  VerifyOptions o;
  o.accounts = {directory_ + "/missing"};
  o.spool = spool();
  EXPECT_FALSE(run_verify(o));
  ASSERT_TRUE(verify());
  o.accounts = {directory_ + "/account"};
  o.spool = directory_ + "/missing";
  EXPECT_FALSE(run_verify(o));
}

// An MTA delivers after its reply.
TEST_F(VerifyTest, WaitsForMailThatIsOnItsWay) {
  for (std::uint64_t n = 0; n < 5; ++n) good(n);
  fs::path late = good(9), hidden = directory_ + "/late";
  fs::rename(late, hidden);
  VerifyOptions o;
  o.wait = std::chrono::hours(1);
  std::jthread delivery([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    fs::rename(hidden, late);
  });
  auto r = verify(o);
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_TRUE(r->good());
  EXPECT_EQ(r->acknowledged_found, 6u);
}

TEST_F(VerifyTest, WhatIsLeftInTmpIsNotAwaited) {
  fs::path file = good(1);
  std::ofstream(file.parent_path().parent_path() / "tmp" / "old") << "x";
  VerifyOptions o;
  o.wait = std::chrono::hours(1);
  auto r = verify(o);
  ASSERT_TRUE(r);
  EXPECT_TRUE(r->good());
  EXPECT_EQ(r->left_in_tmp, 1u);
}

// The first delivery makes the spool.
TEST_F(VerifyTest, WaitsForASpoolThatIsNotThereYet) {
  good(1);
  fs::rename(spool(), directory_ + "/later");
  VerifyOptions o;
  o.wait = std::chrono::hours(1);
  std::jthread delivery([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    fs::rename(directory_ + "/later", spool());
  });
  expect_good(o);
}

TEST_F(VerifyTest, TheWaitEnds) {
  good(1);
  fs::remove(good(2));
  VerifyOptions o;
  o.wait = std::chrono::milliseconds(100);
  auto r = verify(o);
  ASSERT_TRUE(r);
  EXPECT_FALSE(r->good());
  EXPECT_EQ(r->problem_counts[static_cast<std::size_t>(ProblemKind::lost)], 1u);
}

TEST_F(VerifyTest, AQueueThatIsNotEmptyIsAProblem) {
  good(1);
  fs::create_directories(directory_ + "/queue/active/1");
  VerifyOptions o;
  o.queues = {directory_ + "/queue"};
  expect_good(o);
  std::ofstream(directory_ + "/queue/active/1/message") << "x";
  auto r = verify(o);
  ASSERT_TRUE(r);
  EXPECT_FALSE(r->good());
  EXPECT_EQ(r->queued, 1u);
  EXPECT_NE(verify_text(o, *r).find("PROBLEM: queued"), std::string::npos);
  o.wait = std::chrono::hours(1);
  std::jthread delivery([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    fs::remove(directory_ + "/queue/active/1/message");
  });
  expect_good(o);
  o.queues = {directory_ + "/missing"};
  EXPECT_FALSE(verify(o));
}

// The files tell when the mail came, and the account when the load began and when it was acknowledged.
TEST_F(VerifyTest, TheRateAndTheDelayOfDelivery) {
  fs::path first = good(1), second = good(2);
  std::string path = directory_ + "/account";
  std::ofstream(path, std::ios::binary) << "#mailbench-account 1 run=run1 started=1700000000.000000\n"
                                        << lines_ << "#end lines=2\n";
  auto set = [](const fs::path& file, std::time_t seconds) {
    timespec times[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  };
  set(first, 1700000010);
  set(second, 1700000030);
  auto r = run_verify({.accounts = {path}, .spool = spool()});
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->dated, 2u);
  EXPECT_EQ(r->delivery, std::chrono::seconds(30));
  EXPECT_NEAR(static_cast<double>(r->delay_ns.max()) / 1e9, 30, 0.5);
  EXPECT_NE(verify_text({}, *r).find("delivered                      4  a minute"), std::string::npos)
      << verify_text({}, *r);
}

}  // namespace
}  // namespace twinloft::mailbench
