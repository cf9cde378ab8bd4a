// Users `static`: local parts from a list, or all; each user is what UserDefaults says.
//
// A local part or domain that would be more than one path component (".", "..", "/", control bytes) does not
// exist: 550, never a path.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

struct AcceptAll {};                          // every local part exists
using LocalParts = std::vector<std::string>;  // those that exist

struct StaticDbConfig {
  UserDefaults defaults;             // with home, uid and gid
  std::vector<std::string> domains;  // empty: any domain, and addresses without one
  std::variant<LocalParts, AcceptAll> users;
};

// Errors: an unknown %name%, a template that is not absolute, uid or gid 0.
Result<std::unique_ptr<UserSource>> make_static_db(StaticDbConfig config);

}  // namespace twinloft::lmtpd
