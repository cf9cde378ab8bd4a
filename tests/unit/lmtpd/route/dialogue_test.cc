// The commands to a next hop, and the handling of its replies.
#include "dialogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace twinloft::lmtpd {
namespace {

class StillClock final : public Clock {
 public:
  Instant now() const override { return {}; }
  WallTime wall() const override { return {}; }
};

// Sends one reply of `input` for each command line, and the rest of `input` after a message. Then ends or
// fails as `end` says.
class Scripted final : public Stream {
 public:
  // turns: the output before each read of replies.
  Scripted(std::string input, Errc end, std::string& said, std::vector<std::string>& turns)
      : input_(std::move(input)), end_(end), said_(said), turns_(turns) {
    release_one();
  }
  void release_all() { released_ = input_.size(); }
  static inline Instant last_deadline{};  // of all operations
  Result<std::size_t> read(MutableByteSpan into, Instant deadline) override {
    last_deadline = std::max(last_deadline, deadline);
    std::size_t count = std::min(into.size(), released_ - at_);
    if (count == 0) return fail(end_, "the end");
    std::memcpy(into.data(), input_.data() + at_, count);
    at_ += count;
    has_read_ = true;
    return count;
  }
  Status write(std::string_view bytes, Instant deadline) override {
    last_deadline = std::max(last_deadline, deadline);
    said_ += bytes;
    if (std::exchange(has_read_, false) || turns_.empty()) turns_.emplace_back();
    turns_.back() += bytes;
    bool message = bytes.starts_with("BDAT") || input_.substr(0, released_).ends_with("354 go\r\n");
    if (message) released_ = input_.size();
    for (std::size_t lines = static_cast<std::size_t>(std::count(bytes.begin(), bytes.end(), '\n'));
         lines > 0; --lines)
      release_one();
    return {};
  }
  Status start_tls(const TlsClientContext&, Instant) override { return fail(Errc::denied, "no TLS here"); }
  bool has_news() override { return at_ < released_; }
  void shut() override {}

 private:
  void release_one() {
    for (bool last = false; !last && released_ < input_.size();) {
      last = input_[std::min(released_ + 3, input_.size() - 1)] != '-';
      released_ = std::min(input_.find('\n', released_), input_.size() - 1) + 1;
    }
  }
  const std::string input_;
  const Errc end_;
  std::string& said_;
  std::vector<std::string>& turns_;
  bool has_read_ = true;
  std::size_t at_ = 0, released_ = 0;
};

class DialogueTest : public testing::Test {
 protected:
  DialogueTest() {
    envelope_.from = "a@example.net";
    envelope_.client = "192.0.2.1";
    for (const char* name : {"ann", "bob"}) add(name);
    body_.memory = "Subject: x\r\n\r\n.dot\r\n";
    body_.size = body_.memory.size();
  }
  void add(const char* name) {
    Recipient r;
    r.text = r.user.name = std::string(name) + "@example.org";
    envelope_.recipients.push_back(r);
  }
  // offer: the lines of the reply to LHLO.
  void open(std::vector<std::string> offer, const std::string& then, Errc end = Errc::unavailable) {
    std::string input = "220 hop\r\n";
    offer.insert(offer.begin(), "hop");
    for (const std::string& line : offer) input += (&line == &offer.back() ? "250 " : "250-") + line + "\r\n";
    said_.clear();
    auto stream = std::make_unique<Scripted>(input + then, end, said_, turns_);
    if (eager_) stream->release_all();
    dialogue_ = std::make_unique<Dialogue>(std::move(stream), spec_, hostname_, delimiter_, clock_);
    ASSERT_TRUE(dialogue_->open(nullptr));
    EXPECT_EQ(said_, "LHLO proxy.example\r\n");
    said_.clear();
    turns_.clear();
  }
  Handed hand_over() {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < envelope_.recipients.size(); ++i) all.push_back(i);
    return dialogue_->hand_over(envelope_, all, body_, "Received: x\n");
  }
  static std::string text(const Handed& handed) {
    std::string out;
    for (const Reply& reply : handed.replies)
      out += std::to_string(reply.code) + " " + std::string(reply.enhanced) + ", ";
    return out;
  }

  const std::string hostname_ = "proxy.example", delimiter_ = "+";
  StillClock clock_;
  NextHopSpec spec_;
  Envelope envelope_;
  MessageBody body_;
  std::string said_;
  std::vector<std::string> turns_;
  bool eager_ = false;  // the hop sends all replies at once
  std::unique_ptr<Dialogue> dialogue_;
};

