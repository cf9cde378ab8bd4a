// Users `passwd`: the accounts of the machine, by getpwnam(3), from wherever nsswitch.conf takes them. To be
// used in a process that may connect (user_process.h).
//
// A local part is an account's name. Accounts below uid_min are of the system, and do not exist here. That a
// source of NSS does not answer is an error, as far as the C library tells it: sources that say "not found"
// instead are beyond what can be seen here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

struct PasswdDbConfig {
  std::uint32_t uid_min = 1000;
  std::vector<std::string> domains;  // empty: any, and addresses without one
  UserDefaults defaults;             // of them name, maildir and agent
};

Result<std::unique_ptr<UserSource>> make_passwd_db(PasswdDbConfig config);

}  // namespace twinloft::lmtpd
