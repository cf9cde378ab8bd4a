// The cached answers of a source, their lifetime, and their use while the source does not answer.
#include "cache.h"

#include <thread>

#include "sources.h"

namespace twinloft::lmtpd {
namespace {

using namespace std::chrono_literals;

class CacheTest : public testing::Test {
 protected:
  CacheTest() {
    auto source = std::make_unique<TableSource>();
    table_ = source.get();
    table_->rows["ann@example.org"] = user_named("ann");
    CacheConfig config{60s, 5s, 3600s, 1u << 20};
    cache_ = std::make_unique<CachedSource>(std::move(source), config, clock_);
  }
  std::string find(const std::string& local_part) { return text(cache_->find({local_part, "example.org"})); }
  bool is_old(const std::string& local_part) {
    return std::get<User>(**cache_->find({local_part, "example.org"})).is_old;
  }
  // Asks the cache first, then the source, like the server.
  std::string ask(const std::string& local_part) {
    std::string at_hand = now(local_part);
    return at_hand == "-" ? find(local_part) : at_hand;
  }
  // "-": not in the cache.
  std::string now(const std::string& local_part) {
    auto found = cache_->find_now({local_part, "example.org"});
    return found ? text(*found) : "-";
  }
  static std::string text(const FindResult& found) {
    if (!found) return "error";
    if (!*found) return "nobody";
    return std::get<User>(**found).name;
  }
  std::size_t asked() { return std::exchange(table_->asked, {}).size(); }
  void break_down(Errc code = Errc::unavailable) { table_->error = Error{code, "away"}; }
  // Afterwards Ann is cached and stale, and the source is known to be down.
  void begin_outage(Errc code = Errc::unavailable) {
    find("ann");
    pass(std::chrono::seconds(60));
    break_down(code);
    EXPECT_EQ(find("ann"), "ann");
    asked();
  }
  void pass(Duration time) { clock_.at = clock_.at + time; }

  ManualClock clock_;
  TableSource* table_;
  std::unique_ptr<CachedSource> cache_;
};

TEST_F(CacheTest, AnAnswerIsGoodForItsTime) {
  EXPECT_EQ(now("ann"), "-");
  EXPECT_EQ(find("ann"), "ann");
  EXPECT_EQ(now("ann"), "ann");
  table_->rows["ann@example.org"] = user_named("new");
  pass(59s);
  EXPECT_EQ(find("ann"), "ann");
  EXPECT_EQ(asked(), 1u);
  pass(1s);
  EXPECT_EQ(now("ann"), "-");
  EXPECT_EQ(find("ann"), "new");
  EXPECT_EQ(asked(), 1u);
}

// This happens with many parallel look-ups: one reads the clock, then another stores its answer, then the
// first checks the cache.
TEST_F(CacheTest, AnAnswerThatIsNotKeptAnswersNoQuestionThatIsOlder) {
  auto source = std::make_unique<TableSource>();
  source->rows["ann@example.org"] = user_named("ann");
  CachedSource none(std::move(source), CacheConfig{0s, 0s, 3600s, 1u << 20}, clock_);
  ASSERT_TRUE(none.find({"ann", "example.org"}));
  EXPECT_FALSE(none.find_now({"ann", "example.org"}));
  pass(-1s);
  EXPECT_FALSE(none.find_now({"ann", "example.org"}));
}

TEST_F(CacheTest, ThatThereIsNobodyIsKeptForLess) {
  EXPECT_EQ(find("eve"), "nobody");
  EXPECT_EQ(now("eve"), "nobody");
  table_->rows["eve@example.org"] = user_named("eve");
  pass(4s);
  EXPECT_EQ(find("eve"), "nobody");
  pass(1s);
  EXPECT_EQ(find("eve"), "eve");
  // A removed user is unknown once the source was asked again.
  table_->rows.erase("eve@example.org");
  pass(60s);
  EXPECT_EQ(find("eve"), "nobody");
  break_down();
  pass(5s);
  EXPECT_EQ(find("eve"), "error") << "the older answer no longer counts";
}

TEST_F(CacheTest, WhoIsKnownGoesOnWhileThereIsNoAnswer) {
  find("ann"), find("eve");
  break_down();
  EXPECT_EQ(find("ann"), "ann");
  EXPECT_EQ(find("bob"), "error");
  pass(5s);
  EXPECT_EQ(find("eve"), "error") << "a negative answer is never served stale";
  EXPECT_FALSE(is_old("ann"));
  pass(3594s);
  EXPECT_EQ(find("ann"), "ann");
  EXPECT_TRUE(is_old("ann"));
  EXPECT_TRUE(std::get<User>(**cache_->find_now({"ann", "example.org"}).value()).is_old);
  pass(1s);
  EXPECT_EQ(now("ann"), "-");
  EXPECT_EQ(find("ann"), "error") << "too old";
  table_->error.reset();
  EXPECT_EQ(find("ann"), "ann");
  EXPECT_FALSE(is_old("ann"));
}

TEST_F(CacheTest, OneAsksForAllWhileThereIsNoAnswer) {
  begin_outage();
  EXPECT_EQ(now("ann"), "ann") << "no caller waits again right after a failure";
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ask("ann"), "ann");
  EXPECT_EQ(asked(), 0u);
  pass(1s);
  EXPECT_EQ(now("ann"), "-") << "the first caller asks";
  EXPECT_EQ(now("ann"), "ann") << "the second caller does not";
  EXPECT_EQ(find("ann"), "ann");
  EXPECT_EQ(asked(), 1u) << "the source is asked, and the cached answer is used";
  EXPECT_EQ(ask("bob"), "error") << "an unknown user's look-up waits";
  EXPECT_EQ(asked(), 1u);
  pass(1s);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ask("ann"), "ann");
  EXPECT_EQ(asked(), 1u);
  // The source answers again.
  table_->error.reset();
  EXPECT_EQ(find("bob"), "nobody");
  EXPECT_EQ(now("ann"), "-");
  table_->rows["ann@example.org"] = user_named("new");
  EXPECT_EQ(find("ann"), "new");
}

