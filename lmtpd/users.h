// The user database that a configuration names, and what its users amount to.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>

#include "privileges.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/userdb/directory.h"

namespace twinloft::lmtpd {

// `users` with its ids filled in.
Result<std::unique_ptr<Directory>> open_users(const UserSettings& users, const Clock& clock);
std::string describe_users(const UserSettings& users);

// What keeps every mail for this user from being delivered (451), with the key that makes it so and what to write. `by_root`: lmtpd was
// started as root, and can run agents as others.
Status check_delivery_to(const User& user, const Config& config, const Identity& identity, bool by_root);

// Where every address exists, one shows what all would get. `users` with its ids filled in.
Status check_static_users(const Config& config, const UserSettings& users, const Identity& identity);

// `lmtpd user ADDRESS`: what a recipient's address leads to, and how, looked up as lmtpd's own user. Exit codes: 0 it takes mail, 67 (EX_NOUSER)
// there is no such user, or it takes none, 75 (EX_TEMPFAIL) mail would be put off, 78 (EX_CONFIG) the configuration is wrong.
int show_user(const std::string& config_path, const std::string& address, std::ostream& out, std::ostream& err);

}  // namespace twinloft::lmtpd
