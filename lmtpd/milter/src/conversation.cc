#include "twinloft/lmtpd/milter/conversation.h"

#include <utility>

#include "twinloft/base/check.h"

namespace twinloft::lmtpd::milter {

namespace {

constexpr std::uint32_t version_with_quit_for_another_client = 6;

bool is_about_client(char command) {
  return command == command::connect || command == command::helo;
}

bool is_continue(const Verdict& verdict) {
  return std::holds_alternative<Continue>(verdict);
}

// These verdicts on a recipient are about the recipient alone.
bool is_about_recipient(const Verdict& verdict) {
  return std::holds_alternative<Reject>(verdict) || std::holds_alternative<Tempfail>(verdict) ||
         std::holds_alternative<FilterReply>(verdict);
}

}  // namespace

std::string Conversation::open() {
  TL_CHECK(std::holds_alternative<New>(state_));
  state_ = Negotiating{};
  return offer();
}

// The filter is not asked what it has decided already.
std::optional<Verdict> Conversation::verdict_without_asking(const Event& event) const {
  char command = command_of(event);
  if (client_verdict_)
    return std::holds_alternative<Accept>(*client_verdict_) ? Verdict(Continue{}) : *client_verdict_;
  if (message_verdict_)
    return std::holds_alternative<Accept>(*message_verdict_) ? Verdict(Continue{}) : *message_verdict_;
  if (skipped_.find(command) != std::string::npos || is_unwanted(agreement_, event)) return Continue{};
  return std::nullopt;
}

// MAIL begins a message, so nothing that was said of the last one counts.
bool Conversation::would_answer(const Event& event) const {
  if (command_of(event) == command::mail)
    return !client_verdict_ && !is_unwanted(agreement_, event) && !is_silent(agreement_, event);
  return !verdict_without_asking(event) && !is_silent(agreement_, event);
}

std::optional<Verdict> Conversation::say(const Event& event, const Macros& macros, std::string& out) {
  TL_CHECK_MSG(std::holds_alternative<Idle>(state_), "the filter is not ready for an event");
  char command = command_of(event);
  TL_CHECK_MSG(is_about_client(command) || command == command::mail ? !in_message_ : in_message_,
               "an event in the wrong place");
  if (command == command::mail) {
    in_message_ = true;
    message_verdict_.reset();
    skipped_.clear();
  }
  if (auto known = verdict_without_asking(event)) {
    if (command == command::end_of_body) abort(out);
    return known;
  }
  if (auto stage = macro_stage_of(event)) {
    const auto& chosen = agreement_.macros[static_cast<std::size_t>(*stage)];
    append_macros(out, event, chosen ? *chosen : usual_macros(*stage), macros);
  }
  append_event(out, event);
  if (!is_about_client(command)) knows_message_ = true;
  if (is_silent(agreement_, event)) return Continue{};
  state_ = Awaiting{command};
  return std::nullopt;
}

Result<Heard> Conversation::hear(const Packet& packet) {
  if (std::holds_alternative<Negotiating>(state_)) {
    auto agreed = parse_agreement(packet);
    if (!agreed) {
      state_ = Broken{};
      return std::unexpected(std::move(agreed).error());
    }
    agreement_ = std::move(*agreed);
    state_ = Idle{};
    return Ready{};
  }
  const Awaiting* awaiting = std::get_if<Awaiting>(&state_);
  if (!awaiting) {
    state_ = Broken{};
    return fail(Errc::invalid, "the filter says something that nothing asked for");
  }
  char command = awaiting->command;
  auto answer = parse_answer(packet);
  Result<Heard> heard = answer ? conclude(command, std::move(*answer))
                               : std::unexpected(std::move(answer).error());
  if (!heard) state_ = Broken{};
  return heard;
}

Result<Heard> Conversation::conclude(char command, Answer&& answer) {
  if (std::holds_alternative<Progress>(answer)) return Progress{};
  if (std::holds_alternative<Skip>(answer)) return skip(command);
  if (Change* change = std::get_if<Change>(&answer)) {
    if (command != command::end_of_body) return fail(Errc::invalid, "a change before the end of the message");
    if (!agreement_.may(rights_for(*change)))
      return fail(Errc::invalid, "a change that the filter has not announced in the negotiation");
    return std::move(*change);
  }
  Verdict verdict = std::get<Verdict>(std::move(answer));
  state_ = Idle{};
  take_verdict(command, verdict);
  return verdict;
}

Result<Heard> Conversation::skip(char command) {
  bool possible = command == command::body || command == command::header || command == command::rcpt;
  if (!possible || !agreement_.wants(wish::may_skip))
    return fail(Errc::invalid, "the filter skips what it has not announced, or cannot skip");
  skipped_ += command;
  state_ = Idle{};
  return Verdict(Continue{});
}

void Conversation::take_verdict(char command, const Verdict& verdict) {
  if (command == command::end_of_body) in_message_ = knows_message_ = false;
  if (is_continue(verdict)) return;
  if (is_about_client(command))
    client_verdict_ = verdict;
  else if (command != command::rcpt || !is_about_recipient(verdict))
    message_verdict_ = verdict;
}

bool Conversation::has_deferred_client() const {
  if (!client_verdict_) return false;
  const FilterReply* reply = std::get_if<FilterReply>(&*client_verdict_);
  return std::holds_alternative<Tempfail>(*client_verdict_) || (reply && reply->code < 500);
}

void Conversation::abort(std::string& out) {
  TL_CHECK_MSG(std::holds_alternative<Idle>(state_), "an answer is awaited");
  in_message_ = false;
  if (std::exchange(knows_message_, false)) append_packet(out, command::abort, {});
}

bool Conversation::quit_for_another_client(std::string& out) {
  TL_CHECK_MSG(std::holds_alternative<Idle>(state_) && !in_message_, "a message is not complete");
  if (agreement_.version < version_with_quit_for_another_client) return false;
  append_packet(out, command::quit_for_another_client, {});
  client_verdict_.reset();
  message_verdict_.reset();
  return true;
}

void Conversation::quit(std::string& out) {
  append_packet(out, command::quit, {});
}

}  // namespace twinloft::lmtpd::milter
