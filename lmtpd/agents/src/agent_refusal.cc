#include "twinloft/lmtpd/agents/agent_refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "agent_values.h"

namespace twinloft::lmtpd {

std::vector<std::pair<std::string, std::string>> agent_values(const Envelope& envelope,
                                                              const Recipient& recipient,
                                                              std::uint64_t size) {
  const User& user = recipient.user;
  return {{"from", envelope.from},
          {"to", recipient.text},
          {"user", user.name},
          {"detail", recipient.detail},
          {"domain", recipient.domain},
          {"original_to", recipient.original_to},
          {"home", user.home},
          {"uid", fmt::format("{}", user.uid)},
          {"gid", fmt::format("{}", user.gid)},
          {"maildir", user.maildir},
          {"client", envelope.client},
          {"lhlo", envelope.lhlo},
          {"id", envelope.id},
          {"size", fmt::format("{}", size)},
          {"ret", envelope.ret},
          {"envid", envelope.envelope_id},
          {"notify", recipient.notify}};
}

namespace {

// The reply depends on the macro of the value. Other macros are not values of the client.
std::optional<Reply> reply_for(const argv::ExpandError& error) {
  constexpr std::string_view of_recipient[] = {"to", "user", "detail", "domain", "original_to"};
  const char* why = error.code == argv::ExpandError::Code::leading_dash
                        ? "starts with \"-\", which the delivery agent would read as an option"
                        : "has a byte that cannot be passed to the delivery agent";
  if (error.macro == "from") return make_reply(553, "5.1.7", fmt::format("The sender's address {}", why));
  if (std::ranges::find(of_recipient, error.macro) != std::end(of_recipient))
    return make_reply(550, "5.1.3", fmt::format("The recipient's address {}", why));
  if (error.macro == "envid") return make_reply(550, "5.7.1", fmt::format("ENVID {}", why));
  return std::nullopt;
}

}  // namespace

AgentRefusals::AgentRefusals(const std::vector<AgentSpec>& agents) {
  for (const AgentSpec& agent : agents)
    if (auto command = argv::Template::parse(agent.command))
      commands_.emplace(agent.name, std::move(*command));
}

std::optional<Reply> AgentRefusals::refusal(std::string_view agent, const Envelope& envelope,
                                            const Recipient& recipient) const {
  auto command = commands_.find(agent);
  if (command == commands_.end()) return std::nullopt;
  argv::Values values;
  for (auto& [name, value] : agent_values(envelope, recipient, 0)) values.emplace(name, std::move(value));
  auto expanded = command->second.expand(values);
  using Code = argv::ExpandError::Code;
  if (expanded ||
      (expanded.error().code != Code::leading_dash && expanded.error().code != Code::forbidden_byte))
    return std::nullopt;
  return reply_for(expanded.error());
}

}  // namespace twinloft::lmtpd
