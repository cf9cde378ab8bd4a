#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

Result<FoldersByDetail> parse_folders_by_detail(std::string_view text) {
  if (text == "none") return FoldersByDetail::none;
  if (text == "existing") return FoldersByDetail::existing;
  if (text == "create") return FoldersByDetail::create;
  return fail(Errc::invalid, "unknown setting \"{}\": use \"none\", \"existing\" or \"create\"", text);
}

std::string_view to_string(MadeDurable how) {
  switch (how) {
    case MadeDurable::no:
      return "no";
    case MadeDurable::fsync:
      return "fsync";
    case MadeDurable::group_sync:
      return "group-sync";
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
