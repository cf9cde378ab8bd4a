// The user database that a configuration names, and what its users amount to.
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

// Of a source that needs a process of its own; null: the driver needs none. To be called while there is one
// thread, and before privileges are dropped. `become`: what that process does to its privileges.
Result<std::unique_ptr<UserProcess>> start_users(const UserSettings& users,
                                                 const std::function<Status()>& become, const Clock& clock);

// `users` with its ids filled in. Where nothing was started the source is this process's own: it needs to
// have the right to all that it opens.
Result<std::unique_ptr<Directory>> open_users(const UserSettings& users, const Clock& clock,
                                              std::unique_ptr<UserSource> started = nullptr);
// Fills in whose mail it is where the user database does not say: the configured ids, else those of
// `process`.
Status fill_user_ids(UserSettings& users, const Identity& process);
// To be called before privileges are dropped and open_users() is: what only who has started lmtpd may read.
Status read_secrets(UserSettings& users);
// With the defaults of all sources in it.
PasswdFileConfig passwd_file_of(const UserSettings& users);
std::string describe_users(const UserSettings& users);
// Look-ups that the source answers at once.
std::size_t lookups_at_once(const UserSettings& users);

// Whom agents may run as, and with which homes: what the configuration says, and what follows from it.
// `users` with its ids filled in.
SpawnerOptions spawner_options(const Config& config, const UserSettings& users, const Identity& identity);

// What keeps every mail for this user from being delivered (451), with the key that makes it so and what to
// write. `by_root`: lmtpd was started as root, and can run agents as others.
Status check_delivery_to(const User& user, const Config& config, const Identity& identity, bool by_root);

// Where every address exists, one shows what all would get. `users` with its ids filled in.
Status check_static_users(const Config& config, const UserSettings& users, const Identity& identity);

// `lmtpd user ADDRESS`: what a recipient's address leads to, and how, looked up as lmtpd's own user. Exit
// codes: 0 it takes mail, 67 (EX_NOUSER) there is no such user, or it takes none, 64 (EX_USAGE) it is no
// address, 75 (EX_TEMPFAIL) mail would be deferred, 78 (EX_CONFIG) the configuration is wrong.
int show_user(const std::string& config_path, const std::string& address, std::ostream& out,
              std::ostream& err);

}  // namespace twinloft::lmtpd
