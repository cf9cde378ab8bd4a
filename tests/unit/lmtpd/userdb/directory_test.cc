// The meaning of an address: detail, aliases, catch-all.
#include "twinloft/lmtpd/userdb/directory.h"

#include "sources.h"

namespace twinloft::lmtpd {
namespace {

class DirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"ann@example.org", "bob@example.org", "ann+lists@example.org"}) add(name);
    alias("info@example.org", "ann@example.org");
    alias("sales@example.org", "info@example.org");
    alias("news@example.org", "ann+news@example.org");
    alias("loop@example.org", "pool@example.org");
    alias("pool@example.org", "loop@example.org");
    alias("gone@example.org", "nobody@example.org");
    alias("local@example.org", "Root");
    alias("broken@example.org", "@example.org");
    add("root");
  }
  void add(const std::string& name) { table_.rows[name] = user_named(name); }
  void alias(const std::string& name, const std::string& address) { table_.rows[name] = Alias{address}; }

  // Returns "ann@example.org lists": the user, and the detail for the delivery.
  std::string find(std::string local_part, std::string detail = "", std::string domain = "example.org") {
    auto source = std::make_unique<TableSource>(table_);
    TableSource* table = source.get();
    auto directory = make_directory(std::move(source), config_, clock_);
    LookupRequest request{std::move(local_part), std::move(detail), std::move(domain)};
    LookupResult found = directory->lookup(request);
    asked_ = table->asked;
    if (!found) return "error: " + found.error().message;
    if (!*found) return "nobody";
    return (*found)->user.name + " " + (*found)->detail.value_or(request.detail);
  }

  TableSource table_;
  DirectoryConfig config_;
  ManualClock clock_;
  std::vector<std::string> asked_;
};

TEST_F(DirectoryTest, AsksForAddressesInLowerCaseAndWithoutDetail) {
  EXPECT_EQ(find("Ann", "Lists", "Example.ORG"), "ann@example.org Lists");
  EXPECT_EQ(asked_, std::vector<std::string>{"ann@example.org"});
  EXPECT_EQ(find("eve"), "nobody");
  EXPECT_EQ(find("root", "", ""), "root ");
}

TEST_F(DirectoryTest, AddressesWithDetailMayHaveARowOfTheirOwn) {
  config_.detail_first = true;
  EXPECT_EQ(find("ann", "Lists"), "ann+lists@example.org ") << "the detail is part of the user's name";
  EXPECT_EQ(find("ann", "other"), "ann@example.org other");
  EXPECT_EQ(asked_, (std::vector<std::string>{"ann+other@example.org", "ann@example.org"}));
  EXPECT_EQ(find("ann"), "ann@example.org ");
  EXPECT_EQ(asked_.size(), 1u);
}

TEST_F(DirectoryTest, AnInternationalisedDomainMayStandThereInEitherForm) {
  add("ann@b\u00fccher.example");
  add("bob@xn--bcher-kva.example");
  alias("carl@example.org", "Ann@B\u00dcCHER.example.");
  EXPECT_EQ(find("ann", "x", "xn--bcher-kva.example"), "ann@b\u00fccher.example x");
  EXPECT_EQ(asked_, (std::vector<std::string>{"ann@xn--bcher-kva.example", "ann@b\u00fccher.example"}));
  EXPECT_EQ(find("bob", "", "xn--bcher-kva.example"), "bob@xn--bcher-kva.example ");
  EXPECT_EQ(find("carl"), "ann@b\u00fccher.example ");
  EXPECT_EQ(find("eve", "", "xn--bcher-kva.example"), "nobody");
}

TEST_F(DirectoryTest, FollowsAliases) {
  EXPECT_EQ(find("info"), "ann@example.org ");
  EXPECT_EQ(find("info", "lists"), "ann@example.org lists");
  EXPECT_EQ(find("sales", "x"), "ann@example.org x");
  EXPECT_EQ(find("news"), "ann@example.org news");
  EXPECT_EQ(find("news", "x"), "ann@example.org news");
  EXPECT_EQ(find("local"), "root ");
  EXPECT_EQ(find("gone"), "nobody");
  config_.detail_first = true;
  EXPECT_EQ(find("info", "lists"), "ann+lists@example.org ");
}

