#include "twinloft/lmtpd/delivery/spool_mailboxes.h"

#include <utility>

#include "twinloft/base/log.h"
#include "twinloft/lmtpd/spool/sync_group.h"

namespace twinloft::lmtpd {

namespace {

class OwnMailboxes final : public Mailboxes {
 public:
  OwnMailboxes(const DeliveryConfig& config, std::unique_ptr<Spool> spool, FileOps& ops, const Clock& clock)
      : config_(config),
        spool_(std::move(spool)),
        syncs_(ops),
        maildir_(config_.maildir, *spool_, syncs_, ops, clock),
        mailboxes_(config_, *spool_, maildir_) {}

  bool has_limits(const User& user) const override { return mailboxes_.has_limits(user); }
  MailboxState look(const User& user, const std::string& detail, std::uint64_t size) override {
    return mailboxes_.look(user, detail, size);
  }
  std::optional<MailboxState> look_now(const User& user, std::uint64_t size) override {
    return mailboxes_.look_now(user, size);
  }

 private:
  const DeliveryConfig config_;
  const std::unique_ptr<Spool> spool_;
  SyncGroup syncs_;
  MaildirAgent maildir_;
  SpoolMailboxes mailboxes_;
};

}  // namespace

bool SpoolMailboxes::has_limits(const User& user) const {
  return user.next_hop.empty() && agent_of(config_, user) == builtin_agent && maildir_.has_limits(user);
}

std::optional<MailboxState> SpoolMailboxes::look_now(const User& user, std::uint64_t size) {
  return has_limits(user) ? maildir_.look_now(user, size) : MailboxState{};
}

MailboxState SpoolMailboxes::look(const User& user, const std::string& detail, std::uint64_t size) {
  if (!has_limits(user)) return {};
  auto handle = spool_.open();
  if (!handle) return {.spool = std::move(handle).error()};
  MailboxState state = maildir_.look(*handle, user, detail, size);
  for (const auto& problem : {state.spool, state.counter})
    if (problem) log_error("the quota of {}: {}", user.name, problem->message);
  return state;
}

Result<std::unique_ptr<Mailboxes>> open_mailboxes(const DeliveryConfig& config, const Clock& clock) {
  static OsFileOps ops;
  TL_TRY_ASSIGN(std::unique_ptr<Spool> spool, Spool::create(config.spool, ops));
  return std::make_unique<OwnMailboxes>(config, std::move(spool), ops, clock);
}

}  // namespace twinloft::lmtpd
