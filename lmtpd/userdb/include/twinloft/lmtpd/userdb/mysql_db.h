// Users `mysql`: one query to a MariaDB or MySQL server, prepared on each connection, with bound parameters
// only.
//
// Query and columns are as in sqlite_db.h. Of several hosts, the first that answers is used. A host that has
// failed is not tried for a while, which grows with each failure. A connection to another host than the first
// ends after a minute, so that lmtpd returns to the first host. If an idle connection has ended meanwhile,
// the look-up is repeated on a new connection. A failed look-up is an error.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

struct MysqlHost {
  std::string text;  // as written, for messages
  std::string host;  // empty: `socket` is used
  std::uint16_t port = 3306;
  std::string socket;
};

enum class MysqlTls {
  none,
  required,
  verified
};  // verified: the certificate and the name of the server are checked

struct MysqlDbConfig {
  std::vector<MysqlHost> hosts;
  std::string database, user, password;
  std::string query =
      "SELECT user, uid, gid, home, maildir, agent, quota_bytes, quota_messages, detail_folders, next_hop "
      "FROM users WHERE user = :address AND active = 1";
  UserDefaults defaults;
  MysqlTls tls = MysqlTls::none;
  std::string tls_ca, tls_certificate, tls_key;  // PEM files; empty: none
  std::chrono::milliseconds connect_timeout{3'000};
  std::chrono::milliseconds query_timeout{5'000};
  std::size_t connections_max = 8;
};

// "db1.example.org", "192.0.2.1:3307", "[2001:db8::1]:3306" or "unix:/run/mysqld/mysqld.sock". Errors:
// Errc::invalid.
Result<MysqlHost> parse_mysql_host(const std::string& text);

// Checks the query and its columns if a server answers. If no server answers, a warning is logged and the
// first look-up checks them: lmtpd may start before its database, and defers all mail until the database
// answers. Errors: the query or a column is wrong.
Result<std::unique_ptr<UserSource>> open_mysql_db(MysqlDbConfig config, const Clock& clock);

}  // namespace twinloft::lmtpd
