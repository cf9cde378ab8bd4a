// The configured user database: opens the source that the configuration names.
#pragma once

#include <functional>
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

}  // namespace twinloft::lmtpd
