// The configuration of local delivery.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "twinloft/lmtpd/agents/external.h"
#include "twinloft/lmtpd/intake/settings.h"
#include "twinloft/lmtpd/maildir/maildir.h"
#include "twinloft/lmtpd/session/model.h"
#include "twinloft/lmtpd/sieve/script_rule.h"
#include "twinloft/lmtpd/spool/spool.h"

namespace twinloft::lmtpd {

inline constexpr std::string_view builtin_agent = "maildir";

// Of the users of the built-in agent, those for whom a Sieve script runs go to another agent or next hop.
struct SieveConfig {
  std::string agent = {};     // an agent of the spawner
  std::string next_hop = {};  // or a next hop: Dovecot's LMTP of this machine. Both empty: scripts are not
                              // run
  ScriptRule scripts = NoUser{};
  std::string delimiters = "+";  // Dovecot's recipient_delimiter, of the next hop
  bool on() const { return !agent.empty() || !next_hop.empty(); }
};

struct DeliveryConfig {
  std::string hostname;
  std::string default_agent = "maildir";  // "maildir" or the name of an agent of the spawner
  std::uint32_t per_user_max = 10;        // simultaneous deliveries to a user; further deliveries wait
  SpoolConfig spool;
  MaildirConfig maildir;    // its hostname is set from the one above
  IntakeSettings intake{};  // for DurabilityWay::intake_log
  ExternalConfig external;  // its hostname too
  SieveConfig sieve;
};

// The user's agent: "maildir", or the name of an agent of the spawner.
inline const std::string& agent_of(const DeliveryConfig& config, const User& user) {
  return user.agent.empty() ? config.default_agent : user.agent;
}

}  // namespace twinloft::lmtpd
