// Whom the spawner runs agents as, and with which home: what the configuration knows, and no request can
// change.
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
  std::vector<Ids> own;                    // the configured users: these always pass
  bool only_own = false;                   // no row of the user database names another one
  std::uint32_t uid_min = 1000;            // of the others
  std::uint32_t gid_min = 1000;            // of the others, save an account's own primary group
  std::vector<std::string> homes = {"/"};  // directories that homes lie in; another home is the account's own
};

// What only the machine's accounts can tell of a request.
struct AskAccount {
  bool group = false;  // gid has to be the primary group of the account with that uid
  bool home = false;   // home has to be that account's own, or lie in it
  bool any() const { return group || home; }
};

// Without I/O. Error: refused, whatever the accounts say; the sentence names the keys.
Result<AskAccount> check_run_as(const RunAsRules& rules, std::uint32_t uid, std::uint32_t gid,
                                std::string_view home);

// Asks the machine's accounts; may block, as NSS does. False: they do not bear the request out.
bool account_agrees(AskAccount ask, std::uint32_t uid, std::uint32_t gid, const std::string& home);

// Whether `path` is `directory`, or lies in it. Both are absolute and without ".."; "//" and "/./" count as
// "/".
bool is_within(std::string_view path, std::string_view directory);

}  // namespace twinloft::lmtpd
