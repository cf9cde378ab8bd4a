// The owner of a session under test. It performs the session's actions, and keeps the replies and the
// deliveries.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "twinloft/lmtpd/session/session.h"

namespace twinloft::lmtpd::test {

constexpr std::string_view opening = "LHLO c\r\nMAIL FROM:<a@d>\r\n";

struct Message {
  std::shared_ptr<const Envelope> envelope;
  std::string text;
};

struct Lookup {
  QuestionId id = 0;
  LookupRequest request;
};
struct MailboxLook {
  QuestionId id = 0;
  MailboxQuestion question;
};
struct FilterAsk {
  QuestionId id = 0;
  FilterCommand command;
};

// The actions of a session without an owner.
inline Actions take(Session& session) {
  Actions actions;
  session.take_actions(actions);
  return actions;
}
inline std::string sent_by(const Actions& actions) {
  std::string out;
  for (const Action& action : actions)
    if (const auto* send = std::get_if<SendBytes>(&action)) out += send->bytes;
  return out;
}
// The first action of this kind, or null.
template <class Kind>
const Kind* find(const Actions& actions) {
  for (const Action& action : actions)
    if (const auto* found = std::get_if<Kind>(&action)) return found;
  return nullptr;
}

class Owner {
 public:
  explicit Owner(SessionConfig config = {}, Client client = {"192.0.2.7"}) : config_(std::move(config)) {
    if (config_.hostname.empty()) config_.hostname = "mx.example.org";
    config_.new_id = [this] { return "id" + std::to_string(++ids_); };
    config_.recipients.has_limits = [](const User& user) {
      return has(user, "over") || has(user, "away") || has(user, "roomy");
    };
    session_ = std::make_unique<Session>(config_);
    session_->start(std::move(client));
    carry_out();
  }

  // While `answering` is false, questions wait in `lookups` and `messages` until the test answers.
  bool answering = true;
  std::deque<Lookup> lookups;
  std::vector<LookupRequest> all_lookups;
  std::deque<MailboxLook> mailboxes;  // the same for these
  std::vector<MailboxQuestion> all_mailboxes;
  std::deque<FilterAsk> filter_asks;  // the same for these
  std::vector<FilterCommand> all_filter_asks;
  int forgotten = 0;  // transactions
  std::function<FilterVerdict(const FilterCommand&)> filter = [](const FilterCommand&) {
    return FilterVerdict{};
  };
  std::vector<Message> messages;  // handed over for delivery
  std::string sent;
  std::vector<Refused> refused;
  int aborted = 0;
  int handshakes = 0;
  std::vector<std::uint64_t> size_hints;
  // The delivery's replies, by recipient as the client wrote it. Other recipients get 250.
  std::function<Reply(const Recipient&)> deliver = [](const Recipient& r) {
    return Reply{250, "2.0.0", "<" + r.text + "> delivered"};
  };

  Session& session() { return *session_; }

  void receive(std::string_view bytes) {
    ASSERT_TRUE(session_->closed() || session_->wants_input()) << "the session wanted no more input";
    session_->receive(as_bytes(bytes));
    carry_out();
  }
  void whole(std::string_view text) { receive(text); }
  void trickle(std::string_view text) {
    for (char c : text) receive(std::string(1, c));
  }

  void answer_lookup() {
    ASSERT_FALSE(lookups.empty());
    answer_first_lookup();
    carry_out();
  }
  void answer_mailbox() {
    ASSERT_FALSE(mailboxes.empty());
    answer_first_mailbox();
    carry_out();
  }
  void answer_filter() {
    ASSERT_FALSE(filter_asks.empty());
    answer_first_filter();
    carry_out();
  }
  void finish(std::size_t recipient, const Reply& reply) {
    session_->delivery_done(recipient, reply);
    carry_out();
  }
  void start_tls() {
    session_->tls_started("TLSv1.3 with cipher TEST");
    carry_out();
  }
  void idle_timeout() {
    session_->idle_timeout();
    carry_out();
  }
  void shutdown() {
    session_->shutdown();
    carry_out();
  }
  void drain() {
    session_->drain();
    carry_out();
  }
  void abort() {
    session_->abort();
    carry_out();
  }
  // The owner cannot keep the message that is arriving.
  void lose_body() {
    session_->body_failed({452, "4.3.1", "No room"});
    carry_out();
  }

