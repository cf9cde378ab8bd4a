// The user and group that lmtpd runs as.
#pragma once

#include <sys/types.h>

#include <string>

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

struct Identity {
  uid_t uid = 0;
  gid_t gid = 0;
  std::string name;  // for the supplementary groups; empty for a user without a name
};

// The configured user and group, by name or number, or those of the process. Errors: an unknown name, or
// root.
Result<Identity> find_identity(const std::string& user, const std::string& group);

// Finds a user by name or number. gid 0: the number has no entry. key: the setting, for errors.
Result<Identity> find_user(const std::string& text, const char* key);

// Checks errno after a user or group was not found. Errors: Errc::unavailable if a source of NSS, such as
// LDAP, did not answer, so that it is unknown whether the user exists.
Status check_answered(int error, const std::string& text, const char* key);

// Finds a group by name or number. key: the setting, for errors.
Result<gid_t> find_group_id(const std::string& text, const char* key);

// Becomes `identity` permanently: sets groups, gid, uid, capabilities and PR_SET_NO_NEW_PRIVS, and checks
// that the change cannot be undone.
Status drop_privileges(const Identity& identity);

}  // namespace twinloft::lmtpd