// Many callers came before the outage was known. They must not all wait, one after the other.
TEST_F(CacheTest, WhoIsKnownDoesNotAskBesideTheOneWhoDoes) {
  begin_outage();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(find("ann"), "ann");
  EXPECT_EQ(asked(), 0u);
  pass(1s);
  table_->during = [&] {
    std::thread([&] {
      pass(1h - 62s);  // the look-up takes long, but ann is not too old
      EXPECT_EQ(now("ann"), "ann");
      EXPECT_EQ(find("ann"), "ann") << "one look-up is in flight";
    }).join();
  };
  EXPECT_EQ(find("ann"), "ann");
  EXPECT_EQ(asked(), 1u);
}

// find_anew() marks a cached answer as old if the source does not answer, whatever its age.
TEST_F(CacheTest, WhatIsAskedForAnewIsOldWhereThereIsNoAnswer) {
  auto anew = [&] { return std::get<User>(*cache_->find_anew({"ann", "example.org"}).value()); };
  find("ann");
  table_->rows["ann@example.org"] = user_named("new");
  EXPECT_EQ(find("ann"), "ann");
  EXPECT_EQ(anew().name, "new");
  EXPECT_FALSE(anew().is_old);
  break_down();
  EXPECT_TRUE(anew().is_old) << "the source was asked";
  EXPECT_TRUE(anew().is_old) << "the source was not asked";
  EXPECT_FALSE(is_old("ann")) << "the answer is fresh for all other callers";
}

TEST_F(CacheTest, AProbeThatIsNeverBegunIsFollowedByAnother) {
  begin_outage();
  pass(1s);
  EXPECT_EQ(now("ann"), "-");
  pass(29s);
  EXPECT_EQ(now("ann"), "ann");
  pass(1s);
  EXPECT_EQ(now("ann"), "-");
}