// The steps have limits of their own, whose sum would be longer than an MTA waits.
TEST_F(DialogueTest, ADeliveryHasOneEnd) {
  open({"PIPELINING", "XCLIENT ADDR"}, "250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n250 a\r\n250 b\r\n");
  Scripted::last_deadline = {};
  const Instant latest = clock_.now() + std::chrono::seconds(7);
  ASSERT_LT(std::chrono::seconds(7), spec_.reply_timeout);
  dialogue_->end_by(latest);
  const std::size_t all[] = {0, 1};
  Handed handed = dialogue_->hand_over(envelope_, all, body_, "Received: x\n");
  EXPECT_EQ(handed.replies.at(1).code, 250);
  EXPECT_EQ(Scripted::last_deadline, latest);
}

TEST_F(DialogueTest, WithoutExtensionsOneAfterTheOther) {
  open({}, "250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n250 2.0.0 one\r\n250 2.0.0 two\r\n");
  Handed handed = hand_over();
  EXPECT_EQ(text(handed), "250 2.0.0, 250 2.0.0, ");
  EXPECT_TRUE(handed.reusable);
  EXPECT_EQ(said_,
            "MAIL FROM:<a@example.net>\r\nRCPT TO:<ann@example.org>\r\nRCPT "
            "TO:<bob@example.org>\r\nDATA\r\nReceived: x\r\nSubject: x\r\n\r\n..dot\r\n.\r\n");
}

TEST_F(DialogueTest, OneRoundTripForAllCommandsWherePipeliningIsOffered) {
  const std::string replies = "250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n250 2.0.0 one\r\n250 2.0.0 two\r\n";
  const std::string mail = "MAIL FROM:<a@example.net>\r\n", ann = "RCPT TO:<ann@example.org>\r\n",
                    bob = "RCPT TO:<bob@example.org>\r\n";
  const std::string message = "Received: x\r\nSubject: x\r\n\r\n..dot\r\n.\r\n";
  open({"PIPELINING"}, replies);
  EXPECT_EQ(text(hand_over()), "250 2.0.0, 250 2.0.0, ");
  EXPECT_EQ(turns_, (std::vector<std::string>{mail + ann + bob, "DATA\r\n", message}))
      << "DATA only for accepted recipients";
  open({}, replies);
  EXPECT_EQ(text(hand_over()), "250 2.0.0, 250 2.0.0, ");
  EXPECT_EQ(turns_, (std::vector<std::string>{mail, ann, bob, "DATA\r\n", message}));
  open({"PIPELINING", "CHUNKING"}, "250 ok\r\n250 ok\r\n250 ok\r\n250 2.0.0 one\r\n250 2.0.0 two\r\n");
  EXPECT_EQ(text(hand_over()), "250 2.0.0, 250 2.0.0, ");
  ASSERT_EQ(turns_.size(), 2u);
  EXPECT_EQ(turns_[0], mail + ann + bob);
  EXPECT_TRUE(turns_[1].starts_with("BDAT "));
}

TEST_F(DialogueTest, WithChunkingTheMessageGoesAsItIs) {
  open({"PIPELINING", "CHUNKING", "SIZE"},
       "250 ok\r\n250 ok\r\n250 ok\r\n250 2.0.0 one\r\n452 4.2.2 full\r\n");
  EXPECT_EQ(text(hand_over()), "250 2.0.0, 452 4.2.2, ");
  EXPECT_EQ(said_,
            "MAIL FROM:<a@example.net> SIZE=33\r\nRCPT TO:<ann@example.org>\r\nRCPT "
            "TO:<bob@example.org>\r\nBDAT 33 LAST\r\nReceived: x\r\nSubject: x\r\n\r\n.dot\r\n");
}

// The sender is sent unchanged, since the MTA has accepted it. Only a non-ASCII recipient needs the missing
// extension.
TEST_F(DialogueTest, AHopWithoutSmtputf8GetsTheSenderAsItIs) {
  envelope_.smtputf8 = true;
  envelope_.from = "j\xf6rg@example.net";
  open({"PIPELINING"}, "250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n250 2.0.0 one\r\n250 2.0.0 two\r\n");
  EXPECT_EQ(text(hand_over()), "250 2.0.0, 250 2.0.0, ");
  EXPECT_TRUE(said_.starts_with("MAIL FROM:<j\xf6rg@example.net>\r\n")) << said_;
}

TEST_F(DialogueTest, ADomainBeyondAsciiGoesInALabelsWhereSmtputf8IsNotOffered) {
  envelope_.recipients[0].text = "ann@b\u00fccher.example";
  envelope_.recipients[0].domain = "xn--bcher-kva.example";
  open({"PIPELINING"}, "250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n250 2.0.0 one\r\n250 2.0.0 two\r\n");
  EXPECT_EQ(text(hand_over()), "250 2.0.0, 250 2.0.0, ");
  EXPECT_NE(said_.find("RCPT TO:<ann@xn--bcher-kva.example>\r\n"), std::string::npos) << said_;
}

