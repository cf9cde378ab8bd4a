#include "twinloft/lmtpd/milter/message_edit.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd::milter {
namespace {

struct MessageEditTest : testing::Test {
  struct Sink final : BodySink {
    explicit Sink(MessageEditTest& the_test) : test(the_test) {}
    Status append(std::string_view bytes) override {
      if (test.disk_is_full) return fail(Errc::io, "the disk is full");
      test.body += bytes;
      return {};
    }
    MessageEditTest& test;
  };

  MessageEdit edit{MessageHeader::parse("A: b\r\n\r\n"),
                   false,
                   {.message_bytes_max = 1000, .header_bytes_max = 100, .recipients_max = 2},
                   [this] { return std::make_unique<Sink>(*this); }};
  std::string body;
  bool disk_is_full = false;

  void take(Change change) {
    auto taken = edit.take(std::move(change));
    EXPECT_TRUE(taken) << taken.error().message;
  }
  std::string error(Change change) {
    auto taken = edit.take(std::move(change));
    EXPECT_FALSE(taken);
    return taken ? "" : taken.error().message;
  }
  MessageEdit::Edited finished() { return std::move(edit).finish(); }
};

TEST_F(MessageEditTest, NothingChangesWithoutAChange) {
  auto edited = finished();
  EXPECT_FALSE(edited.changes_content() || edited.sender || edited.quarantine);
  EXPECT_TRUE(edited.added.empty() && edited.removed.empty());
}

TEST_F(MessageEditTest, EveryKindOfChange) {
  take(AddHeader{"X", "1"});
  take(InsertHeader{0, "Y", "2"});
  take(ChangeHeader{1, "a", ""});
  take(ReplaceBody{"new "});
  take(ReplaceBody{"body\r\n"});
  take(ChangeSender{"<>", "ENVID=1"});
  take(AddRecipient{"<c@d.example>", "NOTIFY=NEVER"});
  take(RemoveRecipient{"e@f.example"});
  take(Quarantine{"spam"});
  auto edited = finished();
  EXPECT_EQ(edited.header.text(), "Y: 2\r\nX: 1\r\n\r\n");
  EXPECT_EQ(edited.header.bytes(), 12u);
  EXPECT_EQ(body, "new body\r\n");
  EXPECT_EQ(edited.body_bytes, 10u);
  EXPECT_TRUE(edited.changes_content());
  ASSERT_TRUE(edited.sender);
  EXPECT_TRUE(edited.sender->path.is_null());
  EXPECT_EQ(edited.sender->parameters, "ENVID=1");
  ASSERT_EQ(edited.added.size(), 1u);
  EXPECT_EQ(edited.added[0].path.text, "c@d.example");
  EXPECT_EQ(edited.added[0].parameters, "NOTIFY=NEVER");
  ASSERT_EQ(edited.removed.size(), 1u);
  EXPECT_EQ(edited.removed[0].text, "e@f.example");
  EXPECT_EQ(edited.quarantine, "spam");
}

TEST_F(MessageEditTest, TheLastChangeOfARecipientCounts) {
  take(AddRecipient{"a@b.example", ""});
  take(RemoveRecipient{"<a@B.example>"});
  take(RemoveRecipient{"<a@b.example>"});
  take(RemoveRecipient{"<c@d.example>"});
  take(AddRecipient{"c@d.example", ""});
  auto edited = finished();
  ASSERT_EQ(edited.added.size(), 1u);
  EXPECT_EQ(edited.added[0].path.text, "c@d.example");
  ASSERT_EQ(edited.removed.size(), 1u);
  EXPECT_EQ(edited.removed[0].local_part, "a");
}

TEST_F(MessageEditTest, WhatIsNoAddressIsRefused) {
  EXPECT_TRUE(error(AddRecipient{"<a@b.example", ""}).starts_with("\"<a@b.example\" is not an address: "));
  EXPECT_EQ(error(AddRecipient{"<a@b.example> x", ""}), "\"<a@b.example> x\" is not an address");
  EXPECT_EQ(error(AddRecipient{"<>", ""}), "a recipient without an address");
  EXPECT_EQ(error(RemoveRecipient{""}), "a recipient without an address");
}

TEST_F(MessageEditTest, Limits) {
  EXPECT_EQ(error(AddHeader{"X", std::string(100, 'x')}),
            "the filter makes the header longer than 100 bytes");
}
TEST_F(MessageEditTest, LimitsOfTheBody) {
  take(ReplaceBody{std::string(900, 'b')});
  EXPECT_EQ(error(ReplaceBody{std::string(95, 'b')}), "the filter makes the message longer than 1000 bytes");
  EXPECT_EQ(body.size(), 900u) << "what is too much is not stored";
}
TEST_F(MessageEditTest, LimitsOfRecipients) {
  for (std::string name : {"a", "b"}) {
    take(AddRecipient{name + "@x.example", ""});
    take(RemoveRecipient{name + "@y.example"});
  }
  EXPECT_EQ(error(AddRecipient{"c@x.example", ""}), "the filter adds more than 2 recipients");
  EXPECT_EQ(error(RemoveRecipient{"c@y.example"}), "the filter removes more than 2 recipients");
}
TEST_F(MessageEditTest, LimitsOfChanges) {
  for (std::size_t i = 0; i < changes_max; ++i) take(Quarantine{"spam"});
  EXPECT_EQ(error(Quarantine{"spam"}), "the filter makes more than 10000 changes");
}

TEST_F(MessageEditTest, AFullDiskIsAnError) {
  disk_is_full = true;
  EXPECT_EQ(error(ReplaceBody{"b"}), "the disk is full");
}

TEST(SameMailbox, LocalPartsAreExactAndDomainsAreNot) {
  auto path = [](std::string_view text) { return parse_address(text).value(); };
  EXPECT_TRUE(same_mailbox(path("a@b.example"), path("a@B.EXAMPLE")));
  EXPECT_FALSE(same_mailbox(path("a@b.example"), path("A@b.example")));
  EXPECT_FALSE(same_mailbox(path("a@b.example"), path("a@c.example")));
  EXPECT_TRUE(same_mailbox(path("\"a\"@b.example"), path("a@b.example"))) << "quotes are no part of it";
}

}  // namespace
}  // namespace twinloft::lmtpd::milter
