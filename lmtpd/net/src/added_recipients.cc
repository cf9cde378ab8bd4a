#include "added_recipients.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

// No later try of the client changes the filter's address, but the operator can: so the reply is 4xx.
Reply wrong_address() {
  return {451, "4.3.5", "A filter adds a recipient that cannot be delivered to here"};
}

std::unexpected<Reply> refuse(Hub& hub, const Envelope& envelope,
                              const FilteredMessage::AddedRecipient& added, const Reply& why) {
  hub.messages_put_off.put(
      LogLevel::error, hub.clock.now(),
      fmt::format("{}: filter {} adds the recipient {}: {} {} {}; the message is deferred", envelope.id,
                  added.filter, added.command.to.text, why.code, why.enhanced, why.text));
  return std::unexpected(why.code >= 500 ? wrong_address() : why);
}

std::expected<Recipient, Reply> find(Hub& hub, const FilteredMessage::Passed& message, const Rcpt& command) {
  const SessionConfig& session = hub.config.session;
  const RecipientRules& rules = session.recipients;
  const std::uint64_t size = message.body->body().size;
  Recipient out;
  name_recipient(command.to, rules, out);
  out.notify = command.notify;
  out.original_to = command.original_to;
  out.original_type = command.original_type;
  WayRefuses by_way;
  if (session.agent_refusal) by_way = [&] { return session.agent_refusal(*message.envelope, out); };
  JudgedUser judged = judge_user(out, hub.users.lookup(lookup_of(command.to, rules)), size, rules, by_way);
  if (const Refuse* no = std::get_if<Refuse>(&judged)) return std::unexpected(no->reply);
  if (!out.user.next_hop.empty()) return std::unexpected(wrong_address());
  if (const auto* question = std::get_if<MailboxQuestion>(&judged)) {
    MailboxState state = hub.config.mailboxes->look(question->user, question->detail, question->size);
    Verdict verdict = judge_mailbox(out, state, rules, by_way);
    if (const Refuse* no = std::get_if<Refuse>(&verdict)) return std::unexpected(no->reply);
  }
  return out;
}

}  // namespace

std::expected<std::vector<Recipient>, Reply> find_added(Hub& hub, const FilteredMessage::Passed& message) {
  const Instant begin = hub.clock.now();
  std::vector<Recipient> out;
  for (const auto& added : message.added) {
    std::expected<Recipient, Reply> found = std::unexpected(
        Reply{451, "4.3.0", "The recipient that a filter adds cannot be looked up now"});
    try {
      if (hub.clock.now() - begin <= hub.config.queue_time) found = find(hub, message, added.command);
    } catch (const std::exception& e) {
      log_error("{}: look-up of {}: unexpectedly: {}", message.envelope->id, added.command.to.text, e.what());
    }
    if (!found) return refuse(hub, *message.envelope, added, found.error());
    out.push_back(std::move(*found));
  }
  return out;
}

}  // namespace twinloft::lmtpd
