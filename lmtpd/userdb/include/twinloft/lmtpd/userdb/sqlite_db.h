// Users `sqlite`: one query, prepared once per connection, with bound parameters only.
//
// The query may use the parameters :user (local part), :domain and :address (user@domain), and may yield the
// columns of a row (docs/lmtpd.md), found by name, in any order; what it does not yield, or yields as NULL,
// is taken from UserDefaults. No row: there is no such user. More than one row, a wrong type, or a value that
// check_user refuses: an error. The file is opened read-only; a missing or locked database is an error, never
// "no such user".
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

struct SqliteDbConfig {
  std::string path;
  std::string query =
      "SELECT user, uid, gid, home, maildir, agent, quota_bytes, quota_messages, detail_folders, next_hop "
      "FROM users WHERE user = :address AND active = 1";
  UserDefaults defaults;
  std::chrono::milliseconds busy_timeout{2'000};
  std::size_t connections_max = 8;  // kept open; further look-ups wait
};

// Opens one connection and checks query and columns. Errors name the file, the query and the column.
Result<std::unique_ptr<UserSource>> open_sqlite_db(SqliteDbConfig config);

}  // namespace twinloft::lmtpd
