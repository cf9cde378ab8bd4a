#include "twinloft/mailbench/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "twinloft/base/check.h"

namespace twinloft::mailbench {

namespace {

bool is_success(int code) {
  return code >= 200 && code < 300;
}

RecipientResult result_of(int code) {
  if (is_success(code)) return {Outcome::acknowledged, code};
  return {code < 500 ? Outcome::deferred : Outcome::refused, code};
}

bool is_keyword(std::string_view line, std::string_view keyword) {
  std::string_view word = line.substr(0, line.find(' '));
  return std::ranges::equal(word, keyword,
                            [](unsigned char a, unsigned char b) { return std::toupper(a) == b; });
}

}  // namespace

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::connect:
      return "connect";
    case Phase::starttls:
      return "starttls";
    case Phase::hello:
      return "hello";
    case Phase::mail:
      return "mail";
    case Phase::rcpt:
      return "rcpt";
    case Phase::data:
      return "data";
    case Phase::message:
      return "message";
  }
  return "?";
}

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::acknowledged:
      return "acknowledged";
    case Outcome::deferred:
      return "deferred";
    case Outcome::refused:
      return "refused";
    case Outcome::unknown:
      return "unknown";
    case Outcome::unsent:
      return "unsent";
  }
  return "?";
}

Status Session::feed(std::string_view bytes, Instant now) {
  now_ = now;
  while (!bytes.empty()) {
    TL_TRY_ASSIGN(bool whole, parser_.feed(bytes));
    if (whole) TL_TRY(on_reply(parser_.reply()));
    // RFC 3207 section 5: such bytes may come from another sender than those inside of TLS.
    if (state_ == State::handshake && !bytes.empty())
      return fail(Errc::corrupt, "the server sent {} bytes in clear text after its reply to STARTTLS",
                  bytes.size());
  }
  return {};
}

Status Session::on_reply(const Reply& reply) {
  switch (state_) {
    case State::greeting:
      record(Phase::connect, since_, is_success(reply.code));
      if (!is_success(reply.code))
        return fail(Errc::unavailable, "the server's greeting is {} {}", reply.code, reply.lines[0]);
      say_hello(settings_.protocol == Protocol::lmtp ? "LHLO" : "EHLO");
      return {};
    case State::hello:
      return on_hello(reply);
    case State::starttls:
      return on_starttls(reply);
    case State::envelope:
      return on_envelope(reply);
    case State::content:
      if (chunks_open_ > 0) return on_chunk(reply.code);
      break;
    case State::replies:
      return chunks_open_ > 0 ? on_chunk(reply.code) : on_final(reply.code);
    case State::quitting:
      state_ = State::ended;
      return {};
    case State::handshake:
    case State::ready:
    case State::ended:
      break;
  }
  if (reply.code == 421)
    return fail(Errc::unavailable, "the server closes the connection: 421 {}", reply.lines[0]);
  return fail(Errc::conflict, "the server sent a reply too many: {} {}", reply.code, reply.lines[0]);
}

void Session::say_hello(std::string_view verb) {
  output_ += fmt::format("{} {}\r\n", verb, settings_.hello);
  since_ = now_;
  state_ = State::hello;
}

Status Session::on_hello(const Reply& reply) {
  // RFC 5321 section 4.1.4: a server without extensions may know HELO only.
  if (settings_.protocol == Protocol::smtp && reply.code >= 500 && !tried_helo_ && !secured_) {
    tried_helo_ = true;
    say_hello("HELO");
    return {};
  }
  record(Phase::hello, since_, is_success(reply.code));
  if (!is_success(reply.code))
    return fail(Errc::unavailable, "the server refuses {}: {} {}",
                settings_.protocol == Protocol::lmtp ? "LHLO" : "EHLO", reply.code, reply.lines[0]);
  return take_offer(reply);
}

