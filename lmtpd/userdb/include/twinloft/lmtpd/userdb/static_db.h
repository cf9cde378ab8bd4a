// Users `static`: the local-parts of a list, or all. UserDefaults are the values of each user.
//
// A local-part or domain that check.h's fits_path() refuses (".", "..", "/", control bytes) does not exist:
// 550.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

struct AcceptAll {};                          // every local part exists
using LocalParts = std::vector<std::string>;  // these local-parts exist

struct StaticDbConfig {
  UserDefaults defaults;             // home, uid and gid are required
  std::vector<std::string> domains;  // empty: all domains, and addresses without a domain
  std::variant<LocalParts, AcceptAll> users;
};

// Errors: an unknown %name%, a template that is not absolute, uid or gid 0.
Result<std::unique_ptr<UserSource>> make_static_db(StaticDbConfig config);

}  // namespace twinloft::lmtpd
