// The decision about a recipient: a table of users and states, and rules that hold for all of them.
#include "twinloft/lmtpd/policy/judge.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

namespace twinloft::lmtpd {
namespace {

std::string text_of(const Verdict& verdict) {
  if (std::holds_alternative<Accept>(verdict)) return "accept";
  if (std::holds_alternative<LookAtMailbox>(verdict)) return "look";
  const Reply& reply = std::get<Refuse>(verdict).reply;
  return fmt::format("{} {}", reply.code, reply.enhanced);
}

User user(UserState state = UserState::active, bool is_old = false) {
  User out;
  out.name = "ann@example.org";
  out.uid = out.gid = 5000;
  out.home = "/srv/mail/ann";
  out.maildir = "/srv/mail/ann/Maildir";
  out.state = state;
  out.is_old = is_old;
  return out;
}

MailboxState spool_error(Errc code, int sys = 0) {
  return {.spool = Error{code, "the spool", sys}};
}

// The reply for an existing user, by the state of the mailbox.
struct MailboxRow {
  const char* name;
  MailboxState mailbox;
  OverQuota over;
  const char* reply;      // with a current row
  const char* reply_old;  // with a cached row that may be out of date
};

const std::vector<MailboxRow>& mailboxes() {
  static const std::vector<MailboxRow> all{
      {"room", {}, OverQuota::reject, "accept", "accept"},
      {"spool not mounted, or another volume", spool_error(Errc::unavailable), OverQuota::reject, "451 4.3.0",
       "451 4.3.0"},
      {"spool failed", spool_error(Errc::io, EIO), OverQuota::reject, "451 4.3.0", "451 4.3.0"},
      {"spool read-only", spool_error(Errc::io, EROFS), OverQuota::reject, "451 4.3.0", "451 4.3.0"},
      {"spool without space", spool_error(Errc::io, ENOSPC), OverQuota::reject, "452 4.3.1", "452 4.3.1"},
      {"file system's quota used up", spool_error(Errc::io, EDQUOT), OverQuota::reject, "452 4.2.2",
       "452 4.2.2"},
      {"spool not for this process", spool_error(Errc::io, EACCES), OverQuota::reject, "451 4.3.5",
       "451 4.3.5"},
      {"no descriptor left", spool_error(Errc::io, EMFILE), OverQuota::reject, "451 4.3.2", "451 4.3.2"},
      {"Maildir off the spool", spool_error(Errc::denied), OverQuota::reject, "451 4.3.5", "451 4.3.5"},
      {"counter away",
       {.counter = Error{Errc::unavailable, "quota-status", 0}},
       OverQuota::reject,
       "451 4.3.0",
       "451 4.3.0"},
      {"full, reject", {.room = Room::full}, OverQuota::reject, "552 5.2.2", "452 4.2.2"},
      {"full, defer", {.room = Room::full}, OverQuota::defer, "452 4.2.2", "452 4.2.2"},
      {"larger than the mailbox, reject", {.room = Room::never}, OverQuota::reject, "552 5.2.3", "452 4.2.2"},
      {"larger than the mailbox, defer", {.room = Room::never}, OverQuota::defer, "552 5.2.3", "452 4.2.2"},
  };
  return all;
}

std::string judged(Result<const User*> user, const MailboxRow* row, bool takes_address = true,
                   std::optional<Reply> way = std::nullopt) {
  RecipientFacts facts{.user = std::move(user), .takes_address = takes_address};
  if (row) facts.mailbox = &row->mailbox, facts.over_quota = row->over;
  if (way) facts.way_refuses = [way] { return way; };
  return text_of(judge(facts));
}

std::string judged(const User& user, const MailboxRow* row, bool takes_address = true,
                   std::optional<Reply> way = std::nullopt) {
  return judged(&user, row, takes_address, std::move(way));
}

TEST(Judge, WhoIsNotThereOrNotKnownNow) {
  const Result<const User*> nobody = nullptr;
  const Result<const User*> away = fail(Errc::unavailable, "locked");
  const Result<const User*> unsure = fail(Errc::conflict, "half written");
  const Result<const User*> wrong = fail(Errc::invalid, "uid 0");
  const Result<const User*> denied = fail(Errc::denied, "a home that is not absolute");
  for (const MailboxRow* row : {static_cast<const MailboxRow*>(nullptr), &mailboxes()[0], &mailboxes()[1]}) {
    EXPECT_EQ(judged(nobody, row), "550 5.1.1");
    EXPECT_EQ(judged(away, row), "451 4.3.0");
    EXPECT_EQ(judged(unsure, row), "451 4.3.0");
    EXPECT_EQ(judged(wrong, row), "451 4.3.5");
    EXPECT_EQ(judged(denied, row), "451 4.3.5");
  }
}

TEST(Judge, TheUserAndTheAddressComeBeforeTheMailbox) {
  EXPECT_EQ(judged(user(), nullptr), "look");
  EXPECT_EQ(judged(user(UserState::active, true), nullptr), "look");
  for (const MailboxRow& row : mailboxes()) {
    EXPECT_EQ(judged(user(UserState::disabled), &row), "550 5.2.1") << row.name;
    EXPECT_EQ(judged(user(UserState::deferred), &row), "450 4.2.1") << row.name;
    EXPECT_EQ(judged(user(), &row, false), "553 5.6.7") << row.name;
  }
  // The mailbox is not checked if it could not change the reply.
  EXPECT_EQ(judged(user(UserState::disabled), nullptr), "550 5.2.1");
  EXPECT_EQ(judged(user(UserState::deferred), nullptr), "450 4.2.1");
  EXPECT_EQ(judged(user(), nullptr, false), "553 5.6.7");
  EXPECT_EQ(judged(user(UserState::disabled), nullptr, false), "550 5.2.1");
}

TEST(Judge, TheMailboxAndItsSpool) {
  for (const MailboxRow& row : mailboxes()) {
    EXPECT_EQ(judged(user(), &row), row.reply) << row.name;
    EXPECT_EQ(judged(user(UserState::active, true), &row), row.reply_old) << row.name;
  }
}

TEST(Judge, TheWayOfDeliveryIsAskedLast) {
  const Reply dash{553, "5.1.7", "The sender's address starts with \"-\""};
  for (const MailboxRow& row : mailboxes()) {
    bool takes = std::string_view(row.reply) == "accept";
    EXPECT_EQ(judged(user(), &row, true, dash), takes ? "553 5.1.7" : row.reply) << row.name;
  }
  int asked = 0;
  auto way = [&]() -> std::optional<Reply> { return ++asked, std::nullopt; };
  const User found = user();
  const MailboxState room;
  EXPECT_EQ(text_of(judge({.user = &found, .way_refuses = way})), "look");
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(text_of(judge({.user = &found, .mailbox = &room, .way_refuses = way})), "accept");
  EXPECT_EQ(asked, 1);
}

// A row that may be out of date never causes a permanent refusal. If the row already refuses, mailbox and way
// change nothing.
TEST(Judge, ARowThatMayBeAnotherByNowRefusesNobodyForGood) {
  for (UserState state : {UserState::active, UserState::disabled, UserState::deferred})
    for (bool takes : {true, false})
      for (const MailboxRow& row : mailboxes())
        for (int code : {0, 451, 550, 553}) {
          std::optional<Reply> way;
          if (code != 0) way = Reply{code, code < 500 ? "4.3.5" : "5.1.3", "no"};
          std::string verdict = judged(user(state, true), &row, takes, way);
          EXPECT_NE(verdict[0], '5') << row.name << " " << code;
          bool sure_accepts = judged(user(state), &row, takes, way) == "accept";
          EXPECT_EQ(verdict == "accept", sure_accepts) << row.name << " " << code;
        }
}

TEST(QuotaReply, SaysWhetherToTryAgain) {
  const User sure = user(), old = user(UserState::active, true);
  EXPECT_EQ(reply_of(Room::full, OverQuota::reject, sure).enhanced, "5.2.2");
  EXPECT_EQ(reply_of(Room::full, OverQuota::defer, sure).enhanced, "4.2.2");
  EXPECT_EQ(reply_of(Room::never, OverQuota::defer, sure).enhanced, "5.2.3")
      << "no later attempt can succeed";
  for (Room room : {Room::full, Room::never})
    EXPECT_EQ(reply_of(room, OverQuota::reject, old).code, 452) << "the limit may have changed";
  for (const Reply& reply : {quota_unknown(), quota_held()}) EXPECT_EQ(reply.code, 451);
}

TEST(Judge, ADeliverysReplyIsAsSureAsTheRowThatLedThere) {
  const Reply no{554, "5.4.6", "loop"}, later{452, "4.3.1", "full"}, yes{250, "2.0.0", "Delivered"};
  for (const Reply& reply : {no, later, yes}) EXPECT_EQ(as_sure_as(user(), reply), reply);
  const User old = user(UserState::active, true);
  EXPECT_EQ(as_sure_as(old, later), later);
  EXPECT_EQ(as_sure_as(old, yes), yes);
  EXPECT_EQ(as_sure_as(old, no), (Reply{451, "4.3.0", "User lookup temporarily unavailable"}));
}

}  // namespace
}  // namespace twinloft::lmtpd
