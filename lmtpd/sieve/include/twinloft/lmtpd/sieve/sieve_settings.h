// The settings of Dovecot that decide for whom Pigeonhole runs a script, in common terms for 2.3 and 2.4. No
// I/O. Source: the settings of Pigeonhole (doc.dovecot.org), and its behaviour in tests/e2e/sieve.
#pragma once

#include <string>
#include <vector>

#include "twinloft/lmtpd/sieve/doveconf_output.h"

namespace twinloft::lmtpd {

// A place of users' own scripts. 2.3: `sieve = DRIVER:PATH;active=ACTIVE`. 2.4: a section sieve_script of
// type personal.
struct ScriptStorage {
  std::string driver = "file";  // or "ldap", "dict"
  std::string path;             // a script, or a directory of scripts
  std::string active;           // the link to the active script; empty: not set
  bool operator==(const ScriptStorage&) const = default;
};

struct SieveSettings {
  bool is_2_4 = false;
  bool loads_plugin = false;            // the protocol's mail_plugins have "sieve"
  std::vector<ScriptStorage> personal;  // empty: users have no scripts of their own
  std::vector<std::string> for_all;     // settings with scripts for users without their own
  std::vector<std::string> in_userdb;   // places where the user database may give a user other settings
  // Sections userdb and passdb whose result doveconf does not show: it may have other settings too.
  std::vector<std::string> hidden_rows = {};
  std::string user_format;  // auth_username_format; empty: the default
};

// `output`: of `doveconf -f protocol=NAME`, for the protocol of the delivery.
SieveSettings read_sieve_settings(const DoveconfOutput& output);

}  // namespace twinloft::lmtpd