TEST_F(DialogueTest, ARecipientBeyondAsciiIsRefusedWhereSmtputf8IsNotOffered) {
  envelope_.recipients[0].text = "\xc3\xa4nn@example.org";
  open({"PIPELINING"}, "250 ok\r\n250 ok\r\n354 go\r\n250 2.0.0 two\r\n");
  EXPECT_EQ(text(hand_over()), "553 5.6.7, 250 2.0.0, ");
  EXPECT_EQ(said_.find("\xc3\xa4nn"), std::string::npos) << said_;
  envelope_.recipients[1].text =
      "b\xc3\xb6"
      "b@example.org";
  open({"PIPELINING"}, "");
  Handed handed = hand_over();
  EXPECT_EQ(text(handed), "553 5.6.7, 553 5.6.7, ");
  EXPECT_TRUE(handed.reusable);
  EXPECT_FALSE(handed.untouched);
  EXPECT_EQ(said_, "");
}

TEST_F(DialogueTest, SaysSmtputf8WhereAnAddressNeedsItAndItIsOffered) {
  for (const char* from : {"a@example.net", "j\xc3\xb6rg@example.net", "j\xf6rg@example.net"}) {
    envelope_.from = from;
    open({"PIPELINING", "SMTPUTF8"},
         "250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n250 2.0.0 one\r\n250 2.0.0 two\r\n");
    EXPECT_EQ(text(hand_over()), "250 2.0.0, 250 2.0.0, ");
    bool needs_it = std::string_view(from).starts_with("j\xc3");
    EXPECT_EQ(said_.substr(0, said_.find('\r')),
              std::string("MAIL FROM:<") + from + (needs_it ? "> SMTPUTF8" : ">"));
  }
}

// The address as received may be another user there.
TEST_F(DialogueTest, ALocalHopGetsTheUsersNameOrNothing) {
  spec_.recipient = HopRecipient::user_and_original;
  envelope_.recipients[0].user.name = "\u00e4nn@example.org";
  const std::string refused = "250 ok\r\n250 ok\r\n354 go\r\n250 2.0.0 two\r\n";
  open({"PIPELINING"}, refused);
  EXPECT_EQ(text(hand_over()), "553 5.6.7, 250 2.0.0, ");
  EXPECT_EQ(said_.find("TO:<ann@"), std::string::npos) << said_;
  open({"PIPELINING", "SMTPUTF8"},
       "250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n250 2.0.0 one\r\n250 2.0.0 two\r\n");
  EXPECT_EQ(text(hand_over()), "250 2.0.0, 250 2.0.0, ");
  EXPECT_NE(said_.find("> SMTPUTF8\r\nRCPT TO:<\u00e4nn@example.org>"), std::string::npos) << said_;
  envelope_.from = "j\xf6rg@example.net";
  open({"PIPELINING", "SMTPUTF8"}, refused);
  EXPECT_EQ(text(hand_over()), "553 5.6.7, 250 2.0.0, ");
  EXPECT_EQ(said_.find("TO:<ann@"), std::string::npos) << said_;
}

TEST_F(DialogueTest, WhereAllAreRefusedNothingIsSentAndTheConnectionStays) {
  open({"PIPELINING"}, "250 ok\r\n550 5.1.1 no\r\n452 4.2.2 full\r\n250 reset\r\n");
  Handed handed = hand_over();
  EXPECT_EQ(text(handed), "550 5.1.1, 452 4.2.2, ");
  EXPECT_TRUE(handed.reusable);
  EXPECT_TRUE(said_.ends_with("RCPT TO:<bob@example.org>\r\nRSET\r\n")) << said_;
}

// One reply for each accepted recipient, in their order.
TEST_F(DialogueTest, RepliesBelongToThoseWhoWereAccepted) {
  add("cay");
  open({"PIPELINING"},
       "250 ok\r\n250 ok\r\n550 5.1.1 no\r\n250 ok\r\n354 go\r\n552 5.2.2 full\r\n250 2.0.0 three\r\n");
  EXPECT_EQ(text(hand_over()), "552 5.2.2, 550 5.1.1, 250 2.0.0, ");
}

TEST_F(DialogueTest, AnEndWithinTheRepliesIs451ForThoseWithout) {
  open({"PIPELINING"}, "250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n250 2.0.0 one\r\n250 2.0");
  Handed handed = hand_over();
  EXPECT_EQ(text(handed), "250 2.0.0, 451 4.4.2, ");
  EXPECT_FALSE(handed.reusable);
  EXPECT_FALSE(handed.untouched);
}