// The result is old as well if the address may have another meaning by now.
TEST_F(DirectoryTest, WhatAnOldAliasLeadsToIsOld) {
  auto source = std::make_unique<TableSource>(table_);
  TableSource* table = source.get();
  config_.cache = {std::chrono::seconds(60), {}, std::chrono::hours(1), 1u << 20};
  auto directory = make_directory(std::move(source), config_, clock_);
  auto is_old = [&](const std::string& local_part) {
    return (*directory->lookup({local_part, "", "example.org"}))->user.is_old;
  };
  EXPECT_FALSE(is_old("info"));
  clock_.at = clock_.at + std::chrono::seconds(59);
  EXPECT_FALSE(is_old("bob"));
  alias("info@example.org", "bob@example.org");
  table->rows["info@example.org"] = table_.rows["info@example.org"];
  clock_.at = clock_.at + std::chrono::seconds(1);
  EXPECT_FALSE(is_old("info"));
  EXPECT_FALSE(is_old("bob"));
  table->error = Error{Errc::unavailable, "away"};
  clock_.at = clock_.at + std::chrono::seconds(58);
  EXPECT_FALSE(is_old("info")) << "both are fresh";
  clock_.at = clock_.at + std::chrono::seconds(1);
  EXPECT_TRUE(is_old("info")) << "the user is old";
  table->error.reset();
  clock_.at = clock_.at + std::chrono::seconds(1);
  EXPECT_FALSE(is_old("bob"));
  table->error = Error{Errc::unavailable, "away"};
  clock_.at = clock_.at + std::chrono::seconds(1);
  EXPECT_FALSE(is_old("bob"));
  EXPECT_TRUE(is_old("info")) << "the alias is old";
}

TEST_F(DirectoryTest, AnAliasFromMemoryThatLeadsToNobodyIsAskedForAnew) {
  auto source = std::make_unique<TableSource>(table_);
  TableSource* table = source.get();
  config_.cache = {std::chrono::seconds(60), std::chrono::seconds(5), std::chrono::hours(1), 1u << 20};
  auto directory = make_directory(std::move(source), config_, clock_);
  const LookupRequest info{"info", "", "example.org"};
  clock_.at = clock_.at + std::chrono::seconds(60);
  ASSERT_TRUE(directory->lookup({"ann", "", "example.org"}).value());
  clock_.at = clock_.at + std::chrono::seconds(59);
  ASSERT_TRUE(directory->lookup(info).value());
  clock_.at = clock_.at + std::chrono::seconds(1);  // ann is looked up again, and info is still cached
  table->rows.erase("ann@example.org");
  table->rows["info@example.org"] = Alias{"bob@example.org"};
  EXPECT_FALSE(directory->lookup_now(info)) << "the source has to be asked";
  auto found = directory->lookup(info);
  ASSERT_TRUE(found.value());
  EXPECT_EQ((*found)->user.name, "bob@example.org");
  table->rows["info@example.org"] = Alias{"nobody@example.org"};
  clock_.at = clock_.at + std::chrono::seconds(60);
  EXPECT_FALSE(directory->lookup(info).value());
  EXPECT_FALSE(directory->lookup(info).value()) << "no user is a valid answer, also the second time";
}

// One change renames a user and gives the alias another target.
TEST_F(DirectoryTest, AnOldAliasThatLeadsToNobodyIsNoRefusal) {
  auto source = std::make_unique<TableSource>(table_);
  TableSource* table = source.get();
  config_.cache = {std::chrono::seconds(60), std::chrono::seconds(60), std::chrono::hours(1), 1u << 20};
  auto directory = make_directory(std::move(source), config_, clock_);
  auto info = [&] { return directory->lookup({"info", "", "example.org"}); };
  ASSERT_TRUE(info().value());
  clock_.at = clock_.at + std::chrono::seconds(60);
  UserKey target{"ann", "example.org"};
  table->rows.erase(target.address());
  ASSERT_FALSE(*directory->lookup({target.local_part, "", target.domain}))
      << "no such user, with a fresh answer";
  table->error = Error{Errc::unavailable, "locked"};
  auto found = info();
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("leads to an unknown address"), std::string::npos)
      << found.error().message;
  table->error.reset();
  clock_.at = clock_.at + std::chrono::seconds(1);
  EXPECT_FALSE(info().value()) << "now no user is a valid answer";
}

