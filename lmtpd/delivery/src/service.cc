#include "twinloft/lmtpd/delivery/service.h"

#include <mutex>
#include <unordered_map>

#include "twinloft/lmtpd/delivery/delivery_log.h"
#include "replies.h"
#include "twinloft/base/log.h"
#include "twinloft/lmtpd/delivery/sync_group.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::string_view builtin_agent = "maildir";

// How many deliveries are under way, by user or by agent.
class Slots {
 public:
  bool take(const std::string& name, std::uint32_t most) {
    std::lock_guard lock(mutex_);
    std::uint32_t& count = counts_[name];
    if (count >= most) return false;
    ++count;
    return true;
  }
  void give_back(const std::string& name) {
    std::lock_guard lock(mutex_);
    auto found = counts_.find(name);
    if (--found->second == 0) counts_.erase(found);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::uint32_t> counts_;
};

struct TakenSlot {
  Slots& slots;
  const std::string& name;
  ~TakenSlot() { slots.give_back(name); }
};

}  // namespace

struct DeliveryService::Impl {
  Impl(DeliveryConfig c, const Spawner* sp, const Clock& k, FileOps& o, std::unique_ptr<Spool> s)
      : config(std::move(c)),
        spawner(sp),
        clock(k),
        ops(o),
        spool(std::move(s)),
        syncs(ops),
        maildir(config.maildir, *spool, syncs, ops, clock) {
    if (spawner) external = std::make_unique<ExternalAgents>(config.external, *spawner, *spool, syncs, clock);
  }

  Reply run(const std::string& agent, const Envelope& envelope, const Recipient& recipient,
            const MessageBody& body, std::string* detail);

  DeliveryConfig config;
  const Spawner* spawner;
  const Clock& clock;
  FileOps& ops;
  std::unique_ptr<Spool> spool;
  SyncGroup syncs;
  MaildirAgent maildir;
  std::unique_ptr<ExternalAgents> external;
  Slots users;
  Slots agents;
  DeliveryLog log;
};

Reply DeliveryService::Impl::run(const std::string& agent, const Envelope& envelope,
                                 const Recipient& recipient, const MessageBody& body, std::string* detail) {
  auto handle = spool->open();
  if (!handle) {
    *detail = handle.error().message;
    return reply_of_error(handle.error());
  }
  if (agent == builtin_agent) return maildir.deliver(*handle, envelope, recipient, body, detail);
  auto index = spawner ? spawner->find(agent) : std::nullopt;
  if (!index) {
    *detail = fmt::format("user {} names the agent \"{}\", which no section [agent.{}] configures",
                          recipient.user.name, agent, agent);
    return {451, "4.3.5", "The mail system is not configured for this mailbox"};
  }
  std::uint32_t most = spawner->agents()[*index].deliveries_max;
  if (!agents.take(agent, most)) {
    *detail = fmt::format("{} deliveries by this agent are under way", most);
    return {451, "4.3.0", "Too many deliveries of this kind at once"};
  }
  TakenSlot slot{agents, agent};
  return external->deliver(*index, *handle, envelope, recipient, body, detail);
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
    return fail(Errc::invalid, "the limit of deliveries per user must be above 0");
  config.maildir.hostname = config.hostname;
  config.external.hostname = config.hostname;
  static OsFileOps os_ops;
  FileOps& used = ops ? *ops : os_ops;
  TL_TRY_ASSIGN(std::unique_ptr<Spool> spool, Spool::create(config.spool, used));
  if (!config.spool.volume)
    log_warning("the spool {} is used without a marker: that it is mounted is not checked", spool->root());
  return std::unique_ptr<DeliveryService>(
      new DeliveryService(std::make_unique<Impl>(std::move(config), spawner, clock, used, std::move(spool))));
}

Status DeliveryService::check_spool() {
  auto handle = impl_->spool->open();
  if (!handle) return std::unexpected(std::move(handle).error());
  return {};
}

std::optional<SharedLimit> DeliveryService::shared_limit(const User& user) const {
  const std::string& agent = agent_of(impl_->config, user);
  auto index = impl_->spawner && agent != builtin_agent ? impl_->spawner->find(agent) : std::nullopt;
  if (!index) return std::nullopt;
  return SharedLimit{agent, impl_->spawner->agents()[*index].deliveries_max};
}

bool DeliveryService::may_refuse(const User& user) const { return agent_of(impl_->config, user) == builtin_agent && impl_->maildir.may_refuse(user); }

std::optional<Reply> DeliveryService::refusal(const User& user, std::uint64_t size) {
  if (!may_refuse(user)) return std::nullopt;
  auto handle = impl_->spool->open();
  if (!handle) return reply_of_error(handle.error());
  std::string why;
  auto refusal = impl_->maildir.refusal(*handle, user, size, &why);
  if (!why.empty()) log_error("the quota of {}: {}", user.name, why);
  return refusal;
}

Reply DeliveryService::deliver(const Envelope& envelope, const Recipient& recipient,
                               const MessageBody& body) {
  Instant start = impl_->clock.now();
  const User& user = recipient.user;
  const std::string& agent = agent_of(impl_->config, user);
  std::string detail;
  Reply reply;
  if (impl_->users.take(user.name, impl_->config.per_user_max)) {
    TakenSlot slot{impl_->users, user.name};
    reply = impl_->run(agent, envelope, recipient, body, &detail);
  } else {
    detail = fmt::format("{} deliveries to this user are under way", impl_->config.per_user_max);
    reply = {451, "4.3.0", "Too many deliveries to this mailbox at once"};
  }
  impl_->log.put({envelope.id, envelope.from, recipient.text, user.name, agent, envelope.client, origin_text(envelope.origin), body.size, reply.code,
                  reply.enhanced, std::move(detail), impl_->clock.now() - start});
  return reply;
}

}  // namespace twinloft::lmtpd
