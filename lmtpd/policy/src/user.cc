#include "twinloft/lmtpd/policy/user.h"

namespace twinloft::lmtpd {

Result<FoldersByDetail> parse_folders_by_detail(std::string_view text) {
  if (text == "none") return FoldersByDetail::none;
  if (text == "existing") return FoldersByDetail::existing;
  if (text == "create") return FoldersByDetail::create;
  return fail(Errc::invalid, "unknown setting \"{}\": use \"none\", \"existing\" or \"create\"", text);
}

}  // namespace twinloft::lmtpd
