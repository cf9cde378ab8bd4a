#include "twinloft/lmtpd/delivery/service.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "twinloft/lmtpd/delivery/delivery_log.h"
#include "replies.h"
#include "twinloft/base/log.h"
#include "twinloft/lmtpd/delivery/sync_group.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::string_view builtin_agent = "maildir";
constexpr std::size_t links_max = 100;  // of one file: each takes descriptors until it is durable
constexpr std::string_view linked_group = "maildir, linked";  // the name of no next hop

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

// One for each of several users, however often they are named.
class TakenSlots {
 public:
  TakenSlots(Slots& slots, std::uint32_t most) : slots_(slots), most_(most) {}
  ~TakenSlots() {
    for (const std::string& name : names_) slots_.give_back(name);
  }
  TakenSlots(const TakenSlots&) = delete;
  TakenSlots& operator=(const TakenSlots&) = delete;
  bool take(const std::string& name) {
    auto [at, is_new] = names_.insert(name);
    if (!is_new || slots_.take(name, most_)) return true;
    names_.erase(at);
    return false;
  }

 private:
  Slots& slots_;
  const std::uint32_t most_;
  std::unordered_set<std::string> names_;
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
  std::vector<Reply> run_linked(const Envelope& envelope, std::span<const std::size_t> recipients, const MessageBody& body, std::vector<std::string>& details);
  Reply too_many(std::string* detail) const {
    *detail = fmt::format("{} deliveries to this user are under way", config.per_user_max);
    return {451, "4.3.0", "Too many deliveries to this mailbox at once"};
  }
  void put_line(Instant start, const std::string& agent, const Envelope& envelope, const Recipient& recipient, const MessageBody& body, const Reply& reply, std::string detail) {
    log.put({envelope.id, envelope.from, recipient.text, recipient.user.name, agent, envelope.client, origin_text(envelope.origin), body.size, reply.code, reply.enhanced,
             std::move(detail), clock.now() - start});
  }

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

std::vector<Reply> DeliveryService::Impl::run_linked(const Envelope& envelope, std::span<const std::size_t> recipients, const MessageBody& body, std::vector<std::string>& details) {
  auto handle = spool->open();
  if (!handle) {
    for (std::string& detail : details) detail = handle.error().message;
    return std::vector<Reply>(recipients.size(), reply_of_error(handle.error()));
  }
  std::vector<Reply> replies;
  while (replies.size() < recipients.size()) {
    auto some = recipients.subspan(replies.size(), std::min(links_max, recipients.size() - replies.size()));
    std::vector<std::string> theirs;
    std::vector<Reply> got = maildir.deliver_linked(*handle, envelope, some, body, theirs);
    std::ranges::move(theirs, details.begin() + static_cast<std::ptrdiff_t>(replies.size()));
    std::ranges::move(got, std::back_inserter(replies));
  }
  return replies;
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

std::optional<Reply> DeliveryService::refusal(const User& user, const std::string& detail, std::uint64_t size) {
  if (!may_refuse(user)) return std::nullopt;
  auto handle = impl_->spool->open();
  if (!handle) return reply_of_error(handle.error());
  std::string why;
  auto refusal = impl_->maildir.refusal(*handle, user, detail, size, &why);
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
    reply = impl_->too_many(&detail);
  }
  impl_->put_line(start, agent, envelope, recipient, body, reply, std::move(detail));
  return reply;
}

// Those whose mail is one file.
std::string DeliveryService::group_of(const User& user) const {
  bool linked = impl_->maildir.links() && agent_of(impl_->config, user) == builtin_agent;
  return linked ? std::string(linked_group) : std::string();
}

std::vector<Reply> DeliveryService::deliver_group(const Envelope& envelope, std::span<const std::size_t> recipients, const MessageBody& body, const GivenUp&) {
  if (recipients.size() == 1) return {deliver(envelope, envelope.recipients[recipients.front()], body)};
  Instant start = impl_->clock.now();
  std::vector<std::string> details(recipients.size());
  std::vector<Reply> replies(recipients.size());
  TakenSlots slots(impl_->users, impl_->config.per_user_max);
  std::vector<std::size_t> now, places;  // those that are delivered to, and which of `recipients` they are
  for (std::size_t i = 0; i < recipients.size(); ++i) {
    if (!slots.take(envelope.recipients[recipients[i]].user.name)) {
      replies[i] = impl_->too_many(&details[i]);
      continue;
    }
    now.push_back(recipients[i]);
    places.push_back(i);
  }
  std::vector<std::string> theirs(now.size());
  std::vector<Reply> got = impl_->run_linked(envelope, now, body, theirs);
  for (std::size_t i = 0; i < now.size(); ++i) {
    replies[places[i]] = std::move(got[i]);
    details[places[i]] = std::move(theirs[i]);
  }
  for (std::size_t i = 0; i < recipients.size(); ++i)
    impl_->put_line(start, std::string(builtin_agent), envelope, envelope.recipients[recipients[i]], body, replies[i], std::move(details[i]));
  return replies;
}

}  // namespace twinloft::lmtpd
