// Users `passwd`: the accounts of the machine, by getpwnam(3), from the sources of nsswitch.conf(5). A source
// may need connections, so it belongs into a process that may connect (user_process.h).
//
// The local-part is the account's name. Accounts below uid_min belong to the system, and get no mail. If a
// source of NSS does not answer, the look-up is an error. Some sources report "not found" instead, which
// cannot be detected.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

struct PasswdDbConfig {
  std::uint32_t uid_min = 1000;
  std::vector<std::string> domains;  // empty: all domains, and addresses without a domain
  UserDefaults defaults;             // only name, maildir and agent are used
};

Result<std::unique_ptr<UserSource>> make_passwd_db(PasswdDbConfig config);

}  // namespace twinloft::lmtpd
