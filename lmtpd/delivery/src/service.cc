#include "twinloft/lmtpd/delivery/service.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "twinloft/base/log.h"
#include "twinloft/base/utf8.h"
#include "twinloft/lmtpd/agents/agent_refusal.h"
#include "twinloft/lmtpd/delivery/delivery_lines.h"
#include "twinloft/lmtpd/delivery/spool_mailboxes.h"
#include "twinloft/lmtpd/intake/intake.h"
#include "twinloft/lmtpd/proto/error_reply.h"
#include "twinloft/lmtpd/proto/path.h"
#include "twinloft/lmtpd/sieve/lmtp_name.h"
#include "twinloft/lmtpd/sieve/script_look.h"
#include "twinloft/lmtpd/spool/sync_group.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t links_max = 100;  // per file: each link takes descriptors until it is durable
constexpr std::string_view linked_group = "maildir, linked";  // not a possible name of a next hop

Reply not_configured() {
  return {451, "4.3.5", "The mail system is not configured for this mailbox"};
}

// The name of the agent or next hop, for the log.
std::string name_of_agent(const DeliveryConfig& config, const User& user) {
  return user.next_hop.empty() ? agent_of(config, user) : "next hop " + user.next_hop;
}

// The way of the built-in agent. intake: set if this is the log.
std::unique_ptr<Durability> way_of(const DeliveryConfig& config, FileOps& ops, SyncGroup& syncs,
                                   const Clock& clock, Intake*& intake) {
  const MaildirConfig& maildir = config.maildir;
  auto way = make_durability(maildir.durability, ops, syncs, maildir.may_write_data_first);
  if (maildir.durability != DurabilityWay::intake_log) return way;
  auto log = std::make_unique<Intake>(config.intake, std::move(way), ops, clock,
                                      maildir.may_write_data_first);
  intake = log.get();
  return log;
}

}  // namespace

struct DeliveryService::Impl {
  Impl(DeliveryConfig c, const Spawner* sp, const Clock& k, FileOps& o, std::unique_ptr<Spool> s)
      : config(std::move(c)),
        spawner(sp),
        clock(k),
        ops(o),
        spool(std::move(s)),
        syncs(ops),
        writes(*spool, syncs),
        maildir(config.maildir, *spool, way_of(config, ops, syncs, clock, intake), ops, clock),
        mailboxes(config, *spool, maildir),
        refusals(sp ? sp->agents() : std::vector<AgentSpec>()) {
    if (spawner)
      external = std::make_unique<ExternalAgents>(config.external, *spawner, *spool, writes, clock);
  }

  std::optional<DeliveryOutcome> by_script(const SpoolHandle& handle, const Envelope& envelope,
                                           const Recipient& recipient);
  DeliveryOutcome run(const std::string& agent, const Envelope& envelope, const Recipient& recipient,
                      const MessageBody& body);
  std::vector<DeliveryOutcome> run_linked(const Envelope& envelope, std::span<const std::size_t> recipients,
                                          const MessageBody& body);
  // A delivery that goes on elsewhere has its line there.
  void put_line(Instant start, std::string agent, const Envelope& envelope, const Recipient& recipient,
                const MessageBody& body, const DeliveryOutcome& outcome) {
    if (outcome.elsewhere) return;
    log.put(line_of(envelope, recipient, std::move(agent), body, outcome, clock.now() - start));
  }

  DeliveryConfig config;
  const Spawner* spawner;
  const Clock& clock;
  FileOps& ops;
  std::unique_ptr<Spool> spool;
  SyncGroup syncs;
  ForeignWrites writes;
  Intake* intake = nullptr;  // of the agent below; null: another way
  MaildirAgent maildir;
  SpoolMailboxes mailboxes;
  std::unique_ptr<ExternalAgents> external;
  const AgentRefusals refusals;
  DeliveryLines log;
};

