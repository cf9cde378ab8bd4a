#include "twinloft/mail/folder_name.h"

#include <gtest/gtest.h>

namespace twinloft::mail {
namespace {

std::string directory(std::string_view detail, char separator = '.') {
  return folder_directory(detail, separator).value_or("none");
}

TEST(ModifiedUtf7, IsThatOfImap) {
  EXPECT_EQ(encode_mutf7("Lists"), "Lists");
  EXPECT_EQ(encode_mutf7("A & B"), "A &- B");
  EXPECT_EQ(encode_mutf7("Entwürfe"), "Entw&APw-rfe");
  EXPECT_EQ(encode_mutf7("台北"), "&U,BTFw-");  // RFC 3501 section 5.1.3
  EXPECT_EQ(encode_mutf7("日本語"), "&ZeVnLIqe-");
  EXPECT_EQ(encode_mutf7("ü&ö"), "&APw-&-&APY-");
  EXPECT_EQ(encode_mutf7("😀"), "&2D3eAA-");
}

TEST(FolderDirectory, LevelsBecomeDots) {
  EXPECT_EQ(directory("lists"), ".lists");
  EXPECT_EQ(directory("Lists.Dev"), ".Lists.Dev");
  EXPECT_EQ(directory("Lists/Dev", '/'), ".Lists.Dev");
  EXPECT_EQ(directory("Entwürfe.ä"), ".Entw&APw-rfe.&AOQ-");
  EXPECT_EQ(directory("a b"), ".a b");
  EXPECT_EQ(directory("INBOXes"), ".INBOXes");
  EXPECT_EQ(directory("a.INBOX"), ".a.INBOX");
}

TEST(FolderDirectory, WhatNamesNoFolderIsTheInbox) {
  for (std::string_view detail :
       {"",      "INBOX", "inbox", "Inbox.sub", ".",    "..",    "...",      ".a", "a.",
        "a..b",  "/",     "a/b",   "../../etc", "~",    "~root", "a.~root",  "*",  "a%",
        "a\x01", "a\x7f", "a\tb",  "a\n",       "\xff", "a\xc3", "a\xc2\x85"})
    EXPECT_EQ(directory(detail), "none") << detail;
  for (std::string_view detail : {"a.b", "..", "a/../b", "/a", "a/", "a//b", "./a"})
    EXPECT_EQ(directory(detail, '/'), "none") << detail;
  EXPECT_EQ(directory(std::string_view("a\0b", 3)), "none");
}

TEST(FolderDirectory, LengthAndDepthAreBounded) {
  EXPECT_EQ(directory(std::string(254, 'a')).size(), 255u);
  EXPECT_EQ(directory(std::string(255, 'a')), "none");
  std::string deep = "a";
  for (int i = 1; i < 16; ++i) deep += ".a";
  EXPECT_EQ(directory(deep).size(), 32u);
  EXPECT_EQ(directory(deep + ".a"), "none");
}

}  // namespace
}  // namespace twinloft::mail
