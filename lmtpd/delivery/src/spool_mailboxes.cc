#include "twinloft/lmtpd/delivery/spool_mailboxes.h"

#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

bool SpoolMailboxes::has_limits(const User& user) const {
  return user.next_hop.empty() && agent_of(config_, user) == builtin_agent && maildir_.has_limits(user);
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

}  // namespace twinloft::lmtpd