// The outcome for a user for whom a script runs, or may run. nullopt: the built-in agent delivers.
std::optional<DeliveryOutcome> DeliveryService::Impl::by_script(const SpoolHandle& handle,
                                                                const Envelope& envelope,
                                                                const Recipient& recipient) {
  auto not_delivered = [](const Error& error) {
    return DeliveryOutcome{reply_of_error(error), error.message};
  };
  const SieveConfig& sieve = config.sieve;
  if (!sieve.on()) return std::nullopt;
  auto found = has_script(sieve.scripts, recipient.user, handle, *spool, ops);
  if (!found) return not_delivered(found.error());
  if (!*found) return std::nullopt;
  if (auto named = sieve.next_hop.empty() ? Status() : check_lmtp_name(recipient.user.name, sieve.delimiters);
      !named)
    return DeliveryOutcome{not_configured(), named.error().message};
  // What Dovecot stores elsewhere would not be durable.
  if (auto inside = spool->relative(recipient.user.maildir); !inside) return not_delivered(inside.error());
  auto index = spawner && !sieve.agent.empty() ? spawner->find(sieve.agent) : std::nullopt;
  auto moved = std::make_shared<Recipient>(recipient);
  if (!is_ascii(moved->text) && !(index && spawner->agents()[*index].smtputf8)) {
    moved->text = with_ascii_domain(moved->text, moved->domain);
    if (index && !is_ascii(moved->text))
      return DeliveryOutcome{{553, "5.6.7", "This mailbox accepts no addresses beyond ASCII"},
                             "the agent of users with a script has no smtputf8"};
  }
  // RCPT has judged the address for the built-in agent alone.
  if (auto refused = index ? refusals.refusal(sieve.agent, envelope, *moved) : std::nullopt)
    return DeliveryOutcome{*refused, "the agent of users with a script does not take the address"};
  moved->user.agent = sieve.agent;
  moved->user.next_hop = sieve.next_hop;
  return DeliveryOutcome{.reply = {}, .elsewhere = std::move(moved)};
}

DeliveryOutcome DeliveryService::Impl::run(const std::string& agent, const Envelope& envelope,
                                           const Recipient& recipient, const MessageBody& body) {
  // The router delivers to configured next hops, so the next hop of this row is not configured.
  if (const std::string& hop = recipient.user.next_hop; !hop.empty())
    return {not_configured(),
            fmt::format("the user's row names the next hop \"{}\", which no section [next_hop.{}] configures",
                        hop, hop)};
  auto handle = spool->open();
  if (!handle) return {reply_of_error(handle.error()), handle.error().message};
  if (agent == builtin_agent) {
    if (auto outcome = by_script(*handle, envelope, recipient)) return *std::move(outcome);
    return maildir.deliver(*handle, envelope, recipient, body);
  }
  auto index = spawner ? spawner->find(agent) : std::nullopt;
  if (!index)
    return {not_configured(),
            fmt::format("user {} names the agent \"{}\", which no section [agent.{}] configures",
                        recipient.user.name, agent, agent)};
  return external->deliver(*index, *handle, envelope, recipient, body);
}

std::vector<DeliveryOutcome> DeliveryService::Impl::run_linked(const Envelope& envelope,
                                                               std::span<const std::size_t> recipients,
                                                               const MessageBody& body) {
  auto handle = spool->open();
  if (!handle)
    return std::vector<DeliveryOutcome>(recipients.size(),
                                        {reply_of_error(handle.error()), handle.error().message});
  std::vector<DeliveryOutcome> outcomes(recipients.size());
  std::vector<std::size_t> linked, places;  // recipients of the built-in agent, and their places in
                                            // `outcomes`
  for (std::size_t i = 0; i < recipients.size(); ++i)
    if (auto outcome = by_script(*handle, envelope, envelope.recipients[recipients[i]]))
      outcomes[i] = *std::move(outcome);
    else
      linked.push_back(recipients[i]), places.push_back(i);
  for (std::size_t done = 0; done < linked.size();) {
    auto some = std::span<const std::size_t>(linked).subspan(done, std::min(links_max, linked.size() - done));
    for (DeliveryOutcome& one : maildir.deliver_linked(*handle, envelope, some, body))
      outcomes[places[done++]] = std::move(one);
  }
  return outcomes;
}

