#include "twinloft/lmtpd/config/ways.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "twinloft/base/utf8.h"

namespace twinloft::lmtpd {

namespace {

bool runs_for_all(const SieveConfig& sieve) {
  return sieve.on() && std::holds_alternative<AllUsers>(sieve.scripts);
}

}  // namespace

bool WaysOfDelivery::takes_utf8(const User& user) const {
  if (!user.next_hop.empty()) {
    auto hop = std::ranges::find_if(config_.next_hops,
                                    [&](const NextHopSettings& h) { return h.spec.name == user.next_hop; });
    return hop == config_.next_hops.end() || hop->spec.smtputf8;
  }
  const SieveConfig& sieve = config_.delivery.sieve;
  const std::string& own = agent_of(config_.delivery, user);
  const bool moves = own == builtin_agent && !sieve.agent.empty() && runs_for_all(sieve);
  auto spec = std::ranges::find(config_.agents, moves ? sieve.agent : own, &AgentSpec::name);
  return spec == config_.agents.end() || spec->smtputf8;
}

std::optional<Reply> WaysOfDelivery::refusal(const Envelope& envelope, const Recipient& recipient) const {
  if (!recipient.user.next_hop.empty()) return std::nullopt;
  const std::string& agent = agent_of(config_.delivery, recipient.user);
  if (agent == builtin_agent) return refusal_by_script(envelope, recipient);
  return agents_.refusal(agent, envelope, recipient);
}

// Only if all users go there. Otherwise a look at the home decides, at the delivery.
std::optional<Reply> WaysOfDelivery::refusal_by_script(const Envelope& envelope,
                                                       const Recipient& recipient) const {
  const SieveConfig& sieve = config_.delivery.sieve;
  if (!runs_for_all(sieve)) return std::nullopt;
  if (!sieve.agent.empty()) return agents_.refusal(sieve.agent, envelope, recipient);
  if (is_ascii(recipient.user.name)) return std::nullopt;
  return make_reply(553, "5.6.7", "The mail store accepts no addresses beyond ASCII");
}

RecipientRules recipient_rules(const Config& config, std::shared_ptr<const WaysOfDelivery> ways) {
  RecipientRules out;
  out.detail_delimiter = config.users.directory.detail_delimiter;
  out.over_quota = config.delivery.maildir.quota.over;
  out.takes_utf8 = [ways = std::move(ways)](const User& user) { return ways->takes_utf8(user); };
  return out;
}

}  // namespace twinloft::lmtpd