  // Performs all actions that the session has requested so far, in order.
  void carry_out() {
    for (;;) {
      session_->take_actions(actions_);
      std::shared_ptr<const Envelope> to_deliver;
      for (Action& action : actions_) {
        EXPECT_TRUE(!to_deliver) << "no action may follow a message for delivery";
        std::visit(Visitor{[&](SendBytes& send) {
                             EXPECT_FALSE(send.bytes.empty());
                             sent += send.bytes;
                           },
                           [&](Refused& r) { refused.push_back(std::move(r)); },
                           [&](const BeginBody& begin) {
                             EXPECT_FALSE(receiving_) << "a message begins within another";
                             receiving_ = true;
                             body_.clear();
                             size_hints.push_back(begin.size_hint);
                           },
                           [&](const BodyBytes& body) {
                             EXPECT_TRUE(receiving_ && !body.pieces.empty());
                             for (ByteSpan piece : body.pieces) body_ += as_text(piece);
                           },
                           [&](AbortBody) {
                             receiving_ = false;
                             ++aborted;
                             body_.clear();
                           },
                           [&](Ask& ask) {
                             std::visit([&](auto& question) { keep(ask.id, question); }, ask.question);
                           },
                           [&](Deliver& whole) {
                             EXPECT_TRUE(std::exchange(receiving_, false));
                             to_deliver = whole.envelope;
                             messages.push_back({std::move(whole.envelope), std::exchange(body_, {})});
                           },
                           [&](ForgetTransaction) { ++forgotten; }, [&](BeginTls) { ++handshakes; },
                           [&](Close) { EXPECT_TRUE(session_->closed()); }},
                   action);
      }
      if (session_->holds_back())
        session_->replies_sent();
      else if (!answering || (!to_deliver && lookups.empty() && mailboxes.empty() && filter_asks.empty()))
        return;
      else
        answer(to_deliver);
    }
  }

  // Replies without texts, such as "250 2.1.0". The lines of one reply are joined with a comma.
  std::vector<std::string> codes() const {
    std::vector<std::string> out;
    std::string pending;
    std::size_t at = 0;
    for (std::size_t end; (end = sent.find("\r\n", at)) != std::string::npos; at = end + 2) {
      std::string line = sent.substr(at, end - at);
      EXPECT_GE(line.size(), 4u);
      EXPECT_LE(line.size(), 510u);
      for (char c : line) EXPECT_TRUE(c >= 32 && c <= 126) << line;
      bool has_enhanced = line.size() > 8 && line[3] == ' ' && line[4] == line[0] && line[5] == '.';
      pending += pending.empty() ? line.substr(0, 3) : "";
      if (line[3] == '-') continue;
      out.push_back(pending + (has_enhanced ? " " + line.substr(4, line.find(' ', 4) - 4) : ""));
      pending.clear();
    }
    EXPECT_EQ(at, sent.size()) << "output ends within a line";
    return out;
  }

 private:
  static LookupResult who(const LookupRequest& request) {
    if (request.local_part == "wrong") return fail(Errc::invalid, "the row is wrong");
    if (request.local_part == "broken") return fail(Errc::unavailable, "the database is away");
    if (request.local_part.starts_with("nobody")) return std::nullopt;
    User user;
    user.name = request.local_part + "@" + request.domain;
    user.uid = user.gid = 5000;
    if (request.local_part == "disabled") user.state = UserState::disabled;
    if (request.local_part.starts_with("stale")) user.is_old = true;
    if (request.local_part == "stale-disabled") user.state = UserState::disabled;
    if (request.local_part == "deferred") user.state = UserState::deferred;
    if (request.local_part == "alias") return Resolved{user, request.detail + "-of-alias"};
    return Resolved{user};
  }

  // For users whose mailboxes have limits.
  static bool has(const User& user, std::string_view word) {
    return user.name.find(word) != std::string::npos;
  }
  static MailboxState state_of(const User& user) {
    if (has(user, "away")) return {.spool = Error{Errc::unavailable, "the spool is not mounted", 0}};
    return {.room = has(user, "over") ? Room::full : Room::enough};
  }

  void keep(QuestionId id, LookupRequest& request) {
    all_lookups.push_back(request);
    lookups.push_back({id, std::move(request)});
  }
  void keep(QuestionId id, MailboxQuestion& question) {
    all_mailboxes.push_back(question);
    mailboxes.push_back({id, std::move(question)});
  }
  void keep(QuestionId id, FilterCommand& command) {
    all_filter_asks.push_back(command);
    filter_asks.push_back({id, std::move(command)});
  }
  void answer_first_filter() {
    FilterAsk ask = std::move(filter_asks.front());
    filter_asks.pop_front();
    session_->answer(ask.id, filter(ask.command));
  }
  void answer_first_mailbox() {
    MailboxLook look = std::move(mailboxes.front());
    mailboxes.pop_front();
    session_->answer(look.id, state_of(look.question.user));
  }

  void answer_first_lookup() {
    Lookup lookup = std::move(lookups.front());
    lookups.pop_front();
    session_->answer(lookup.id, who(lookup.request));
  }
  // Answers the last recipient first: the order of the replies must not change.
  void answer(const std::shared_ptr<const Envelope>& envelope) {
    if (!lookups.empty())
      answer_first_lookup();
    else if (!mailboxes.empty())
      answer_first_mailbox();
    else if (!filter_asks.empty())
      answer_first_filter();
    for (std::size_t i = envelope ? envelope->recipients.size() : 0; i-- > 0;)
      session_->delivery_done(i, deliver(envelope->recipients[i]));
  }

  SessionConfig config_;
  std::unique_ptr<Session> session_;
  Actions actions_;
  bool receiving_ = false;
  std::string body_;
  int ids_ = 0;
};

}  // namespace twinloft::lmtpd::test
