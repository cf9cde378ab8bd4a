// Values that are wrong in any row, whatever its source.
#include "twinloft/lmtpd/userdb/check.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

User good() {
  User u;
  u.name = "ann@example.org";
  u.uid = u.gid = 5000;
  u.home = "/srv/mail/ann";
  u.maildir = "/srv/mail/ann/Maildir/";
  u.agent = "dovecot-lda_2";
  return u;
}

template <class Change>
bool refused(Change change) {
  User u = good();
  change(u);
  return !check_user(u).has_value();
}

TEST(CheckUser, TakesAGoodRow) {
  EXPECT_TRUE(check_user(good()).has_value());
  EXPECT_FALSE(refused([](User& u) { u.maildir.clear(); }));
  EXPECT_FALSE(refused([](User& u) { u.home = "/"; }));
  EXPECT_FALSE(refused([](User& u) { u.home = "/srv/..hidden/a..b/..."; }));
}

TEST(CheckUser, RefusesRoot) {
  EXPECT_TRUE(refused([](User& u) { u.uid = 0; }));
  EXPECT_TRUE(refused([](User& u) { u.gid = 0; }));
  EXPECT_TRUE(refused([](User& u) { u.uid = ~0u; }));
  EXPECT_TRUE(refused([](User& u) { u.gid = ~0u; }));
}

TEST(CheckUser, RefusesPathsThatLeadElsewhere) {
  for (std::string path :
       {std::string("relative/home"), std::string(), std::string("/srv/../etc"), std::string("/.."),
        std::string("/srv/."), std::string("/srv/./a"), std::string("/srv/a\0b", 8), std::string("/srv/a\nb"),
        std::string("/srv/a\x7f"), "/" + std::string(5000, 'a')}) {
    EXPECT_TRUE(refused([&](User& u) { u.home = path; })) << path;
    if (path.empty()) continue;
    EXPECT_TRUE(refused([&](User& u) { u.maildir = path; })) << path;
  }
}

TEST(NormalPath, HasEachSlashOnce) {
  for (auto [path, normal] : {std::pair{"/srv//a/", "/srv/a"},
                              {"//", "/"},
                              {"/", "/"},
                              {"", ""},
                              {"/srv/a", "/srv/a"},
                              {"///srv/a///b//", "/srv/a/b"},
                              {"/srv/./a/.", "/srv/a"},
                              {"/./", "/"},
                              {"~/./m", "~/m"},
                              {"./a", "a"},
                              {"/srv/.a/..b", "/srv/.a/..b"},
                              {"/srv/../a", "/srv/../a"}})
    EXPECT_EQ(normal_path(path), normal) << path;
}

TEST(CheckUser, RefusesOddNames) {
  EXPECT_TRUE(refused([](User& u) { u.name = ""; }));
  EXPECT_TRUE(refused([](User& u) { u.name = "a\nb"; }));
  EXPECT_TRUE(refused([](User& u) { u.name = std::string(513, 'a'); }));
  EXPECT_TRUE(refused([](User& u) { u.agent = "a/b"; }));
  EXPECT_TRUE(refused([](User& u) { u.agent = "a b"; }));
}

TEST(FitsPath, IsOneComponentOnly) {
  for (const char* bad : {"", ".", "..", "a/b", "/", "a\nb", "a\x7f"}) EXPECT_FALSE(fits_path(bad)) << bad;
  EXPECT_FALSE(fits_path(std::string_view("a\0b", 3)));
  EXPECT_FALSE(fits_path(std::string(256, 'a')));
  for (const char* good_part : {"ann", "...", ".ann", "a.b", "ann@x", "\xc3\xa4"})
    EXPECT_TRUE(fits_path(good_part));
}

}  // namespace
}  // namespace twinloft::lmtpd
