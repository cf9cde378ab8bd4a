// The settings of the intake log, in the section [maildir].
#pragma once

#include <chrono>
#include <cstdint>

namespace twinloft::lmtpd {

struct IntakeSettings {
  std::uint64_t log_bytes = 64u << 20;           // of a new log
  std::uint64_t message_bytes_max = 256u << 10;  // larger messages are not logged
  // How often what was renamed is made durable, so that its space in the log may be used again.
  std::chrono::milliseconds checkpoint = std::chrono::seconds(5);
};

}  // namespace twinloft::lmtpd