Status Session::take_offer(const Reply& reply) {
  pipelining_ = size_ = eight_bit_ = offers_starttls_ = offers_chunking_ = false;
  for (const std::string& line : reply.lines) {
    if (is_keyword(line, "PIPELINING")) pipelining_ = settings_.pipelining;
    if (is_keyword(line, "SIZE")) size_ = true;
    if (is_keyword(line, "8BITMIME")) eight_bit_ = true;
    if (is_keyword(line, "STARTTLS")) offers_starttls_ = true;
    if (is_keyword(line, "CHUNKING")) offers_chunking_ = true;
  }
  if (settings_.starttls && !secured_) {
    if (!offers_starttls_) return fail(Errc::invalid, "the server does not offer STARTTLS");
    output_ += "STARTTLS\r\n";
    since_ = now_;
    state_ = State::starttls;
    return {};
  }
  if (settings_.chunking && !offers_chunking_)
    return fail(Errc::invalid, "the server does not offer CHUNKING, which BDAT needs");
  state_ = State::ready;
  return {};
}

Status Session::on_starttls(const Reply& reply) {
  if (!is_success(reply.code)) {
    record(Phase::starttls, since_, false);
    return fail(Errc::unavailable, "the server refuses STARTTLS: {} {}", reply.code, reply.lines[0]);
  }
  state_ = State::handshake;
  return {};
}

void Session::secured(Instant now) {
  TL_CHECK(state_ == State::handshake);
  now_ = now;
  secured_ = true;
  record(Phase::starttls, since_, true);
  say_hello(settings_.protocol == Protocol::lmtp ? "LHLO" : "EHLO");
}

void Session::handshake_failed(Instant now) {
  now_ = now;
  record(Phase::starttls, since_, false);
}

void Session::begin(const Envelope& envelope, Instant now) {
  TL_CHECK(state_ == State::ready && !envelope.to.empty() && envelope.chunks > 0);
  now_ = now;
  envelope_ = envelope;
  results_.assign(envelope.to.size(), {});
  accepted_.clear();
  next_final_ = next_rcpt_ = 0;
  chunks_open_ = 0;
  mail_refusal_ = 0;
  mail_accepted_ = finished_ = false;
  state_ = State::envelope;
  send_mail();
  if (!pipelining_) return;
  for (std::size_t i = 0; i < envelope_.to.size(); ++i) send_rcpt(i);
  if (!settings_.chunking) send(Step::data, "DATA\r\n");
}

void Session::send(Step step, std::string_view command) {
  expected_.push_back({step, now_});
  output_ += command;
}
void Session::send_mail() {
  std::string size = size_ ? fmt::format(" SIZE={}", envelope_.size) : "";
  send(Step::mail, fmt::format("MAIL FROM:<{}>{}{}\r\n", envelope_.from, size,
                               eight_bit_ && envelope_.eight_bit ? " BODY=8BITMIME" : ""));
}
void Session::send_rcpt(std::size_t index) {
  send(Step::rcpt, fmt::format("RCPT TO:<{}>\r\n", envelope_.to[index]));
}

Status Session::on_envelope(const Reply& reply) {
  TL_CHECK(!expected_.empty());
  auto [step, at] = expected_.front();
  expected_.pop_front();
  if (reply.code >= 300 && reply.code < 400 && !(step == Step::data && reply.code == 354))
    return fail(Errc::conflict, "the server sent {} {} where it does not belong", reply.code, reply.lines[0]);
  switch (step) {
    case Step::mail:
      record(Phase::mail, at, is_success(reply.code));
      return on_mail(reply.code);
    case Step::rcpt:
      record(Phase::rcpt, at, is_success(reply.code));
      return on_rcpt(reply.code);
    case Step::data:
      record(Phase::data, at, reply.code == 354);
      return on_data(reply.code);
    case Step::rset:
      finish();
      return {};
  }
  return {};
}