DeliveryService::DeliveryService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeliveryService::~DeliveryService() = default;

Result<std::unique_ptr<DeliveryService>> DeliveryService::create(DeliveryConfig config,
                                                                 const Spawner* spawner, const Clock& clock,
                                                                 FileOps* ops) {
  if (config.default_agent != builtin_agent && !(spawner && spawner->find(config.default_agent)))
    return fail(Errc::invalid,
                "the default agent \"{}\" is neither \"maildir\" nor one of the [agent.*] sections",
                config.default_agent);
  if (const std::string& sieve = config.sieve.agent; !sieve.empty() && !(spawner && spawner->find(sieve)))
    return fail(Errc::invalid, "the agent \"{}\" for users with a script is none of the [agent.*] sections",
                sieve);
  if (config.per_user_max == 0)
    return fail(Errc::invalid, "the limit of deliveries per user must be at least 1");
  config.maildir.hostname = config.hostname;
  config.external.hostname = config.hostname;
  static OsFileOps os_ops;
  FileOps& used = ops ? *ops : os_ops;
  TL_TRY_ASSIGN(std::unique_ptr<Spool> spool, Spool::create(config.spool, used));
  if (!config.spool.volume)
    log_warning("the spool {} has no marker configured: lmtpd cannot check whether it is mounted",
                spool->root());
  return std::unique_ptr<DeliveryService>(
      new DeliveryService(std::make_unique<Impl>(std::move(config), spawner, clock, used, std::move(spool))));
}

Status DeliveryService::check_spool() {
  auto handle = impl_->spool->open();
  if (!handle) return std::unexpected(std::move(handle).error());
  return {};
}

DeliveryLimits DeliveryService::limits(const User& user) const {
  DeliveryLimits out{impl_->config.per_user_max, {}};
  const std::string& agent = agent_of(impl_->config, user);
  auto index = impl_->spawner && agent != builtin_agent ? impl_->spawner->find(agent) : std::nullopt;
  if (index)
    out.shared = {"agent " + agent, impl_->spawner->agents()[*index].deliveries_max, "agents",
                  impl_->spawner->runs_max()};
  return out;
}

void DeliveryService::settle_lines() {
  impl_->log.settle();
}

void DeliveryService::leave_intake_log() {
  if (impl_->intake) impl_->intake->leave();
}

ForeignWrites& DeliveryService::foreign_writes() {
  return impl_->writes;
}

Mailboxes& DeliveryService::mailboxes() {
  return impl_->mailboxes;
}

DeliveryOutcome DeliveryService::deliver(const Envelope& envelope, const Recipient& recipient,
                                         const MessageBody& body) {
  Instant start = impl_->clock.now();
  const User& user = recipient.user;
  DeliveryOutcome outcome = impl_->run(agent_of(impl_->config, user), envelope, recipient, body);
  impl_->put_line(start, name_of_agent(impl_->config, user), envelope, recipient, body, outcome);
  return outcome;
}

// Users whose copies of a message can be hard links to one file.
std::string DeliveryService::group_of(const User& user) const {
  bool linked = user.next_hop.empty() && impl_->maildir.links() &&
                agent_of(impl_->config, user) == builtin_agent;
  return linked ? std::string(linked_group) : std::string();
}

std::vector<DeliveryOutcome> DeliveryService::deliver_group(const Envelope& envelope,
                                                            std::span<const std::size_t> recipients,
                                                            const MessageBody& body, const GivenUp&) {
  if (recipients.size() == 1) return {deliver(envelope, envelope.recipients[recipients.front()], body)};
  Instant start = impl_->clock.now();
  std::vector<DeliveryOutcome> outcomes = impl_->run_linked(envelope, recipients, body);
  for (std::size_t i = 0; i < recipients.size(); ++i)
    impl_->put_line(start, std::string(builtin_agent), envelope, envelope.recipients[recipients[i]], body,
                    outcomes[i]);
  return outcomes;
}

}  // namespace twinloft::lmtpd
