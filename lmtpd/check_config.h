// `lmtpd check-config`: what would go wrong at run time, said before.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>

#include "privileges.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

// The user database that the configuration names.
Result<std::unique_ptr<UserDb>> open_users(const UserSettings& users);

// What [tls] names, read by whoever may: before privileges are dropped. Null: there is no such section. Errors name the file.
Result<std::shared_ptr<const TlsContext>> load_tls(const TlsSettings& tls);

// Where every address exists, one shows what all would get. `users` with its ids filled in. Errors: each mail would be
// answered 451, with the key that makes it so and what to write.
Status check_static_users(const Config& config, const UserSettings& users, const Identity& identity);

// What is opened as lmtpd's user is tried as that user, in a process of its own. One problem a line to `err`, "ok" to
// `out` where there is none. Exit codes: 0, or 78 (EX_CONFIG).
int check_config(const std::string& path, std::ostream& out, std::ostream& err);

}  // namespace twinloft::lmtpd
