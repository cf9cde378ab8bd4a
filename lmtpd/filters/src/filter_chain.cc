#include "filter_chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "macros.h"
#include "twinloft/base/log.h"
#include "twinloft/lmtpd/proto/error_reply.h"
#include "twinloft/lmtpd/session/actions.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t logged_max = 200;  // bytes of a filter's text

milter::Rcpt rcpt_event(const FilterRcpt& rcpt) {
  return {rcpt.recipient, rcpt.parameters, rcpt.refused};
}

std::string text_of(const Reply& reply) {
  return fmt::format("{} {} {}", reply.code, reply.enhanced, reply.text);
}

}  // namespace

FilterChain::FilterChain(FilterSet& set, MakeStoredBody make_body)
    : set_(set), make_body_(std::move(make_body)) {
  for (std::size_t i = 0; i < set.config().order.size(); ++i)
    members_.push_back(std::make_unique<Member>(set, i));
}

std::optional<FilterVerdict> FilterChain::answer_now(const FilterCommand& command) {
  if (std::visit([this](const auto& c) { return would_block(c); }, command)) return std::nullopt;
  return answer(command);
}

FilterVerdict FilterChain::answer(const FilterCommand& command) {
  return std::visit([this](const auto& c) { return on(c); }, command);
}

bool FilterChain::would_block(const FilterMail& mail) const {
  return std::ranges::any_of(members_, [&](const auto& m) { return m->would_block(mail); });
}
bool FilterChain::would_block(const FilterRcpt& rcpt) const {
  if (discarded_) return false;
  const milter::Event event = rcpt_event(rcpt);
  return std::ranges::any_of(members_, [&](const auto& m) { return m->would_block(event); });
}
bool FilterChain::would_block(const FilterData&) const {
  if (discarded_) return false;
  return std::ranges::any_of(members_, [&](const auto& m) { return m->would_block(milter::Data{}); });
}

FilterVerdict FilterChain::on(const FilterMail& mail) {
  forget();
  message_id_ = mail.envelope->id;
  macros_.clear();
  set_client_macros(macros_, set_.config().hostname, mail.client);
  set_mail_macros(macros_, *mail.envelope);
  return ask_each("MAIL", [&](Member& member) { return member.begin(mail, macros_); });
}

FilterVerdict FilterChain::on(const FilterRcpt& rcpt) {
  set_rcpt_macros(macros_, rcpt);
  return ask_each("RCPT", [&](Member& member) { return member.hear(rcpt_event(rcpt), macros_); });
}

FilterVerdict FilterChain::on(const FilterData&) {
  return ask_each("DATA", [&](Member& member) { return member.hear(milter::Data{}, macros_); });
}

template <class Ask>
FilterVerdict FilterChain::ask_each(const char* command, Ask ask) {
  for (const auto& member : members_) {
    if (discarded_) break;
    if (auto no = take(ask(*member), *member, command)) return {std::move(no->reply), no->ends_connection};
  }
  return {};
}

// The refusal, if that is the decision. at: the command, for the log.
std::optional<Refusal> FilterChain::take(Decision&& decision, const Member& member, const char* at) {
  if (std::holds_alternative<Pass>(decision)) return std::nullopt;
  Refusal* refusal = std::get_if<Refusal>(&decision);
  auto* quarantining = std::get_if<Quarantining>(&decision);
  if (quarantining && quarantined_) return std::nullopt;
  const std::string said = refusal        ? text_of(refusal->reply)
                           : quarantining ? quarantining->reason.substr(0, logged_max)
                                          : "";
  if (auto left_out = set_.decisions().admit(set_.clock().now()))
    log_line(LogLevel::info, "filter",
             {{"id", message_id_},
              {"filter", member.name()},
              {"at", at},
              {"decision", name_of(decision)},
              {"reply", said},
              {"left_out", fmt::format("{}", *left_out)}});
  if (refusal) return std::move(*refusal);
  if (quarantining && set_.config().quarantine.empty()) {
    set_.failures().put(
        LogLevel::error, set_.clock().now(),
        fmt::format("{}: filter {}: the message is deferred: filters.quarantine names no mailbox",
                    message_id_, member.name()));
    return Refusal{{451, "4.7.1", "There is no mailbox for quarantined messages"}};
  }
  if (quarantining) {
    quarantined_ = Quarantined{member.name(), std::move(quarantining->reason)};
    return std::nullopt;
  }
  forget();
  discarded_ = true;
  return std::nullopt;
}

FilteredMessage FilterChain::finish(std::shared_ptr<const Envelope> envelope,
                                    std::shared_ptr<StoredBody> body) {
  if (discarded_) return {FilteredMessage::Discarded{}};
  MessagePass message(std::move(envelope), std::move(body), set_.config(), make_body_);
  auto unkept = [&](const Error& error) -> FilteredMessage {
    set_.failures().put(
        LogLevel::error, set_.clock().now(),
        fmt::format("{}: a message is deferred behind its filters: {}", message_id_, error.message));
    return {FilteredMessage::Refused{reply_of_unkept(error)}};
  };
  if (Status loaded = message.load(); !loaded) {
    if (loaded.error().code != Errc::invalid) return unkept(loaded.error());
    forget();
    return {FilteredMessage::Refused{{552, "5.3.4", "The message header has too many lines"}}};
  }
  if (auto no = pass_through(message)) return {FilteredMessage::Refused{no->reply, no->ends_connection}};
  if (discarded_) return {FilteredMessage::Discarded{}};
  if (quarantined_) message.quarantine(quarantined_->filter, quarantined_->reason);
  auto passed = message.finish();
  if (!passed) return unkept(passed.error());
  return {std::move(*passed)};
}

// A refusal ends the message for all filters.
std::optional<Refusal> FilterChain::pass_through(MessagePass& message) {
  for (const auto& member : members_) {
    auto refusal = take(member->hear(message, macros_), *member, "end of message");
    if (refusal) forget();
    if (refusal || discarded_) return refusal;
  }
  return std::nullopt;
}

void FilterChain::forget() {
  for (const auto& member : members_) member->forget();
  discarded_ = false;
  quarantined_.reset();
}

void FilterChain::give_up() {
  for (const auto& member : members_) member->give_up();
}

}  // namespace twinloft::lmtpd