// The process hangs. A waiting caller would keep a thread and a connection until its timeout.
TEST_F(CacheTest, NobodyWaitsForASourceThatSaysNothing) {
  begin_outage(Errc::timeout);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(now("ann"), "ann");
    EXPECT_EQ(now("bob"), "error");
    EXPECT_EQ(find("eve"), "error");
  }
  EXPECT_EQ(asked(), 0u);
  pass(1s);
  EXPECT_EQ(now("bob"), "-") << "this look-up probes the source for unknown users";
  EXPECT_EQ(now("eve"), "error");
  EXPECT_EQ(now("ann"), "-") << "this look-up probes the source for known users";
  EXPECT_EQ(find("bob"), "error");
  EXPECT_EQ(find("ann"), "ann");
  EXPECT_EQ(asked(), 2u);
  // The source answers again, with an error. Now every caller may ask.
  break_down();
  pass(1s);
  EXPECT_EQ(ask("bob"), "error");
  EXPECT_EQ(ask("eve"), "error");
  EXPECT_EQ(asked(), 2u);
  table_->error.reset();
  EXPECT_EQ(ask("bob"), "nobody");
  EXPECT_EQ(ask("ann"), "ann");
}

TEST_F(CacheTest, AWrongRowIsAnAnswer) {
  find("ann");
  pass(60s);
  table_->error = Error{Errc::invalid, "uid 0"};
  EXPECT_EQ(find("ann"), "error");
  EXPECT_EQ(now("ann"), "-");
  break_down();
  EXPECT_EQ(find("ann"), "error") << "the answer is not used later either";
}

// Repeated requests for one key must not stop the look-ups of other keys.
TEST_F(CacheTest, OneKeyThatFailsStarvesNobody) {
  find("ann");
  pass(60s);
  table_->rows["ann@example.org"] = user_named("new");
  for (int i = 0; i < 20; ++i) {
    break_down();
    ask("broken");
    table_->error.reset();
    if (ask("ann") == "new") break;
    pass(100ms);
  }
  EXPECT_EQ(ask("ann"), "new");
}

// For example while the file is half written.
TEST_F(CacheTest, WhoIsKnownGoesOnWhileTheSourceIsNotSure) {
  find("ann");
  pass(60s);
  table_->error = Error{Errc::conflict, "changed a moment ago"};
  EXPECT_EQ(find("ann"), "ann");
  EXPECT_EQ(find("bob"), "error");
  EXPECT_EQ(now("ann"), "-") << "the source answers";
  table_->error.reset();
  EXPECT_EQ(ask("ann"), "ann");
  EXPECT_EQ(asked(), 4u);
}

TEST_F(CacheTest, NothingWaitsForTheSourceButWhoAsksIt) {
  find("ann");
  table_->during = [&] {
    std::thread([&] {
      EXPECT_EQ(now("ann"), "ann");
      EXPECT_EQ(now("bob"), "-");
    }).join();
  };
  EXPECT_EQ(find("bob"), "nobody");
}

TEST_F(CacheTest, KeysThatDifferAnywhereAreDifferent) {
  table_->rows["ann@example.com"] = user_named("other");
  table_->rows["ann"] = user_named("without");
  EXPECT_EQ(find("ann"), "ann");
  EXPECT_EQ(text(cache_->find({"ann", "example.com"})), "other");
  EXPECT_EQ(text(cache_->find({"ann", ""})), "without");
  EXPECT_EQ(text(*cache_->find_now({"ann", "example.com"})), "other");
  EXPECT_EQ(now("ann"), "ann");
}

TEST(EntryStore, IsBoundedAndKeepsWhatIsUsed) {
  EntryStore store(64 * 1024);
  auto key = [](int i) { return UserKey{"user" + std::to_string(i), "example.org"}; };
  for (int i = 0; i < 10'000; ++i) {
    store.put(key(i), user_named(std::string(100, 'x')), Instant{i});
    EXPECT_LE(store.bytes(), 64u * 1024);
    ASSERT_TRUE(store.find(key(0))) << i;
    ASSERT_TRUE(store.find(key(i))) << i;
  }
  EXPECT_GT(store.size(), 50u);
  EXPECT_FALSE(store.find(key(5000)));
  store.put(key(1), user_named(std::string(100'000, 'x')), Instant{});
  EXPECT_FALSE(store.find(key(1))) << "larger than the whole cache";
  ASSERT_TRUE(store.find(key(0)));
  for (int i = 0; i < 10'000; ++i) store.erase(key(i));
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_EQ(store.size(), 0u);
}

}  // namespace
}  // namespace twinloft::lmtpd
