// The users of the database: whether their mail can be delivered, and `lmtpd user`.
#pragma once

#include <iosfwd>
#include <string>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/process/privileges.h"

namespace twinloft::lmtpd {

// The users and homes that agents may run with, from the configuration. `users`: with ids filled in.
SpawnerOptions spawner_options(const Config& config, const UserSettings& users, const Identity& identity);

// Checks that mail for this user can be delivered. Errors: why all mail would get 451, with the key and the
// remedy. `by_root`: lmtpd was started as root, and can run agents as other users.
Status check_delivery_to(const User& user, const Config& config, const Identity& identity, bool by_root);

// Checks delivery to one user of a static database, as an example for all. `users`: with ids filled in.
Status check_static_users(const Config& config, const UserSettings& users, const Identity& identity);

// `lmtpd user ADDRESS`: shows the user of an address and how the look-up found it, as lmtpd's own user. Exit
// codes: 0 mail is accepted, 67 (EX_NOUSER) no such user, or disabled, 64 (EX_USAGE) not an address, 75
// (EX_TEMPFAIL) mail would be deferred, 78 (EX_CONFIG) the configuration is wrong.
int show_user(const std::string& config_path, const std::string& address, std::ostream& out,
              std::ostream& err);

}  // namespace twinloft::lmtpd
