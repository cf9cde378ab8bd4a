#include "twinloft/mailbench/spool.h"

#include <gtest/gtest.h>

namespace twinloft::mailbench {
namespace {

TEST(ParseStored, TakesTheTopmostFieldsAndTheBody) {
  for (std::string end : {"\n", "\r\n"}) {
    std::string text = "Return-Path: <a@b>" + end + "delivered-to: new@d" + end + "Delivered-To: old@d" +
                       end + "To: <x@d>," + end + " <y@d>" + end + "X-Mailbench-Id:  run-1 " + end + end +
                       "body" + end + end + "X-Mailbench-Id: run-2" + end;
    StoredMessage m = parse_stored(text);
    EXPECT_EQ(m.id, "run-1");
    EXPECT_EQ(m.delivered_to, "new@d");
    EXPECT_EQ(m.fields[1], "<x@d>," + end + " <y@d>");
    EXPECT_EQ(m.body, "body" + end + end + "X-Mailbench-Id: run-2" + end);
  }
}

TEST(ParseStored, AnyPrefixIsParsed) {
  std::string text = "Delivered-To: u@d\nX-Mailbench-Id: run-1\nTo: <x@d>,\n <y@d>\n\nbody\n";
  for (std::size_t length = 0; length <= text.size(); ++length) {
    StoredMessage m = parse_stored(std::string_view(text).substr(0, length));
    EXPECT_LE(m.body.size(), 5u);
    if (length < 35) {
      EXPECT_NE(m.id, "run-1") << length;
    }
  }
}

TEST(ParseStored, NoHeaderAtAll) {
  EXPECT_EQ(parse_stored("").id, "");
  EXPECT_EQ(parse_stored("\n\n").body, "\n");
  EXPECT_EQ(parse_stored("rubbish\nmore: \n").id, "");
}

TEST(DirectoryMap, TakesTheNamesOfLmtpdsMacros) {
  DirectoryMap map;
  ASSERT_TRUE(DirectoryMap::check("%domain%/%user%/Maildir"));
  ASSERT_TRUE(map.add("%domain%/%user%/Maildir", "ann@example.org", 1));
  EXPECT_EQ(map.find("example.org/ann/Maildir/new"), 1u);
  ASSERT_TRUE(map.add("%name%/%%", "bob@example.org", 2));
  EXPECT_EQ(map.find("bob@example.org/%"), 2u);
  EXPECT_EQ(DirectoryMap::check("%home%/Maildir").error().message,
            "Maildir format '%home%/Maildir': known are %u or %name% (the address), %n or %user% (the local "
            "part), %d or %domain%, and %%");
}

TEST(DirectoryMap, FindsTheOwnerAlsoFromSubfolders) {
  DirectoryMap map;
  ASSERT_TRUE(map.add("%d/%n/Maildir", "u1@d", 0));
  ASSERT_TRUE(map.add("%d/%n/Maildir", "u11@d", 1));
  ASSERT_TRUE(map.add("/by-address/%u/", "u1@d", 0));
  EXPECT_EQ(map.find("d/u1/Maildir/new"), 0u);
  EXPECT_EQ(map.find("d/u11/Maildir/.Junk/cur"), 1u);
  EXPECT_EQ(map.find("by-address/u1@d/new"), 0u);
  EXPECT_EQ(map.find("d/u2/Maildir/new"), DirectoryMap::none);
  EXPECT_EQ(map.find("d/u1/Mail/new"), DirectoryMap::none);
  EXPECT_EQ(map.find(""), DirectoryMap::none);
  auto clash = map.add("%n", "u1@d", 0);
  ASSERT_TRUE(clash);
  EXPECT_FALSE(map.add("%n", "u1@e", 2));
}

TEST(WalkSpool, AMissingSpoolIsAnError) {
  auto files = walk_spool("/nonexistent/spool");
  ASSERT_FALSE(files);
  EXPECT_EQ(files.error().code, Errc::not_found);
}

}  // namespace
}  // namespace twinloft::mailbench
