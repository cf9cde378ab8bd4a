// Users `mysql`: one query to a MariaDB or MySQL server, prepared on each connection, with bound parameters
// only.
//
// Query and columns as in sqlite_db.h. Of several hosts the first one that answers is asked; one that has
// failed is left alone for a while, which grows. Connections to another one than the first are given up after
// a minute, so that the first is used again once it is back. A connection that was idle and has ended
// meanwhile is replaced, and the look-up begun anew; a look-up that has failed is an error.
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
  std::string host;  // empty: a Unix socket
  std::uint16_t port = 3306;
  std::string socket;
};

enum class MysqlTls { none, required, verified };  // verified: the server's certificate and name, too

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

// "db1.example.org", "192.0.2.1:3307", "[2001:db8::1]:3306", "unix:/run/mysqld/mysqld.sock". The error says
// what is wrong.
Result<MysqlHost> parse_mysql_host(const std::string& text);

// Where a server answers, query and columns are checked. Where none does, that is a warning in the log, and
// found out with the first look-up: a machine that starts before its database takes mail for nobody, and is
// there.
Result<std::unique_ptr<UserSource>> open_mysql_db(MysqlDbConfig config, const Clock& clock);

}  // namespace twinloft::lmtpd
