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

Status Session::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    TL_TRY_ASSIGN(bool whole, parser_.feed(bytes));
    if (whole) TL_TRY(on_reply(parser_.reply()));
  }
  return {};
}

Status Session::on_reply(const Reply& reply) {
  switch (phase_) {
    case Phase::greeting:
      if (!is_success(reply.code))
        return fail(Errc::unavailable, "the server's greeting is {} {}", reply.code, reply.lines[0]);
      output_ += fmt::format("LHLO {}\r\n", settings_.lhlo);
      phase_ = Phase::lhlo;
      return {};
    case Phase::lhlo:
      return on_lhlo(reply);
    case Phase::envelope:
      return on_envelope(reply);
    case Phase::replies:
      return on_final(reply.code);
    case Phase::quitting:
      phase_ = Phase::ended;
      return {};
    case Phase::ready:
    case Phase::content:
    case Phase::ended:
      break;
  }
  if (reply.code == 421)
    return fail(Errc::unavailable, "the server closes the connection: 421 {}", reply.lines[0]);
  return fail(Errc::conflict, "the server sent a reply too many: {} {}", reply.code, reply.lines[0]);
}

Status Session::on_lhlo(const Reply& reply) {
  if (!is_success(reply.code))
    return fail(Errc::unavailable, "the server refuses LHLO: {} {}", reply.code, reply.lines[0]);
  for (const std::string& line : reply.lines) {
    if (is_keyword(line, "PIPELINING")) pipelining_ = settings_.pipelining;
    if (is_keyword(line, "SIZE")) size_ = true;
  }
  phase_ = Phase::ready;
  return {};
}

void Session::begin(const Envelope& envelope) {
  TL_CHECK(phase_ == Phase::ready && !envelope.to.empty());
  envelope_ = envelope;
  results_.assign(envelope.to.size(), {});
  accepted_.clear();
  next_final_ = next_rcpt_ = 0;
  mail_refusal_ = 0;
  mail_accepted_ = finished_ = false;
  phase_ = Phase::envelope;
  send_mail();
  if (!pipelining_) return;
  for (std::size_t i = 0; i < envelope_.to.size(); ++i) send_rcpt(i);
  send(Step::data, "DATA\r\n");
}

void Session::send(Step step, std::string_view command) {
  expected_.push_back(step);
  output_ += command;
}
void Session::send_mail() {
  std::string size = size_ ? fmt::format(" SIZE={}", envelope_.size) : "";
  send(Step::mail, fmt::format("MAIL FROM:<{}>{}\r\n", envelope_.from, size));
}
void Session::send_rcpt(std::size_t index) {
  send(Step::rcpt, fmt::format("RCPT TO:<{}>\r\n", envelope_.to[index]));
}

Status Session::on_envelope(const Reply& reply) {
  TL_CHECK(!expected_.empty());
  Step step = expected_.front();
  expected_.pop_front();
  if (reply.code >= 300 && reply.code < 400 && !(step == Step::data && reply.code == 354))
    return fail(Errc::conflict, "the server sent {} {} where it does not belong", reply.code, reply.lines[0]);
  switch (step) {
    case Step::mail:
      mail_accepted_ = is_success(reply.code);
      if (!mail_accepted_) {
        mail_refusal_ = reply.code;
        refuse_open(reply.code);
        if (!pipelining_) finish();
      } else if (!pipelining_) {
        send_rcpt(0);
      }
      return {};
    case Step::rcpt:
      return on_rcpt(reply.code);
    case Step::data:
      return on_data(reply.code);
    case Step::rset:
      finish();
      return {};
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
  if (pipelining_) return {};
  if (next_rcpt_ < envelope_.to.size())
    send_rcpt(next_rcpt_);
  else if (!accepted_.empty())
    send(Step::data, "DATA\r\n");
  else
    send(Step::rset, "RSET\r\n");
  return {};
}

Status Session::on_data(int code) {
  if (code == 354) {
    // RFC 2033 section 4.2 requires 503 here. The effect of content without recipients is undefined.
    if (accepted_.empty())
      return fail(Errc::conflict, "the server wants content though it refused all recipients");
    phase_ = Phase::content;
    return {};
  }
  if (is_success(code)) return fail(Errc::conflict, "the server answered DATA with {}", code);
  for (std::size_t index : accepted_) results_[index] = result_of(code);
  accepted_.clear();
  if (mail_accepted_)
    send(Step::rset, "RSET\r\n");
  else
    finish();
  return {};
}

void Session::content_sent() {
  TL_CHECK(phase_ == Phase::content);
  phase_ = Phase::replies;
}

Status Session::on_final(int code) {
  if (code >= 300 && code < 400) return fail(Errc::conflict, "the server answered the message with {}", code);
  results_[accepted_[next_final_++]] = result_of(code);
  if (next_final_ == accepted_.size()) finish();
  return {};
}

void Session::refuse_open(int code) {
  for (RecipientResult& result : results_)
    if (result.code == 0) result = result_of(code);
}

void Session::finish() {
  finished_ = true;
  phase_ = Phase::ready;
}

std::span<const RecipientResult> Session::take_results() {
  TL_CHECK(finished_);
  finished_ = false;
  return results_;
}

std::span<const RecipientResult> Session::abandon() {
  bool sent = phase_ == Phase::replies;
  phase_ = Phase::ended;
  finished_ = false;
  for (RecipientResult& result : results_)
    if (result.code == 0) result.outcome = sent ? Outcome::unknown : Outcome::unsent;
  return results_;
}

void Session::quit() {
  TL_CHECK(phase_ == Phase::ready);
  output_ += "QUIT\r\n";
  phase_ = Phase::quitting;
}

}  // namespace twinloft::mailbench
