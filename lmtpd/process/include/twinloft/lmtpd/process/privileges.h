// Who lmtpd runs as.
#pragma once

#include <sys/types.h>

#include <string>

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

struct Identity {
  uid_t uid = 0;
  gid_t gid = 0;
  std::string name;  // for the group list; empty where the user is only a number
};

// The configured user and group, each by name or number, else those of the process. Errors: unknown names,
// root.
Result<Identity> find_identity(const std::string& user, const std::string& group);

// A user's name or number. gid 0: the number has no entry. `key` names the setting in errors.
Result<Identity> find_user(const std::string& text, const char* key);

// What errno is after a user or group was not found. A source of NSS that does not answer, such as LDAP, says
// nothing of who there is: unavailable.
Status check_answered(int error, const std::string& text, const char* key);

// A group's name or number. `key` names the setting in errors.
Result<gid_t> find_group_id(const std::string& text, const char* key);

// Becomes `identity` for good: groups, gid, uid, capabilities, PR_SET_NO_NEW_PRIVS, and proof that there is
// no way back.
Status drop_privileges(const Identity& identity);

}  // namespace twinloft::lmtpd
