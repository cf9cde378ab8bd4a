#include "judge.h"

#include <fmt/format.h>

#include <utility>

#include "twinloft/lmtpd/config/ways.h"
#include "twinloft/lmtpd/users/users.h"

namespace twinloft::spool_milter {

using namespace lmtpd;

namespace {

constexpr std::size_t looks_max = 8;  // at mailboxes, at a time

Rules rules_of(const Config& config, std::shared_ptr<const WaysOfDelivery> ways, const Sources& sources) {
  const SpoolMilterSettings& milter = *config.spool_milter;
  Rules out{.scope = {milter.domains, milter.rcpt_mailer, milter.rcpt_host},
            .refuses_unknown = milter.refuses_unknown,
            .message_bytes_max = config.limits.message_bytes_max,
            .recipients = recipient_rules(config, std::move(ways))};
  if (sources.mailboxes)
    out.recipients.has_limits = [&mailboxes = *sources.mailboxes](const User& user) {
      return mailboxes.has_limits(user);
    };
  return out;
}

std::optional<Reply> refusal_by_way(const WaysOfDelivery& ways, const Sender& sender,
                                    const KnownRecipient& known) {
  Envelope envelope;
  envelope.from = sender.address;
  envelope.smtputf8 = sender.smtputf8;
  return ways.refusal(envelope, Recipient{known, {}, {}, {}});
}

}  // namespace

Judge::Judge(const Config& config, Sources sources, const Clock& clock)
    : sources_(std::move(sources)),
      clock_(clock),
      timeout_(config.spool_milter->timeout),
      lookups_(lookups_at_once(config.users)),
      looks_(looks_max) {
  auto ways = std::make_shared<const WaysOfDelivery>(config);
  rules_ = rules_of(config, ways, sources_);
  facts_.way_refuses = [ways](const Sender& sender, const KnownRecipient& recipient) {
    return refusal_by_way(*ways, sender, recipient);
  };
  if (!sources_.watch) return;
  facts_.spool_refuses = [this](const User& user, bool authenticated) {
    return sources_.watch->refusal(user, authenticated);
  };
  facts_.spool_waits = [this] { return sources_.watch->health().state == SpoolHealth::State::suspended; };
}

std::optional<Reply> Judge::answer(const Sender& sender, const AskedRecipient& recipient) {
  const auto until = std::chrono::steady_clock::now() + timeout_;
  Facts facts = facts_;
  facts.look_up = [this, until](const LookupRequest& request) { return look_up(request, until); };
  facts.look = [this, until](const MailboxQuestion& question) { return look(question, until); };
  return spool_milter::answer(sender, recipient, rules_, facts);
}

std::optional<LookupResult> Judge::look_up(const LookupRequest& request, TimedCalls::Until until) {
  auto found = sources_.users->lookup_now(request);
  if (!found)
    found = lookups_.call<LookupResult>(until,
                                        [users = sources_.users, request] { return users->lookup(request); });
  if (!found || !*found)
    failed_lookups_.put(LogLevel::error, clock_.now(),
                        fmt::format("look-up of {}@{}: {}", request.local_part, request.domain,
                                    found ? found->error().message : "no answer in time"));
  return found;
}

std::optional<MailboxState> Judge::look(const MailboxQuestion& question, TimedCalls::Until until) {
  if (auto known = sources_.mailboxes->look_now(question.user, question.size)) return known;
  return looks_.call<MailboxState>(until, [mailboxes = sources_.mailboxes, question] {
    return mailboxes->look(question.user, question.detail, question.size);
  });
}

}  // namespace twinloft::spool_milter
