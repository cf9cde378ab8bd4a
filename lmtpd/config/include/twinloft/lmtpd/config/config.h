// lmtpd's configuration file (TOML) as one tree of plain values. docs/lmtpd.md describes every key.
//
// load_config only reads the file: which users, programs and directories exist is checked by main.cc, since
// the answer differs from machine to machine and from minute to minute.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/log.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/agents/spawner.h"
#include "twinloft/lmtpd/delivery/service.h"
#include "twinloft/lmtpd/net/listener.h"
#include "twinloft/lmtpd/quota_status/quota_status.h"
#include "twinloft/lmtpd/route/next_hop.h"
#include "twinloft/lmtpd/tls/tls.h"
#include "twinloft/lmtpd/userdb/directory.h"
#include "twinloft/lmtpd/userdb/mysql_db.h"
#include "twinloft/lmtpd/userdb/passwd_db.h"
#include "twinloft/lmtpd/userdb/passwd_file_db.h"
#include "twinloft/lmtpd/userdb/sqlite_db.h"
#include "twinloft/lmtpd/userdb/static_db.h"

namespace twinloft::lmtpd {

struct ListenSettings {
  std::string address;     // as written, for messages
  std::string host;        // numeric IPv4 or IPv6, as inet_ntop(3) writes it; empty for a Unix socket
  std::uint16_t port = 0;  // never 25
  std::string unix_path;   // absolute, in its normal form; empty for TCP
  unsigned mode = 0660;    // of the Unix socket
  std::string group;       // of the Unix socket: name or number; empty: of the process that makes it
  ListenRules rules;
  bool is_at(const ListenSettings& other) const {
    return host == other.host && port == other.port && unix_path == other.unix_path;
  }
};

// Paths of PEM files, absolute. Empty: no TLS.
struct TlsSettings {
  std::string certificate;
  std::string key;
  std::string client_ca;
  bool client_certificate_required = false;
  std::vector<std::string> client_subjects;  // names of whom one must be; empty: any
  bool tls_1_2 = true;
};

struct LimitSettings {
  std::uint64_t message_bytes_max = 50u << 20;
  std::uint64_t header_bytes_max = 1u << 20;
  std::uint32_t recipients_max = 1000;              // of one transaction
  std::uint32_t connections_max = 1000;             // beyond: 421 4.3.2
  std::uint32_t connections_per_address_max = 500;  // beyond: 421 4.7.0
  std::chrono::milliseconds idle_timeout{300'000};
  std::chrono::milliseconds transaction_timeout{1'800'000};
  std::chrono::milliseconds queue_time{60'000};    // that a delivery waits for its turn; then 451 4.3.2
  std::chrono::milliseconds stop_timeout{60'000};  // for deliveries that have begun, after SIGTERM
  std::uint32_t bad_commands_max = 20;             // of one connection: then 421
  std::uint32_t refused_max = 100;       // senders and recipients of one connection, in a row: then 421
  std::uint64_t body_memory = 1u << 20;  // a larger message goes to a file
  std::uint64_t body_memory_total = 256u << 20;  // of all connections; beyond: 452 4.3.1
  std::string body_directory = "/var/tmp";       // of those files; off the spool
  std::uint64_t body_disk_total = 4ull << 30;    // of all of them, and of agents' input in files; beyond:
                                                 // 452 4.3.1
  std::uint32_t deliveries = 64;                 // at once: threads that deliver
  std::uint32_t deliveries_per_transaction = 16;
  std::uint32_t deliveries_per_user = 10;  // at once; the others wait for their turn
  std::uint32_t io_threads = 1;
};

enum class UserDriver { sqlite, mysql, passwd_file, passwd, static_db };

struct UserSettings {
  UserDriver driver = UserDriver::sqlite;
  DirectoryConfig directory;
  UserDefaults defaults;  // those of each source; its uid and gid are filled in from the two below
  std::string uid;        // a name, a number, or empty: the user that lmtpd runs as
  std::string gid;
  SqliteDbConfig sqlite;
  MysqlDbConfig mysql;
  std::chrono::milliseconds lookup_timeout{30'000};  // of mysql and passwd, which a process of their own asks
  std::string mysql_password_file;                   // absolute; read as late as it can be, by who may
  PasswdFileConfig passwd_file;
  PasswdDbConfig passwd;
  StaticDbConfig fixed;
};

// The paths are those of PEM files, absolute.
struct NextHopSettings {
  NextHopSpec spec;
  std::string ca;           // empty: the authorities that the machine trusts
  std::string certificate;  // empty: none is shown
  std::string key;
  std::string tls_name;  // that the certificate is to have; empty: it is not verified
};

struct Config {
  std::string file;      // where it was read
  std::string hostname;  // empty: the machine's
  LogLevel log_level = LogLevel::info;
  std::string user;   // name or number; empty: stays who it is
  std::string group;  // empty: the user's primary group
  std::vector<ListenSettings> listen;
  TlsSettings tls;
  LimitSettings limits;
  UserSettings users;
  DeliveryConfig delivery;  // hostname is filled in by main.cc
  std::vector<AgentSpec> agents;
  std::vector<NextHopSettings> next_hops;
  SpawnerOptions spawner;
  QuotaStatusConfig quota_status;                                      // for QuotaDriver::count
  bool delivers_here() const { return !delivery.spool.root.empty(); }  // else it only hands mail on
  std::string dovecot;  // Dovecot's configuration file, which check-config compares the quota with; empty: it
                        // does not
  std::vector<std::string> warnings;  // "file:line: key: what", one line each (a template's may have a caret
                                      // below)
};

inline constexpr const char* default_config_path = "/etc/twinloft/lmtpd.toml";

// A file as far as it could be read: what is wrong has its default.
struct ReadConfig {
  Config config;
  std::vector<std::string> errors;     // "file:line: key: what is wrong and what to write"
  std::set<std::string> bad_sections;  // that have errors, such as "users"; a key outside of any section
                                       // counts as one
};
// Errors: it cannot be read, or is no TOML.
Result<ReadConfig> read_config(const std::string& path);

// Errors: every problem of the file, one on a line, as "file:line: key: what is wrong and what to write".
Result<Config> load_config(const std::string& path);
// The same for text that is already there; `path` is its name in messages.
Result<Config> parse_config(const std::string& path, std::string_view text);

}  // namespace twinloft::lmtpd
