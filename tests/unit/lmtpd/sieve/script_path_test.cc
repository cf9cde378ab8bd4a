// Paths of scripts, with Dovecot's variables of both versions.
#include "twinloft/lmtpd/sieve/script_path.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

User ann() {
  User user;
  user.name = "Ann@Example.org";
  user.home = "/srv/mail/example.org/ann";
  return user;
}

std::string expanded(std::string_view text, const User& user = ann(), bool lower = true) {
  auto path = ScriptPath::parse(text, lower);
  if (!path) return "error: " + path.error().message;
  return path->expand(user).value_or("no path");
}

TEST(SieveScriptPath, Expands) {
  const std::pair<const char*, const char*> rows[] = {
      {"~/.dovecot.sieve", "/srv/mail/example.org/ann/.dovecot.sieve"},
      {"%h/.dovecot.sieve", "/srv/mail/example.org/ann/.dovecot.sieve"},
      {"%{home}/a", "/srv/mail/example.org/ann/a"},
      {"%{ home }/a", "/srv/mail/example.org/ann/a"},
      {"%h", "/srv/mail/example.org/ann"},
      {"%n/a", "/srv/mail/example.org/ann/ann/a"},
      {"x.sieve", "/srv/mail/example.org/ann/x.sieve"},
      {"/var/sieve/%u.sieve", "/var/sieve/ann@example.org.sieve"},
      {"/var/sieve/%d/%n", "/var/sieve/example.org/ann"},
      {"/var/sieve/%Ld/%Ln", "/var/sieve/example.org/ann"},
      {"/var/%{user}", "/var/ann@example.org"},
      {"/var/%{username}@%{domain}", "/var/ann@example.org"},
      {"/var/%{user | username}/%{user|domain}", "/var/ann/example.org"},
      {"/var/%{user | username | lower}", "/var/ann"},
      {"/var/100%%", "/var/100%"},
  };
  for (auto [text, wanted] : rows) EXPECT_EQ(expanded(text), wanted) << text;
  EXPECT_EQ(expanded("/var/%u/%Lu", ann(), false), "/var/Ann@Example.org/ann@example.org");
}

TEST(SieveScriptPath, RefusesWhatItCannotExpandAsDovecotDoes) {
  for (const char* text :
       {"", "~/../bob/x", "/var/..", "%s/x", "/var/%1n", "/var/%2.256Nu", "/var/%{user | md5}",
        "/var/%{userdb:x}", "/var/%{user", "/var/%", "/var/%{domain | username}", "/var/%{}", "%Lh/x",
        "%{home | lower}/x", "/var/%{ home | lower }"})
    EXPECT_TRUE(expanded(text).starts_with("error: ")) << text << ": " << expanded(text);
}

TEST(SieveScriptPath, ANameThatIsNoPartOfAPathHasNoPath) {
  for (const char* name : {"../bob", "a/b@example.org", "..", "a@..", "a"}) {
    User user = ann();
    user.name = name;
    EXPECT_EQ(expanded("/var/%n/%d", user), std::string_view(name) == "a" ? "/var/a/" : "no path") << name;
  }
}

// Dovecot ends the name at the first "@", lmtpd at the last.
TEST(SieveScriptPath, ANameWithTwoAtsHasNoPathByItsParts) {
  User user = ann();
  user.name = "a@b@c";
  EXPECT_EQ(expanded("/var/%n", user), "no path");
  EXPECT_EQ(expanded("/var/%{user | domain}", user), "no path");
  EXPECT_EQ(expanded("/var/%u", user), "/var/a@b@c");
  EXPECT_EQ(expanded("~/x", user), "/srv/mail/example.org/ann/x");
}

TEST(SieveScriptPath, KnowsWhetherItIsRelative) {
  for (const char* text : {"x", "%u/x", "~x", "%%/x"})
    EXPECT_TRUE(ScriptPath::parse(text, true)->is_relative()) << text;
  for (const char* text : {"/x", "~/x", "~", "%h/x", "%{ home }/x"})
    EXPECT_FALSE(ScriptPath::parse(text, true)->is_relative()) << text;
}

TEST(SieveScriptPath, PartsThatMakeAParentDirectoryTogetherAreNoPath) {
  User user = ann();
  user.name = "ann";
  EXPECT_EQ(expanded("/var/.%d./x", user), "no path");
  EXPECT_EQ(expanded("/var/.%d.", user), "no path");
  EXPECT_EQ(expanded("/var/.%d.x", user), "/var/..x");
}

TEST(SieveScriptPath, KnowsThePlaceThatMustExist) {
  EXPECT_EQ(ScriptPath::parse("~/a/b", true)->base(ann()), ann().home);
  EXPECT_EQ(ScriptPath::parse("/var/sieve/%u.sieve", true)->base(ann()), "/var/sieve");
  EXPECT_EQ(ScriptPath::parse("/var/sieve/u-%u", true)->base(ann()), "/var/sieve");
  EXPECT_EQ(ScriptPath::parse("/%u", true)->base(ann()), "/");
  EXPECT_TRUE(ScriptPath::parse("/%u", true)->uses_names());
  EXPECT_FALSE(ScriptPath::parse("%h/x", true)->uses_names());
}

}  // namespace
}  // namespace twinloft::lmtpd