Status Session::on_mail(int code) {
  mail_accepted_ = is_success(code);
  if (!mail_accepted_) {
    mail_refusal_ = code;
    refuse_open(code);
    if (!pipelining_) finish();
  } else if (!pipelining_) {
    send_rcpt(0);
  }
  return {};
}

Status Session::on_rcpt(int code) {
  std::size_t index = next_rcpt_++;
  // After a refused MAIL, the replies to RCPT only report that no transaction exists, so the first refusal
  // counts.
  if (mail_refusal_ == 0) {
    if (is_success(code))
      accepted_.push_back(index);
    else
      results_[index] = result_of(code);
  }
  if (next_rcpt_ < envelope_.to.size()) {
    if (!pipelining_) send_rcpt(next_rcpt_);
    return {};
  }
  if (settings_.chunking || !pipelining_) after_recipients();
  return {};
}

// No command is in flight: all replies to the envelope are there.
void Session::after_recipients() {
  if (accepted_.empty()) return end_transaction();
  if (!settings_.chunking) return send(Step::data, "DATA\r\n");
  chunks_open_ = envelope_.chunks - 1;
  since_ = now_;
  state_ = State::content;
}

Status Session::on_data(int code) {
  if (code == 354) {
    // RFC 2033 section 4.2 requires 503 here. The effect of content without recipients is undefined.
    if (accepted_.empty())
      return fail(Errc::conflict, "the server wants content though it refused all recipients");
    state_ = State::content;
    return {};
  }
  if (is_success(code)) return fail(Errc::conflict, "the server answered DATA with {}", code);
  for (std::size_t index : accepted_) results_[index] = result_of(code);
  accepted_.clear();
  end_transaction();
  return {};
}

void Session::content_sent(Instant now) {
  TL_CHECK(state_ == State::content);
  since_ = now;
  state_ = State::replies;
}

// The reply to a chunk before the last. After a refusal the connection ends: servers differ in the number of
// replies to the last chunk.
Status Session::on_chunk(int code) {
  if (code >= 300 && code < 400) return fail(Errc::conflict, "the server answered BDAT with {}", code);
  --chunks_open_;
  if (is_success(code)) return {};
  for (std::size_t index : accepted_) results_[index] = result_of(code);
  record(Phase::message, since_, false);
  return fail(Errc::unavailable, "the server refused a chunk: {}", code);
}

Status Session::on_final(int code) {
  if (code >= 300 && code < 400) return fail(Errc::conflict, "the server answered the message with {}", code);
  bool for_all = settings_.protocol == Protocol::smtp;
  do results_[accepted_[next_final_++]] = result_of(code);
  while (for_all && next_final_ < accepted_.size());
  if (next_final_ < accepted_.size()) return {};
  record(Phase::message, since_, std::ranges::all_of(accepted_, [&](std::size_t index) {
           return results_[index].outcome == Outcome::acknowledged;
         }));
  finish();
  return {};
}

void Session::refuse_open(int code) {
  for (RecipientResult& result : results_)
    if (result.code == 0) result = result_of(code);
}

void Session::end_transaction() {
  if (mail_accepted_)
    send(Step::rset, "RSET\r\n");
  else
    finish();
}

void Session::finish() {
  finished_ = true;
  state_ = State::ready;
}

std::span<const RecipientResult> Session::take_results() {
  TL_CHECK(finished_);
  finished_ = false;
  return results_;
}

std::span<const RecipientResult> Session::abandon() {
  bool sent = state_ == State::replies;
  state_ = State::ended;
  finished_ = false;
  for (RecipientResult& result : results_)
    if (result.code == 0) result.outcome = sent ? Outcome::unknown : Outcome::unsent;
  return results_;
}

void Session::quit() {
  TL_CHECK(state_ == State::ready);
  output_ += "QUIT\r\n";
  state_ = State::quitting;
}

std::span<const PhaseTime> Session::take_times() {
  taken_times_.clear();
  std::swap(taken_times_, times_);
  return taken_times_;
}

}  // namespace twinloft::mailbench