TEST_F(DirectoryTest, ALoopIsAnError) {
  EXPECT_NE(find("loop").find("a loop"), std::string::npos);
  EXPECT_EQ(asked_.size(), Directory::aliases_max + 1u);
  for (const char* bad : {"@example.org", "ann@example.org, bob@example.org", "ann@example.org ",
                          " ann@example.org", "Ann <ann@example.org>", "<ann@example.org>",
                          "ann@example.org>", "ann@", "@a:ann@example.org", "ann\n@example.org"}) {
    alias("broken@example.org", bad);
    EXPECT_EQ(find("broken").find(std::string("error: the alias \"") + bad + "\" is no"), 0u)
        << bad << ": " << find("broken");
  }
  alias("idn@example.org", "ann@ex\xc3\xa4mple.org");
  find("idn");
  EXPECT_EQ(asked_.at(1), "ann@xn--exmple-cua.org");
}

TEST_F(DirectoryTest, TheCatchAllComesLast) {
  alias("@example.org", "bob@example.org");
  EXPECT_EQ(find("eve"), "nobody") << "the source is not asked";
  config_.catch_all = true;
  EXPECT_EQ(find("eve", "x"), "bob@example.org x");
  EXPECT_EQ(find("ann"), "ann@example.org ");
  EXPECT_EQ(find("eve", "", "example.com"), "nobody");
  EXPECT_EQ(find("eve", "", ""), "nobody");
  EXPECT_EQ(asked_, std::vector<std::string>{"eve"});
  EXPECT_EQ(find("gone"), "bob@example.org ") << "an alias without a user leads to the catch-all too";
  alias("@example.org", "nobody@example.org");
  EXPECT_NE(find("eve").find("a loop"), std::string::npos);
}

TEST_F(DirectoryTest, AnErrorOnTheWayIsTheAnswer) {
  table_.error = Error{Errc::unavailable, "away"};
  config_.detail_first = config_.catch_all = true;
  EXPECT_EQ(find("ann", "x"), "error: away");
  EXPECT_EQ(asked_.size(), 1u) << "an unknown row may exist";
}

TEST_F(DirectoryTest, SaysHowItCameToItsAnswer) {
  auto directory = make_directory(std::make_unique<TableSource>(table_), config_, clock_);
  std::vector<LookupStep> steps;
  EXPECT_TRUE(directory->explain({"sales", "", "example.org"}, steps).value());
  std::string text;
  for (const LookupStep& s : steps) text += s.key + ": " + s.found + "\n";
  EXPECT_EQ(text,
            "sales@example.org: an alias of info@example.org\ninfo@example.org: an alias of "
            "ann@example.org\nann@example.org: user ann@example.org\n");
}

TEST_F(DirectoryTest, WhatIsCachedIsAtHand) {
  config_.cache.positive = std::chrono::seconds(60);
  auto directory = make_directory(std::make_unique<TableSource>(table_), config_, clock_);
  LookupRequest request{"info", "x", "example.org"};
  EXPECT_FALSE(directory->lookup_now(request));
  EXPECT_TRUE(directory->lookup(request).value());
  auto found = directory->lookup_now(request);
  ASSERT_TRUE(found && *found && **found);
  EXPECT_EQ((**found)->user.name, "ann@example.org");
  EXPECT_FALSE(directory->lookup_now({"sales", "", "example.org"})) << "a part of the chain is not enough";
}

}  // namespace
}  // namespace twinloft::lmtpd
