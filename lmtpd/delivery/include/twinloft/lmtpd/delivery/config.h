// The configuration of local delivery.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "twinloft/lmtpd/agents/external.h"
#include "twinloft/lmtpd/maildir/maildir.h"
#include "twinloft/lmtpd/session/model.h"
#include "twinloft/lmtpd/spool/spool.h"

namespace twinloft::lmtpd {

inline constexpr std::string_view builtin_agent = "maildir";

struct DeliveryConfig {
  std::string hostname;
  std::string default_agent = "maildir";  // "maildir" or the name of an agent of the spawner
  std::uint32_t per_user_max = 10;        // simultaneous deliveries to a user; further deliveries wait
  SpoolConfig spool;
  MaildirConfig maildir;    // its hostname is set from the one above
  ExternalConfig external;  // its hostname too
};

// The user's agent: "maildir", or the name of an agent of the spawner.
inline const std::string& agent_of(const DeliveryConfig& config, const User& user) {
  return user.agent.empty() ? config.default_agent : user.agent;
}

}  // namespace twinloft::lmtpd
