// Random dialogues in random pieces, with answers at random times. Replies and deliveries must not depend on
// pieces and times.
#include "twinloft/base/random.h"
#include "owner.h"

namespace twinloft::lmtpd::test {
namespace {

constexpr std::uint64_t message_bytes_max = 60;

std::string random_line(SeededRandom& random) {
  static const std::vector<std::string> lines = {"LHLO c.example.org",
                                                 "MAIL FROM:<a@d>",
                                                 "MAIL FROM:<>",
                                                 "MAIL FROM:<a@d> SIZE=61",
                                                 "MAIL FROM:<a@d",
                                                 "RCPT TO:<b@d>",
                                                 "RCPT TO:<roomy+x@d>",
                                                 "RCPT TO:<nobody@d>",
                                                 "RCPT TO:<broken@d>",
                                                 "RCPT TO:<;@d>",
                                                 "RSET",
                                                 "NOOP",
                                                 "VRFY x",
                                                 "HELP",
                                                 "X"};
  return lines[random.below(lines.size())] + (random.below(30) ? "\r\n" : "\n");
}

// Content with its end, of a size around the limit. It contains sequences that must not end it early.
std::string random_content(SeededRandom& random) {
  static const std::vector<std::string> pieces = {"text",    "\r\n",   "\r\n..", "\n.\n",
                                                  "\n.\r\n", "\r\n.x", "\r",     "RSET\r\n"};
  std::string out;
  for (std::uint64_t n = random.below(24); n > 0; --n) out += pieces[random.below(pieces.size())];
  return out + "\r\n.\r\n";
}

// The same content in chunks, with commands in between. Sometimes the transaction is reset before its end.
std::string random_chunks(SeededRandom& random) {
  std::string content = random_content(random), out;
  for (std::size_t at = 0; at < content.size();) {
    std::string chunk = content.substr(at, random.below(25));
    at += chunk.size();
    out += "BDAT " + std::to_string(chunk.size()) + "\r\n" + chunk;
    if (random.below(8) == 0) out += random_line(random);
  }
  return out + (random.below(10) ? "BDAT 0 LAST\r\n" : "RSET\r\n");
}

// Mostly whole transactions, to reach all states. DATA is used only if its content follows in every case.
std::string random_dialogue(SeededRandom& random) {
  std::string out = "LHLO c\r\n";
  for (std::uint64_t n = 1 + random.below(5); n > 0; --n) {
    for (std::uint64_t i = random.below(4); i > 0; --i) out += random_line(random);
    out += "RSET\r\nMAIL FROM:<a@d>\r\nRCPT TO:<first@d>\r\n";
    for (std::uint64_t i = random.below(4); i > 0; --i)
      out += random.below(3) ? "RCPT TO:<b@d>\r\n" : "RCPT TO:<nobody@d>\r\n";
    if (random.below(2))
      out += "DATA\r\n" + random_content(random);
    else
      out += random_chunks(random);
  }
  return out + (random.below(2) ? "QUIT\r\nNOOP\r\n" : "");
}

SessionConfig config() {
  SessionConfig out;
  out.message_bytes_max = message_bytes_max;
  out.recipients_max = 3;
  out.bad_commands_max = 12;
  return out;
}

// Answers one pending question, if there is one: the oldest look-up, or a random recipient.
class Answers {
 public:
  Answers(Owner& owner, SeededRandom& random) : owner_(owner), random_(random) {}
  bool one() {
    if (!owner_.lookups.empty()) {
      owner_.answer_lookup();
      return true;
    }
    if (!owner_.mailboxes.empty()) {
      owner_.answer_mailbox();
      return true;
    }
    if (seen_ < owner_.messages.size()) {
      for (std::size_t i = 0; i < owner_.messages[seen_].envelope->recipients.size(); ++i) open_.push_back(i);
      ++seen_;
    }
    if (open_.empty()) return false;
    std::size_t at = random_.below(open_.size());
    std::size_t recipient = open_[at];
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(at));
    owner_.finish(recipient, owner_.deliver(owner_.messages[seen_ - 1].envelope->recipients[recipient]));
    return true;
  }

 private:
  Owner& owner_;
  SeededRandom& random_;
  std::vector<std::size_t> open_;  // unanswered recipients of the present message
  std::size_t seen_ = 0;           // number of messages so far
};

void expect_same(const Owner& a, const Owner& b) {
  EXPECT_EQ(a.sent, b.sent);
  ASSERT_EQ(a.messages.size(), b.messages.size());
  for (std::size_t i = 0; i < a.messages.size(); ++i) {
    EXPECT_EQ(a.messages[i].text, b.messages[i].text);
    EXPECT_EQ(a.messages[i].envelope->id, b.messages[i].envelope->id);
    EXPECT_EQ(a.messages[i].envelope->recipients.size(), b.messages[i].envelope->recipients.size());
  }
}

TEST(Random, WhatIsSaidDoesNotDependOnPiecesNorMoments) {
  SeededRandom random(2033);
  std::size_t delivered = 0, refused = 0;
  for (int round = 0; round < 3000 && !testing::Test::HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    std::string text = random_dialogue(random);
    Owner whole(config());
    whole.whole(text);

    Owner pieces(config());
    pieces.answering = false;
    Answers answers(pieces, random);
    std::uint64_t piece_max = 1 + random.below(40);
    for (std::size_t at = 0; at < text.size();) {
      if (random.below(3) == 0 || !pieces.session().wants_input()) {
        if (!answers.one() && !pieces.session().wants_input()) break;
        continue;
      }
      std::string piece = text.substr(at, 1 + random.below(piece_max));
      at += piece.size();
      pieces.receive(piece);
    }
    while (answers.one()) {
    }
    expect_same(whole, pieces);
    delivered += whole.messages.size();
    refused += static_cast<std::size_t>(whole.aborted);
  }
  EXPECT_GT(delivered, 1000u) << "the dialogues no longer reach a delivery";
  EXPECT_GT(refused, 100u) << "the dialogues no longer reach an oversize message";
}

}  // namespace
}  // namespace twinloft::lmtpd::test
