// The users that the spawner may run agents as, and their homes: rules of the configuration, which no request
// can change.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

struct RunAsRules {
  struct Ids {
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
  };
  std::vector<Ids> own;                    // the configured users, which are always allowed
  bool only_own = false;                   // no row of the user database names another user
  std::uint32_t uid_min = 1000;            // of other users
  std::uint32_t gid_min = 1000;            // of other users, except an account's primary group
  std::vector<std::string> homes = {"/"};  // the directories of homes; any other home must be the account's
};

// The checks of a request that need the machine's accounts.
struct AskAccount {
  bool group = false;  // gid must be the primary group of the account with this uid
  bool home = false;   // home must be the account's home, or below it
  bool any() const { return group || home; }
};

// Checks without I/O. Errors: refused for any accounts, with the keys of the configuration.
Result<AskAccount> check_run_as(const RunAsRules& rules, std::uint32_t uid, std::uint32_t gid,
                                std::string_view home);

// Checks the machine's accounts. May block in NSS. False: the accounts do not allow the request.
bool account_agrees(AskAccount ask, std::uint32_t uid, std::uint32_t gid, const std::string& home);

// Whether `path` is `directory`, or below it. Both are absolute and without "..". "//" and "/./" count as
// "/".
bool is_within(std::string_view path, std::string_view directory);

}  // namespace twinloft::lmtpd
