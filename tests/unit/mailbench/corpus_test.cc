#include "twinloft/mailbench/corpus.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "twinloft/mailbench/spool.h"

namespace twinloft::mailbench {
namespace {

class CorpusTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "mb-corpus.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string write(const std::string& name, const std::string& text) {
    std::filesystem::path path = std::filesystem::path(directory_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  static Corpus load(const std::string& path, bool dot_stuffed = true) {
    auto corpus = Corpus::load(path, dot_stuffed);
    if (!corpus) ADD_FAILURE() << corpus.error().message;
    return corpus.value();
  }
  std::string directory_;
};

TEST_F(CorpusTest, AMaildirWithItsOwnFiles) {
  write("cur/1:2,S", "Subject: one\n\nbody\n");
  write("new/2", "Subject: two\r\n\r\nbody\r\n");
  write("dovecot-uidlist", "3 V1700000000 N3 G0123\n1 :1\n");
  write("subscriptions", "V\t2\n\nArchive\n");
  Corpus corpus = load(directory_);
  ASSERT_EQ(corpus.messages().size(), 2u);
  EXPECT_EQ(corpus.messages()[0].header, "Subject: one\r\n");
  EXPECT_EQ(corpus.messages()[0].body, "body\r\n");
  EXPECT_EQ(corpus.messages()[1].body, "body\r\n");
  EXPECT_EQ(corpus.messages()[0].digest, corpus.messages()[1].digest);
  EXPECT_NE(corpus.summary().find("2 files without a header left out"), std::string::npos)
      << corpus.summary();
}

TEST_F(CorpusTest, AnMbox) {
  std::string path = write(
      "mbox",
      "From a@b Thu Jan  1 00:00:00 1970\nSubject: one\n\nnot From the start\n>From quoted\n\n"
      "From c@d Thu Jan  1 00:00:00 1970\nSubject: two\n\nlast");
  Corpus corpus = load(path);
  ASSERT_EQ(corpus.messages().size(), 2u);
  EXPECT_EQ(corpus.messages()[0].body, "not From the start\r\n>From quoted\r\n\r\n");
  EXPECT_EQ(corpus.messages()[1].body, "last\r\n");
}

TEST_F(CorpusTest, MessageIdIsLeftOutWithItsFolds) {
  Corpus corpus = load(write("m", "From: a@b\nmessage-id:\n <x@y>\n\t(comment)\nSubject: s\n t\n\nb\n"));
  EXPECT_EQ(corpus.messages()[0].header, "From: a@b\r\nSubject: s\r\n t\r\n");
  EXPECT_EQ(corpus.messages()[0].fields[4], "s\n t");
}

TEST_F(CorpusTest, DotsAreDoubledForDataOnly) {
  std::string path = write("m", ".x: 1\n\n.\n..\na\n");
  EXPECT_EQ(load(path).messages()[0].header, "..x: 1\r\n");
  EXPECT_EQ(load(path).messages()[0].body, "..\r\n...\r\na\r\n");
  EXPECT_EQ(load(path, false).messages()[0].body, ".\r\n..\r\na\r\n");
  EXPECT_EQ(load(path).messages()[0].body_size, 10u);
}

TEST_F(CorpusTest, WhatCannotBeSentIsLeftOutAndCounted) {
  write("a", "Subject: a\n\nbare\rreturn\n");
  write("b", std::string("Subject: b\n\nnul\0\n", 16));
  write("c", "Subject: c\n\n" + std::string(999, 'x') + "\n");
  write("d", "Subject: d\n\nna\xc3\xafve\n");
  Corpus corpus = load(directory_);
  ASSERT_EQ(corpus.messages().size(), 2u);
  EXPECT_FALSE(corpus.messages()[0].eight_bit);
  EXPECT_TRUE(corpus.messages()[1].eight_bit);
  EXPECT_NE(corpus.summary().find("2 messages with NUL or a bare CR"), std::string::npos) << corpus.summary();
  EXPECT_NE(corpus.summary().find("1 messages with lines of more than 998"), std::string::npos)
      << corpus.summary();
}

TEST_F(CorpusTest, NothingToSendIsAnError) {
  EXPECT_FALSE(Corpus::load(directory_, true));
  EXPECT_FALSE(Corpus::load(directory_ + "/missing", true));
  EXPECT_FALSE(Corpus::load(write("empty", ""), true));
}

// A message of the factory, as a server stores it, is whole for the verification.
TEST_F(CorpusTest, WhatTheFactoryMakesIsWholeForTheVerification) {
  Corpus corpus = load(
      write("m", "From: me\nTo: you,\n her\nMessage-ID: <old@x>\nX-Mailbench-Id: forged\n\n.dot\nend"),
      false);
  Users users = Users::from_format("u%u@d", 1, 3).value();
  TextBlock block(1, false);
  MessageFactory factory({.run = "r", .from = "s@t", .dot_stuffed = false, .corpus = &corpus}, users, block);
  Message message;
  factory.make(7, message);
  std::string text = message.head;
  for (std::string_view piece : message.middle) text += piece;
  text += message.tail;
  EXPECT_EQ(text.size(), message.size);
  StoredMessage stored = parse_stored(text);
  EXPECT_EQ(stored.id, "r-7");
  EXPECT_EQ(stored.fields[3], "<r-7@mailbench.invalid>");
  Hasher128 hasher;
  EXPECT_EQ(find_damage(stored, message.digest, true, hasher), "");
}

}  // namespace
}  // namespace twinloft::mailbench
