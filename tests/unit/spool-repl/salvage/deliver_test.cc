// Each message is delivered once, whatever the winner has, whatever fails, and however often the delivery is
// repeated.
#include "twinloft/spool-repl/salvage/deliver.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "delivery.h"
#include "twinloft/spool-repl/salvage/ledger.h"

namespace twinloft::repl::salvage {
namespace {

namespace fs = std::filesystem;
using At = FakeLmtp::At;
using Answer = FakeLmtp::Answer;
using Fault = FaultOps::Fault;
using Fates = std::map<std::string, Fate>;

class Deliver : public Delivery {
 protected:
  Deliver() {
    loser_.put(ann + "/new/1.a", late("one"));
    loser_.put(bob + "/cur/2.b:2,S", late("two", "bob@example.org"));
  }
  void expect_each_once(const std::string& where = "") {
    EXPECT_EQ(count("one"), 1u) << where;
    EXPECT_EQ(count("two"), 1u) << where;
  }
};

TEST_F(Deliver, OnceHoweverOftenItIsRun) {
  extract();
  FakeLmtp server;
  server.deliver_to(&winner_);
  for (const FakeLmtp* lmtp :
       {static_cast<const FakeLmtp*>(nullptr), static_cast<const FakeLmtp*>(&server)}) {
    EXPECT_EQ(fates(run(lmtp)), (Fates{{"one", Fate::delivered}, {"two", Fate::delivered}}));
    EXPECT_EQ(fates(run(lmtp)), (Fates{{"one", Fate::done_before}, {"two", Fate::done_before}}));
    expect_each_once();
    fs::remove_all(winner_ / ".twinloft-salvage");
    EXPECT_EQ(fates(run(lmtp)), (Fates{{"one", Fate::already_there}, {"two", Fate::already_there}}))
        << "also without its ledger";
    expect_each_once();
    extract();  // another bundle of the same loser
    EXPECT_EQ(fates(run(lmtp)), (Fates{{"one", Fate::done_before}, {"two", Fate::done_before}}));
    for (const char* all : {ann.c_str(), bob.c_str()})
      fs::remove_all(winner_ / all), winner_.make_maildir(all);
    EXPECT_EQ(fates(run(lmtp)), (Fates{{"one", Fate::done_before}, {"two", Fate::done_before}}))
        << "a message that the user deleted stays deleted";
    EXPECT_EQ(count("one") + count("two"), 0u);
    fs::remove_all(winner_ / ".twinloft-salvage");
  }
  EXPECT_EQ(server.taken().size(), 2u);
}

TEST_F(Deliver, WhatTheWinnerHasIsLeft) {
  extract();
  winner_.make_maildir(ann + "/.Trash");
  std::string again = late("one", "ann@example.org", "2");  // the MTA sent it again, and the user moved it
  winner_.put(ann + "/.Trash/cur/9.x:2,ST", again);
  winner_.put(ann + "/new/8.y", late("two", "bob@example.org"));  // another user's message does not count
  winner_.put(bob + "/tmp/7.z", late("two", "bob@example.org"));  // an unfinished message does not count
  EXPECT_EQ(fates(run()), (Fates{{"one", Fate::already_there}, {"two", Fate::delivered}}));
  EXPECT_EQ(count("one"), 1u);
  fs::remove(winner_ / (ann + "/.Trash/cur/9.x:2,ST"));
  EXPECT_EQ(fates(run())["one"], Fate::done_before)
      << "a message that was there and is deleted stays deleted";
}

TEST_F(Deliver, TheSameContentOfTheBundleOnce) {
  loser_.make_maildir(ann + "/.Copy");
  loser_.put(ann + "/.Copy/cur/3.c:2,S", late("one", "ann@example.org", "3"));
  loser_.put(bob + "/new/1.a", late("one"));
  extract();
  DeliverReport report = run();
  EXPECT_EQ(report.count(Fate::delivered), 3u) << "ann's, and both of bob's";
  EXPECT_EQ(report.count(Fate::copy_of_another), 1u);
  EXPECT_EQ(report.open(), 0u);
  EXPECT_EQ(count("one"), 2u);
}

TEST_F(Deliver, WhatMayHaveBeenOnItsWay) {
  for (const char* name : {"lacking", "seen", "there"})
    loser_.put(ann + "/new/" + name + ".m", message(name));
  // Each file's last change is after the last file's creation, even if creation took long.
  for (const char* name : {"lacking", "seen", "there"})
    fs::permissions(loser_ / (ann + "/new/" + name + ".m"), fs::perms(0600));
  extract();
  ASSERT_EQ(open_bundle(bundle_).manifest().messages.size(), 5u);
  winner_.put(ann + "/cur/there.m:2,S", message("there"));
  winner_.make_maildir(ann + "/.Old");
  winner_.put(ann + "/.Old/dovecot-uidlist", "3 V1 N9 G1\n7 W100 :seen.m\n8 :lacking.m,S=3\n");
  DeliverOptions without;
  without.uncertain = false;
  EXPECT_EQ(run(nullptr, without).count(Fate::left_uncertain), 3u);
  EXPECT_EQ(fates(run()), (Fates{{"one", Fate::done_before},
                                 {"two", Fate::done_before},
                                 {"lacking", Fate::delivered},
                                 {"seen", Fate::left_deleted},
                                 {"there", Fate::already_there}}));
  fs::remove(winner_ / (ann + "/.Old/dovecot-uidlist"));
  EXPECT_EQ(fates(run())["seen"], Fate::done_before) << "Dovecot forgets the message, the ledger does not";
}

TEST_F(Deliver, WhatCanNotBeToldToBeDeletedIsOpen) {
  loser_.put(ann + "/new/maybe.m", message("maybe"));
  extract();
  fs::create_directory(winner_ / (ann + "/dovecot-uidlist"));
  DeliverReport report = run();
  EXPECT_EQ(fates(report)["maybe"], Fate::failed);
  EXPECT_EQ(report.open(), 1u);
  EXPECT_NE(report.messages.back().detail.find("dovecot-uidlist"), std::string::npos)
      << report.messages.back().detail;
  fs::remove(winner_ / (ann + "/dovecot-uidlist"));
  EXPECT_EQ(fates(run())["maybe"], Fate::delivered);
}

TEST_F(Deliver, NeverIntoTheLosersOwnSpool) {
  extract();
  std::string refused;
  DeliverOptions dry, any;
  dry.dry_run = any.any_spool = true;
  auto refusal = [&](const DeliverOptions& options) {
    auto done = deliver(open_bundle(bundle_), loser_.root(), make_copy_target, options, {});
    return done ? "" : done.error().message;
  };
  for (const DeliverOptions& options : {DeliverOptions(), dry})
    EXPECT_NE(refusal(options).find("this is the spool that the bundle was taken from: " + ann + "/new/1.a"),
              std::string::npos)
        << refusal(options);
  fs::rename(loser_ / (ann + "/new/1.a"), loser_ / (ann + "/cur/1.a:2,S"));
  EXPECT_NE(refusal({}).find(ann + "/cur/1.a:2,S"), std::string::npos)
      << refusal({}) << ": its user has seen it since";
  EXPECT_FALSE(fs::exists(loser_ / ".twinloft-salvage/ledger") &&
               read(loser_ / ".twinloft-salvage/ledger").find(ann) != std::string::npos);
  EXPECT_EQ(refusal(any), "");
}

// A copy's name comes from its content, so it is the same on both sides of a later split.
TEST_F(Deliver, WhatAnEarlierRunCopiedIsNoSignOfTheLoser) {
  extract();
  run();
  auto copy = winner_.find("Subject: one\n");
  ASSERT_EQ(copy.size(), 1u);
  fs::remove(loser_ / (ann + "/new/1.a"));
  loser_.put(copy[0], late("one"));
  extract();
  EXPECT_EQ(fates(run()), (Fates{{"one", Fate::done_before}, {"two", Fate::done_before}}));
}

TEST_F(Deliver, ADryRunSaysTheSameAndChangesNothing) {
  extract();
  winner_.put(ann + "/cur/1.x:2,", late("one"));
  DeliverOptions dry;
  dry.dry_run = true;
  EXPECT_EQ(fates(run(nullptr, dry)), (Fates{{"one", Fate::already_there}, {"two", Fate::would_deliver}}));
  EXPECT_EQ(count("two"), 0u);
  EXPECT_FALSE(fs::exists(winner_ / ".twinloft-salvage"));
}

TEST_F(Deliver, NeverIntoAnotherFileSystem) {
  extract();
  std::optional<Error> error;
  fs::remove(winner_ / ".twinloft-spool");
  run(nullptr, {}, nullptr, &error);
  ASSERT_TRUE(error);
  EXPECT_NE(error->message.find("Is the winner mounted there?"), std::string::npos) << error->message;
  winner_.put(".twinloft-spool", "11111111-2222-4333-8444-555555555555\n");
  error.reset();
  run(nullptr, {}, nullptr, &error);
  EXPECT_TRUE(error);
  EXPECT_EQ(count("one"), 0u);
  DeliverOptions any;
  any.any_spool = true;
  EXPECT_EQ(run(nullptr, any).count(Fate::delivered), 2u);
}

TEST_F(Deliver, ADamagedBundleDeliversNothing) {
  extract();
  write(bundle_ + "/messages/2", std::string(read(bundle_ + "/messages/2").size(), 'x'));
  std::optional<Error> error;
  run(nullptr, {}, nullptr, &error);
  ASSERT_TRUE(error);
  EXPECT_NE(error->message.find("messages/2"), std::string::npos) << error->message;
  EXPECT_EQ(count("one") + count("two"), 0u);
}

TEST_F(Deliver, AMaildirThatCanNotBeLookedThroughGetsNothing) {
  extract();
  fs::remove(winner_ / (ann + "/cur"));
  fs::create_directory_symlink(beside_.path(), winner_ / (ann + "/cur"));
  DeliverReport report = run();
  EXPECT_EQ(fates(report), (Fates{{"one", Fate::failed}, {"two", Fate::delivered}}));
  EXPECT_NE(detail(report).find("the Maildir cannot be searched"), std::string::npos) << detail(report);
  EXPECT_EQ(report.open(), 1u);
  fs::remove(winner_ / (ann + "/cur"));
  EXPECT_EQ(fates(run()), (Fates{{"one", Fate::delivered}, {"two", Fate::done_before}}));
}

// ---- LMTP

TEST_F(Deliver, ARecipientThatFailsIsTriedAgainByTheNextRun) {
  extract();
  FakeLmtp server;
  server.deliver_to(&winner_);
  for (auto [answer, fate] :
       {std::pair{"451 4.3.0 later\r\n", Fate::deferred}, {"550 5.1.1 unknown\r\n", Fate::refused}}) {
    server.set_script([text = answer](At at, const std::string& line) {
      return at == At::rcpt && line.find("ann") != line.npos ? Answer(text) : Answer();
    });
    DeliverReport report = run(&server);
    EXPECT_EQ(fates(report)["one"], fate);
    EXPECT_NE(detail(report).find(std::string(answer).substr(0, 3)), std::string::npos);
    EXPECT_EQ(report.open(), 1u);
  }
  server.set_script({});
  EXPECT_EQ(fates(run(&server)), (Fates{{"one", Fate::delivered}, {"two", Fate::done_before}}));
  expect_each_once();
}

TEST_F(Deliver, ALostReplyIsDecidedByLooking) {
  extract();
  FakeLmtp server;
  server.deliver_to(&winner_);
  // The server stores the message, but its reply is lost.
  server.set_script([](At at, const std::string&) {
    Answer gone = Answer::gone();
    gone.stores = true;
    return at == At::end ? gone : Answer();
  });
  DeliverReport report = run(&server);
  EXPECT_EQ(fates(report), (Fates{{"one", Fate::unknown}, {"two", Fate::unknown}}))
      << "the server may still remove it";
  EXPECT_EQ(report.open(), 2u);
  EXPECT_EQ(fates(run(&server)), (Fates{{"one", Fate::already_there}, {"two", Fate::already_there}}));
  EXPECT_EQ(fates(run(&server)), (Fates{{"one", Fate::done_before}, {"two", Fate::done_before}}));
  expect_each_once();
}

TEST_F(Deliver, ALostReplyToAMessageThatComesLater) {
  extract();
  FakeLmtp server;
  server.set_script([](At at, const std::string&) { return at == At::end ? Answer::gone() : Answer(); });
  EXPECT_EQ(fates(run(&server)), (Fates{{"one", Fate::unknown}, {"two", Fate::unknown}}));
  // the server was slow and stored it in the meantime
  winner_.put(ann + "/new/1.late", late("one", "ann@example.org", "4"));
  server.set_script({});
  server.deliver_to(&winner_);
  DeliverReport report = run(&server);
  EXPECT_EQ(fates(report), (Fates{{"one", Fate::already_there}, {"two", Fate::delivered}}));
  EXPECT_NE(report.messages[1].detail.find("an earlier run had begun this delivery"), std::string::npos)
      << report.messages[1].detail;
  expect_each_once();
}

TEST_F(Deliver, AServerThatGoesAwayInTheMiddle) {
  extract();
  FakeLmtp server;
  server.deliver_to(&winner_);
  int greetings = 0;
  server.set_script([&](At at, const std::string&) {
    if (at == At::greeting && ++greetings > 1) return Answer::gone();
    return at == At::rset ? Answer::gone() : Answer();
  });
  for (const char* more : {"three", "four"}) loser_.put(bob + "/new/" + more, late(more, "bob@example.org"));
  extract();
  DeliverReport report = run(&server);
  EXPECT_EQ(report.count(Fate::delivered), 1u);
  EXPECT_EQ(report.count(Fate::failed), 1u) << "the message by which it was detected";
  EXPECT_EQ(report.count(Fate::not_tried), 2u);
  EXPECT_EQ(report.notes.size(), 1u);
  server.set_script({});
  report = run(&server);
  EXPECT_EQ(report.count(Fate::delivered), 3u);
  EXPECT_EQ(report.count(Fate::done_before), 1u);
  expect_each_once();
}

TEST_F(Deliver, TheDomainOfUsersWhoHaveNone) {
  loser_.make_maildir("flat");
  loser_.put("flat/new/1.a", late("flat", "flat"));
  ExtractOptions options = options_for(beside_ / "flat");
  options.layouts = {"%n", "%d/%n/Maildir"};
  bundle_ = options.bundle;
  ASSERT_TRUE(salvage::extract(loser_.open().get(), options, written_after, {}));
  FakeLmtp server;
  DeliverOptions domain;
  domain.domain = "example.net";
  run(&server, domain);
  std::vector<std::string> to;
  for (const FakeLmtp::Taken& taken : server.taken()) to.push_back(taken.to);
  EXPECT_EQ(to, (std::vector<std::string>{"ann@example.org", "bob@example.org", "flat@example.net"}));
}

// ---- Ended anywhere

// Delivers with a fault at each step in turn, then once without a fault.
class EndedAnywhere : public Deliver, public testing::WithParamInterface<std::pair<Fault, bool>> {};

constexpr uid_t user = 12345;

void give_to_user(const std::string& maildir) {
  ASSERT_EQ(::chown(maildir.c_str(), user, user), 0);
  for (const auto& e : fs::recursive_directory_iterator(maildir))
    ASSERT_EQ(::chown(e.path().c_str(), user, user), 0);
}

void expect_of_user(const std::string& maildir) {
  for (const auto& e : fs::recursive_directory_iterator(maildir)) {
    struct stat about{};
    ASSERT_EQ(::lstat(e.path().c_str(), &about), 0);
    bool lock = e.path().filename() == "subscriptions.lock";  // Dovecot removes it once it is old
    EXPECT_TRUE(about.st_uid == user || lock) << e.path();
  }
}

TEST_P(EndedAnywhere, EachOnce) {
  ASSERT_EQ(::geteuid(), 0u) << "this test changes file owners: run it as root";
  auto [fault, by_lmtp] = GetParam();
  loser_.make_maildir(ann + "/.New");
  loser_.put(ann + "/.New/cur/5.n:2,FS", late("three"));
  extract();
  FakeLmtp server;
  server.deliver_to(&winner_);
  const FakeLmtp* lmtp = by_lmtp ? &server : nullptr;
  int steps = 0;
  for (bool came_through = false; !came_through;) {
    ++steps;
    give_to_user(winner_ / ann);
    auto faulty = [&] {
      FaultOps ops(fault, steps);
      std::optional<Error> ignored;
      run(lmtp, {}, &ops, &ignored);
      return ops.calls() < steps;
    };
    came_through = fault == Fault::fails ? faulty() : run_in_child([&] { (void)faulty(); });
    DeliverReport report = run(lmtp);
    EXPECT_EQ(report.open(), 0u) << "step " << steps;
    expect_each_once(fmt::format("step {}", steps));
    EXPECT_EQ(count("three"), 1u) << "step " << steps;
    for (const std::string& folder : {ann, ann + "/.New", bob}) {
      std::string tmp = winner_ / (folder + "/tmp");
      EXPECT_TRUE(!fs::exists(tmp) || fs::is_empty(tmp)) << tmp << " step " << steps;
    }
    EXPECT_EQ(fates(run(lmtp)),
              (Fates{{"one", Fate::done_before}, {"two", Fate::done_before}, {"three", Fate::done_before}}));
    if (!by_lmtp) expect_of_user(winner_ / ann);
    EXPECT_TRUE(fault != Fault::fails || !fs::exists(winner_ / (ann + "/subscriptions.lock"))) << steps;
    EXPECT_FALSE(fs::exists(winner_ / (ann + "/twinloft-salvage.folder"))) << steps;
    fs::remove_all(winner_ / ".twinloft-salvage");
    fs::remove_all(winner_ / "example.org");
    for (const std::string& maildir : {ann, bob}) winner_.make_maildir(maildir);
  }
  EXPECT_GT(steps, by_lmtp ? 12 : 40) << "no fault was injected";
}

INSTANTIATE_TEST_SUITE_P(Copy, EndedAnywhere,
                         testing::Values(std::pair{Fault::ends, false},
                                         std::pair{Fault::ends_in_the_middle, false},
                                         std::pair{Fault::fails, false}));
INSTANTIATE_TEST_SUITE_P(Lmtp, EndedAnywhere,
                         testing::Values(std::pair{Fault::ends, true},
                                         std::pair{Fault::ends_in_the_middle, true},
                                         std::pair{Fault::fails, true}));

}  // namespace
}  // namespace twinloft::repl::salvage
