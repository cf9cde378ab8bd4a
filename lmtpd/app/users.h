// The configured user database, and checks of its users.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/process/privileges.h"
#include "twinloft/lmtpd/userdb/directory.h"
#include "twinloft/lmtpd/userdb/user_process.h"

namespace twinloft::lmtpd {

// Starts the user process. null: the driver needs none. Call it while there is one thread, and before
// privileges are dropped. `become`: drops the privileges of the new process.
Result<std::unique_ptr<UserProcess>> start_users(const UserSettings& users,
                                                 const std::function<Status()>& become, const Clock& clock);

// `users`: with ids filled in. Without a started process, this process opens the source and needs access to
// all its files.
Result<std::unique_ptr<Directory>> open_users(const UserSettings& users, const Clock& clock,
                                              std::unique_ptr<UserSource> started = nullptr);
// Fills in the owner of mail for rows without ids: the configured ids, otherwise those of `process`.
Status fill_user_ids(UserSettings& users, const Identity& process);
// Reads the password file, which may be readable only for the user that started lmtpd. Call it before
// privileges are dropped, and before open_users().
Status read_secrets(UserSettings& users);
// The settings of the passwd-file, with the common defaults.
PasswdFileConfig passwd_file_of(const UserSettings& users);
std::string describe_users(const UserSettings& users);
// The number of simultaneous look-ups that the source supports.
std::size_t lookups_at_once(const UserSettings& users);

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
