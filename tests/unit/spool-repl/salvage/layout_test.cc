// A layout gives the place of a Maildir, and the user of a place.
#include "twinloft/spool-repl/salvage/layout.h"

#include <gtest/gtest.h>

namespace twinloft::repl::salvage {
namespace {

Layout layout(std::string_view text) {
  auto parsed = Layout::parse(text);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return std::move(*parsed);
}

struct Case {
  const char *layout, *path, *user;
};

TEST(Layout, BothWays) {
  for (const Case& c :
       {Case{"%d/%n/Maildir", "example.org/ann/Maildir", "ann@example.org"},
        Case{"%domain%/%user%/Maildir", "example.org/ann/Maildir", "ann@example.org"},
        Case{"%u", "ann@example.org", "ann@example.org"}, Case{"%u", "ann", "ann"}, Case{"%n", "ann", "ann"},
        Case{"mail/%n@%d/md", "mail/a@b@example.org/md", "a@b@example.org"},
        Case{"%d/%1n/%n", "example.org/a/ann", "ann@example.org"},
        Case{"%2d/%d/%n", "ex/example.org/ann", "ann@example.org"},
        Case{"u-%n-x/100%%", "u-a-b-x/100%", "a-b"}}) {
    EXPECT_EQ(layout(c.layout).user_of(c.path), c.user) << c.layout << " " << c.path;
    EXPECT_EQ(layout(c.layout).path_of(c.user), c.path) << c.layout << " " << c.user;
  }
}

TEST(Layout, PathsThatDoNotFit) {
  for (const Case& c :
       {Case{"%d/%n/Maildir", "example.org/ann", ""}, Case{"%d/%n/Maildir", "example.org/ann/Maildir/x", ""},
        Case{"%d/%n/Maildir", "example.org/ann/maildir", ""}, Case{"%d/%1n/%n", "example.org/b/ann", ""},
        Case{"%n", "a@b", ""}, Case{"%n", "..", ""}, Case{"%n", "a\nb", ""}, Case{"%n", "", ""},
        Case{"x%n", "x", ""}, Case{"%n-%d", "ann", ""}, Case{"%n/%n", "ann/bob", ""}})
    EXPECT_EQ(layout(c.layout).user_of(c.path), std::nullopt) << c.layout << " " << c.path;
}

TEST(Layout, AddressesThatLeadElsewhere) {
  for (const char* address :
       {"../x@example.org", "a/b@example.org", "@example.org", "ann@..", "ann@", "ann", "a\n@example.org"})
    EXPECT_EQ(layout("%d/%n").path_of(address), "") << address;
}

TEST(Layout, RefusedInWords) {
  for (auto [text, why] : {std::pair{"/srv/%n", "below the spool's root"},
                           {"%d/Maildir", "%u or %n is missing"},
                           {"%1n", "%u or %n is missing"},
                           {"%x/%n", "is not a variable"},
                           {"%n/../x", "part of a path"},
                           {"%n//x", "part of a path"},
                           {"", "part of a path"},
                           {"%n%", "is not a variable"}}) {
    auto parsed = Layout::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_NE(parsed.error().message.find(why), std::string::npos) << parsed.error().message;
  }
}

}  // namespace
}  // namespace twinloft::repl::salvage
