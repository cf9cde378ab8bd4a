// Users `sqlite`: one query, prepared once per connection, with bound parameters only.
//
// The query may use the parameters :user (local-part), :domain and :address (user@domain). Its columns are
// found by name, in any order (docs/lmtpd.md). UserDefaults replace missing columns and NULL. No row: no such
// user. Errors: several rows, a wrong type, a value that check_user() refuses, a missing or locked database.
// The file is opened read-only.
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
  std::size_t connections_max = 8;  // stay open; further look-ups wait
};

// Opens one connection, and checks the query and its columns. Errors contain the file, the query and the
// column.
Result<std::unique_ptr<UserSource>> open_sqlite_db(SqliteDbConfig config);

}  // namespace twinloft::lmtpd
