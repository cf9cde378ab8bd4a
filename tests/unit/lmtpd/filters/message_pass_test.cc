// What the end of the chain is: a message without a header, a body that cannot be read, many recipients.
#include "message_pass.h"

#include <gtest/gtest.h>

#include "scripted_filters.h"

namespace twinloft::lmtpd::test {
namespace {

struct MessagePassTest : testing::Test {
  MessagePassTest() { config.message_bytes_max = config.header_bytes_max = config.recipients_max = 1000; }
  FiltersConfig config;
  MakeStoredBody make = [] { return std::make_shared<FakeBody>(); };
  std::shared_ptr<Envelope> envelope = envelope_to({"u@here.example", "\"v.w\"@here.example"});

  // The message with this change.
  std::string changed(std::string_view text, milter::Change change) {
    MessagePass pass(envelope, body_of(text), config, make);
    EXPECT_TRUE(pass.load());
    auto edit = pass.begin_edit(false);
    EXPECT_TRUE(edit.take(std::move(change)));
    pass.take(std::move(edit).finish(), "f");
    auto out = pass.finish();
    EXPECT_TRUE(out);
    return out ? text_of(out->body) : "";
  }
};

TEST_F(MessagePassTest, AMessageWithoutAHeader) {
  const milter::AddHeader add{"X", "y"};
  EXPECT_EQ(changed("\r\nbody\r\n", add), "X: y\r\n\r\nbody\r\n");
  EXPECT_EQ(changed("no header\r\n", add), "X: y\r\n\r\nno header\r\n");
  EXPECT_EQ(changed("", add), "X: y\r\n\r\n");
  EXPECT_EQ(changed("A: b\r\n", add), "A: b\r\nX: y\r\n\r\n");
}

TEST_F(MessagePassTest, AnUnchangedMessageIsNotStoredAgain) {
  auto body = body_of("A: b\r\n\r\nbody\r\n", true);
  MessagePass pass(envelope, body, config, [] { return std::shared_ptr<StoredBody>(); });
  ASSERT_TRUE(pass.load());
  auto out = pass.finish();
  ASSERT_TRUE(out);
  EXPECT_EQ(out->body, body);
  EXPECT_EQ(out->envelope, envelope);
}

// A file that became shorter must not become a shorter message.
TEST_F(MessagePassTest, AFileThatBecameShorterIsAnError) {
  auto body = body_of("A: b\r\n\r\n" + std::string(100, 'x'), true);
  MessagePass pass(envelope, body, config, make);
  ASSERT_TRUE(pass.load());
  ASSERT_EQ(::ftruncate(body->body().file.get(), 50), 0);
  auto read = pass.for_each_part([](std::string_view) { return milter::Verdict(milter::Continue{}); });
  EXPECT_FALSE(read);
}

TEST_F(MessagePassTest, AQuotedRecipientIsFoundByItsMailbox) {
  MessagePass pass(envelope, body_of(""), config, make);
  ASSERT_TRUE(pass.load());
  auto edit = pass.begin_edit(false);
  ASSERT_TRUE(edit.take(milter::RemoveRecipient{"<v.w@HERE.example>"}));
  pass.take(std::move(edit).finish(), "f");
  EXPECT_EQ(pass.finish()->removed, (std::vector<bool>{false, true}));
}

// A delivery would refuse the file that the file system has changed. So does a change of the message.
TEST_F(MessagePassTest, AFileThatDiffersFromWhatWasWrittenIsAnError) {
  auto body = body_of("A: b\r\n\r\n" + std::string(100, 'x'), true);
  body->set_checksum();
  for (bool damaged : {false, true}) {
    if (damaged) {
      ASSERT_EQ(::pwrite(body->body().file.get(), "y", 1, 50), 1);
    }
    MessagePass pass(envelope, body, config, make);
    ASSERT_TRUE(pass.load());
    auto edit = pass.begin_edit(false);
    ASSERT_TRUE(edit.take(milter::AddHeader{"X", "y"}));
    pass.take(std::move(edit).finish(), "f");
    EXPECT_EQ(pass.finish().has_value(), !damaged);
  }
}

TEST_F(MessagePassTest, AQuarantinedMessageNamesAHundredRecipients) {
  config.quarantine = "bad@here.example";
  while (envelope->recipients.size() < 150) envelope->recipients.push_back(envelope->recipients[0]);
  MessagePass pass(envelope, body_of("\r\n"), config, make);
  ASSERT_TRUE(pass.load());
  pass.quarantine("f", "why");
  auto out = pass.finish();
  ASSERT_TRUE(out);
  EXPECT_TRUE(out->quarantined);
  EXPECT_TRUE(text_of(out->body).ends_with(">,\r\n and 50 more\r\n\r\n"));
}

}  // namespace
}  // namespace twinloft::lmtpd::test
