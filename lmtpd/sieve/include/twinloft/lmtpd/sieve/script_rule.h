// For whom a Sieve script runs, decided from Dovecot's settings. No I/O.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "twinloft/lmtpd/sieve/script_path.h"
#include "twinloft/lmtpd/sieve/sieve_settings.h"

namespace twinloft::lmtpd {

// No script runs for anybody.
struct NoUser {
  std::string why;
};
// A script runs for every user, or lmtpd cannot tell for whom.
struct AllUsers {
  std::string why;
};
// A script runs for a user who has one of these files. Of each path, the last part may be a link.
struct ByFile {
  std::vector<ScriptPath> any_of;
  std::vector<std::string> texts;  // the paths as Dovecot's configuration has them
};
using ScriptRule = std::variant<NoUser, AllUsers, ByFile>;

// scripts_in_rows: true: rows of Dovecot's user database have fields about Sieve, so all users go through
// Dovecot.
ScriptRule decide_scripts(const SieveSettings& settings, bool scripts_in_rows = false);
// "the users of whom ~/.dovecot.sieve exists", for check-config.
std::string describe_rule(const ScriptRule& rule);

}  // namespace twinloft::lmtpd
