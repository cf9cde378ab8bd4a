#include "twinloft/lmtpd/delivery/service.h"

#include <algorithm>
#include <iterator>

#include "twinloft/base/log.h"
#include "twinloft/lmtpd/delivery/delivery_lines.h"
#include "twinloft/lmtpd/delivery/spool_mailboxes.h"
#include "twinloft/lmtpd/proto/error_reply.h"
#include "twinloft/lmtpd/spool/sync_group.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t links_max = 100;  // per file: each link takes descriptors until it is durable
constexpr std::string_view linked_group = "maildir, linked";  // not a possible name of a next hop

// The name of the agent or next hop, for the log.
std::string name_of_agent(const DeliveryConfig& config, const User& user) {
  return user.next_hop.empty() ? agent_of(config, user) : "next hop " + user.next_hop;
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
        maildir(config.maildir, *spool, syncs, ops, clock),
        mailboxes(config, *spool, maildir) {
    if (spawner)
      external = std::make_unique<ExternalAgents>(config.external, *spawner, *spool, writes, clock);
  }

  DeliveryOutcome run(const std::string& agent, const Envelope& envelope, const Recipient& recipient,
                      const MessageBody& body);
  std::vector<DeliveryOutcome> run_linked(const Envelope& envelope, std::span<const std::size_t> recipients,
                                          const MessageBody& body);
  void put_line(Instant start, std::string agent, const Envelope& envelope, const Recipient& recipient,
                const MessageBody& body, const DeliveryOutcome& outcome) {
    log.put(line_of(envelope, recipient, std::move(agent), body, outcome, clock.now() - start));
  }

  DeliveryConfig config;
  const Spawner* spawner;
  const Clock& clock;
  FileOps& ops;
  std::unique_ptr<Spool> spool;
  SyncGroup syncs;
  ForeignWrites writes;
  MaildirAgent maildir;
  SpoolMailboxes mailboxes;
  std::unique_ptr<ExternalAgents> external;
  DeliveryLines log;
};

DeliveryOutcome DeliveryService::Impl::run(const std::string& agent, const Envelope& envelope,
                                           const Recipient& recipient, const MessageBody& body) {
  const Reply not_configured{451, "4.3.5", "The mail system is not configured for this mailbox"};
  // The router delivers to configured next hops, so the next hop of this row is not configured.
  if (const std::string& hop = recipient.user.next_hop; !hop.empty())
    return {not_configured,
            fmt::format("the user's row names the next hop \"{}\", which no section [next_hop.{}] configures",
                        hop, hop)};
  auto handle = spool->open();
  if (!handle) return {reply_of_error(handle.error()), handle.error().message};
  if (agent == builtin_agent) return maildir.deliver(*handle, envelope, recipient, body);
  auto index = spawner ? spawner->find(agent) : std::nullopt;
  if (!index)
    return {not_configured,
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
  std::vector<DeliveryOutcome> outcomes;
  while (outcomes.size() < recipients.size()) {
    auto some = recipients.subspan(outcomes.size(), std::min(links_max, recipients.size() - outcomes.size()));
    std::ranges::move(maildir.deliver_linked(*handle, envelope, some, body), std::back_inserter(outcomes));
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
