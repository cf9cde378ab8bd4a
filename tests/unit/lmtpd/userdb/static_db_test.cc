#include "twinloft/lmtpd/userdb/static_db.h"

#include <gtest/gtest.h>

#include "sources.h"

namespace twinloft::lmtpd {
namespace {

StaticDbConfig config() {
  StaticDbConfig c;
  c.defaults.home = "/srv/mail/%domain%/%user%";
  c.defaults.maildir = "/srv/mail/%domain%/%user%/Maildir";
  c.defaults.uid = c.defaults.gid = 5000;
  c.users = AcceptAll{};
  return c;
}

TEST(StaticDb, ExpandsItsTemplates) {
  auto db = make_static_db(config()).value();
  auto user = user_of(db->find({"ann", "example.org"}));
  ASSERT_TRUE(user.has_value());
  EXPECT_EQ(user->name, "ann@example.org");
  EXPECT_EQ(user->home, "/srv/mail/example.org/ann");
  EXPECT_EQ(user->maildir, "/srv/mail/example.org/ann/Maildir");
  EXPECT_EQ(user->uid, 5000u);
  EXPECT_EQ(user->gid, 5000u);
}

TEST(StaticDb, NoAddressLeavesItsDirectory) {
  auto db = make_static_db(config()).value();
  for (const char* bad : {"..", ".", "", "a/../../b", "a/b", "/", "a\nb"}) {
    EXPECT_FALSE(db->find({bad, "example.org"}).value().has_value()) << bad;
    EXPECT_FALSE(db->find({"ann", bad}).value().has_value()) << bad;
  }
  EXPECT_FALSE(db->find({std::string("a\0b", 3), "example.org"}).value().has_value());
  EXPECT_FALSE(db->find({std::string(300, 'a'), "example.org"}).value().has_value());
}

TEST(StaticDb, AValueIsNeverExpandedAgain) {
  auto db = make_static_db(config()).value();
  EXPECT_EQ(user_of(db->find({"%domain%", "example.org"}))->home, "/srv/mail/example.org/%domain%");
}

TEST(StaticDb, ListsBoundIt) {
  StaticDbConfig c = config();
  c.domains = {"Example.ORG.", "B\u00fccher.example"};
  c.users = LocalParts{"Ann"};
  auto db = make_static_db(c).value();
  EXPECT_TRUE(db->find({"ann", "example.org"}).value().has_value());
  EXPECT_TRUE(db->find({"ann", "xn--bcher-kva.example"}).value().has_value());
  EXPECT_FALSE(db->find({"bob", "example.org"}).value().has_value());
  EXPECT_FALSE(db->find({"ann", "example.com"}).value().has_value());
  EXPECT_FALSE(db->find({"ann", ""}).value().has_value());
}

TEST(StaticDb, NobodyExistsUnlessSomethingSaysSo) {
  StaticDbConfig c = config();
  c.users = LocalParts{};
  EXPECT_FALSE(make_static_db(c).value()->find({"ann", "example.org"}).value().has_value());
  EXPECT_TRUE(std::holds_alternative<LocalParts>(StaticDbConfig().users));
}

TEST(StaticDb, AnAddressWithoutDomainNeedsTemplatesWithoutOne) {
  StaticDbConfig c = config();
  c.defaults.home = "/srv/mail/%name%";
  c.defaults.maildir = "";
  c.defaults.agent = "dovecot";
  auto user = user_of(make_static_db(c).value()->find({"ann", ""}));
  ASSERT_TRUE(user.has_value());
  EXPECT_EQ(user->name, "ann");
  EXPECT_EQ(user->home, "/srv/mail/ann");
  EXPECT_EQ(user->agent, "dovecot");
}

TEST(StaticDb, SaysWhatIsWrongWithItsConfiguration) {
  auto message = [](auto change) {
    StaticDbConfig c = config();
    change(c);
    auto made = make_static_db(c);
    return made ? std::string() : made.error().message;
  };
  EXPECT_NE(message([](auto& c) {
              c.defaults.home = "/srv/%users%";
            }).find("users.home: column 6: unknown macro %users%"),
            std::string::npos);
  EXPECT_EQ(message([](auto& c) { c.defaults.home = "/srv/%d/%n"; }),
            "users.home: column 6: Dovecot's %d is %domain% here");
  EXPECT_EQ(message([](auto& c) { c.defaults.maildir = "/srv/%u"; }),
            "users.maildir: column 6: Dovecot's %u is %name% here, or %user%@%domain%");
  EXPECT_NE(message([](auto& c) { c.defaults.maildir = "/srv/100%"; }).find("column 9: a lone \"%\""),
            std::string::npos);
  EXPECT_NE(message([](auto& c) { c.defaults.name = "%name%"; }).find("unknown macro"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.defaults.home = "srv"; }).find("absolute"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.defaults.home = "/srv/../%user%"; }), "");
  EXPECT_NE(message([](auto& c) { c.defaults.uid = 0; }).find("root"), std::string::npos);
  EXPECT_EQ(message([](auto& c) { c.defaults.home = "/srv/100%%/%user%"; }), "");
}

}  // namespace
}  // namespace twinloft::lmtpd