// Otherwise an extra reply to RCPT would be mistaken for the reply to the message.
TEST_F(DialogueTest, WhatWasSaidBeforeTheMessageIsNoReplyToIt) {
  eager_ = true;
  for (const char* offer : {"CHUNKING", "SIZE"}) {
    open({"PIPELINING", offer}, "250 ok\r\n250 ok\r\n250 ok\r\n250 one too many\r\n250 another\r\n");
    Handed handed = hand_over();
    EXPECT_EQ(text(handed), "451 4.5.0, 451 4.5.0, ") << offer;
    EXPECT_FALSE(handed.reusable);
    EXPECT_EQ(said_.find("BDAT"), std::string::npos) << said_;
    EXPECT_EQ(said_.find("DATA"), std::string::npos) << said_;
  }
}

TEST_F(DialogueTest, ManyRecipientsGoInPortions) {
  std::string replies = "250 ok\r\n";
  envelope_.recipients.clear();
  for (int i = 0; i < 300; ++i) {
    add(("u" + std::to_string(i)).c_str());
    replies += i == 250 ? "552 5.5.3 Too many recipients\r\n" : "250 ok\r\n";
  }
  for (int i = 0; i < 299; ++i) replies += "250 2.0.0 saved\r\n";
  open({"PIPELINING", "CHUNKING"}, replies);
  Handed handed = hand_over();
  ASSERT_EQ(handed.replies.size(), 300u);
  for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(handed.replies[i].code, i == 250 ? 452 : 250) << i;
}

TEST_F(DialogueTest, ANameBeyondAsciiIsNotSaidWithoutSmtputf8) {
  spec_.recipient = HopRecipient::user;
  envelope_.recipients[0].user.name = "j\xc3\xb6rg@example.org";
  open({"PIPELINING", "SMTPUTF8"},
       "250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n250 2.0.0 one\r\n250 2.0.0 two\r\n");
  EXPECT_EQ(text(hand_over()), "250 2.0.0, 250 2.0.0, ");
  EXPECT_NE(said_.find("RCPT TO:<ann@example.org>\r\n"), std::string::npos) << said_;
}

// The message is sent again over another connection only if the hop cannot have received it over the first.
TEST_F(DialogueTest, UntouchedIsAUsedConnectionThatEndsBeforeItSaysAnything) {
  std::string once = "250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n250 2.0.0 one\r\n250 2.0.0 two\r\n";
  open({"PIPELINING"}, "");
  EXPECT_FALSE(hand_over().untouched) << "the first message of a new connection";
  open({"PIPELINING"}, once);
  EXPECT_TRUE(hand_over().reusable);
  EXPECT_TRUE(hand_over().untouched) << "the connection had ended meanwhile";
  open({"PIPELINING"}, once + "421 4.3.2 idle\r\n");
  EXPECT_TRUE(hand_over().reusable);
  EXPECT_TRUE(hand_over().untouched) << "the hop has announced that it disconnects";
  open({"PIPELINING"}, once + "250 ok\r\n");
  EXPECT_TRUE(hand_over().reusable);
  EXPECT_FALSE(hand_over().untouched) << "the hop has answered MAIL";
  open({"PIPELINING"}, once, Errc::timeout);
  EXPECT_TRUE(hand_over().reusable);
  EXPECT_FALSE(hand_over().untouched) << "the connection has not ended";
  open({"CHUNKING"}, once.substr(0, 24) + "250 2.0.0 one\r\n250 2.0.0 two\r\n250 ok\r\n250 ok\r\n250 ok\r\n");
  EXPECT_TRUE(hand_over().reusable);
  EXPECT_FALSE(hand_over().untouched) << "the message was sent";
}

TEST_F(DialogueTest, SpeaksForAClientOnce) {
  spec_.xclient = true;
  open({"XCLIENT ADDR HELO", "PIPELINING"}, "220 hop\r\n250-hop\r\n250 PIPELINING\r\n");
  envelope_.lhlo = "client.example";
  EXPECT_FALSE(dialogue_->speaks_for(envelope_));
  ASSERT_TRUE(dialogue_->speak_for(envelope_));
  EXPECT_TRUE(said_.starts_with("XCLIENT ADDR=192.0.2.1 HELO=client.example\r\nLHLO ")) << said_;
  said_.clear();
  EXPECT_TRUE(dialogue_->speaks_for(envelope_));
  ASSERT_TRUE(dialogue_->speak_for(envelope_));
  EXPECT_EQ(said_, "");
  envelope_.client = "192.0.2.2";
  EXPECT_FALSE(dialogue_->speaks_for(envelope_));
}

TEST_F(DialogueTest, ARefusedXclientIsAnError) {
  spec_.xclient = true;
  open({"XCLIENT ADDR"}, "550 5.7.0 not you\r\n");
  Status spoken = dialogue_->speak_for(envelope_);
  ASSERT_FALSE(spoken);
  EXPECT_EQ(spoken.error().code, Errc::conflict);
  EXPECT_EQ(spoken.error().message, "XCLIENT was answered 550 5.7.0 not you");
}

}  // namespace
}  // namespace twinloft::lmtpd
