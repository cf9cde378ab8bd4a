#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

std::string_view to_string(MadeDurable how) {
  switch (how) {
    case MadeDurable::no:
      return "no";
    case MadeDurable::fsync:
      return "fsync";
    case MadeDurable::group_sync:
      return "group-sync";
    case MadeDurable::intake_log:
      return "intake-log";
    case MadeDurable::after_agent:
      return "after-agent";
    case MadeDurable::by_agent:
      return "by-agent";
    case MadeDurable::by_next_hop:
      return "by-next-hop";
  }
  return "unknown";
}

}  // namespace twinloft::lmtpd
