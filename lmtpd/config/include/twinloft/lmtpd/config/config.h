// lmtpd's configuration file (TOML) as a tree of values. docs/lmtpd.md describes each key.
//
// These functions read the file alone. lmtpd/app checks the users, programs and directories of the machine,
// since they differ between machines and may change at any time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/log.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/agents/spawner.h"
#include "twinloft/lmtpd/delivery/config.h"
#include "twinloft/lmtpd/delivery/spool_watch.h"
#include "twinloft/lmtpd/milter/filter_spec.h"
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
  std::string group;       // of the Unix socket: name or number; empty: the group of the process
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
  std::vector<std::string> client_subjects;  // the allowed names; empty: all
  bool tls_1_2 = true;
};

struct LimitSettings {
  std::uint64_t message_bytes_max = 50u << 20;
  std::uint64_t header_bytes_max = 1u << 20;
  std::uint32_t recipients_max = 1000;              // of a transaction
  std::uint32_t connections_max = 1000;             // more get 421 4.3.2
  std::uint32_t connections_per_address_max = 500;  // more get 421 4.7.0
  std::chrono::milliseconds idle_timeout{300'000};
  std::chrono::milliseconds transaction_timeout{1'800'000};
  std::chrono::milliseconds queue_time{60'000};    // the longest wait of a delivery; then 451 4.3.2
  std::chrono::milliseconds stop_timeout{60'000};  // for deliveries in flight, after SIGTERM
  std::uint32_t bad_commands_max = 20;             // of a connection; then 421
  std::uint32_t refused_max = 100;  // senders and recipients of a connection, one after the other; then 421
  std::uint64_t body_memory = 1u << 20;  // bytes in memory of a message; a larger message is in a file
  std::uint64_t body_memory_total = 256u << 20;  // bytes of all connections; more get 452 4.3.1
  std::string body_directory = "/var/tmp";       // of the files; not on the spool
  std::uint64_t body_disk_total = 4ull << 30;    // bytes of all the files, and of the agents' input in files;
                                                 // more get 452 4.3.1
  std::uint32_t deliveries = 64;                 // at a time: the number of threads
  std::uint32_t deliveries_per_transaction = 16;
  std::uint32_t deliveries_per_user = 10;  // at a time; the others wait
  std::uint32_t io_threads = 1;
};

enum class UserDriver { sqlite, mysql, passwd_file, passwd, static_db };

struct UserSettings {
  UserDriver driver = UserDriver::sqlite;
  DirectoryConfig directory;
  UserDefaults defaults;  // of each source. lmtpd/app sets uid and gid from the two below
  std::string uid;        // a name, a number, or empty: the user that lmtpd runs as
  std::string gid;
  SqliteDbConfig sqlite;
  MysqlDbConfig mysql;
  std::chrono::milliseconds lookup_timeout{30'000};  // of mysql and passwd, which have a process of their own
  std::string mysql_password_file;                   // absolute; read by the process that needs it
  PasswdFileConfig passwd_file;
  PasswdDbConfig passwd;
  StaticDbConfig fixed;
};

// The paths are those of PEM files, absolute.
struct NextHopSettings {
  NextHopSpec spec;
  std::string ca;           // the trusted authorities; empty: those of the machine
  std::string certificate;  // of lmtpd as a client; empty: none
  std::string key;
  std::string tls_name;  // the next hop's name in its certificate; empty: the certificate is not verified
};

// The program spool-milter, which an MTA asks during SMTP (docs/spool-milter.md).
struct SpoolMilterSettings {
  ListenSettings listen;
  // A recipient is judged if its domain is listed, or if the MTA's macros {rcpt_mailer} and {rcpt_host} have
  // listed values. An empty list of values allows any value, but both must not be empty.
  std::vector<std::string> domains;  // as normal_domain() returns them
  std::vector<std::string> rcpt_mailer, rcpt_host;
  bool refuses_unknown = true;              // false: an unknown user may be an alias of the MTA
  std::chrono::milliseconds timeout{8000};  // for the answer to a recipient; Sendmail waits for 10 s
  std::uint32_t connections_max = 1000;     // of MTAs; more are closed
};

// A filter, in the order of filters.order.
struct FilterSettings {
  milter::FilterSpec spec;
  ConnectTarget target;
};

struct FiltersSettings {
  std::vector<FilterSettings> order;
  std::string quarantine;      // an address; empty: no mailbox for quarantined messages
  std::uint32_t threads = 32;  // messages that filters hear at a time
};

// How lmtpd learns for whom a Sieve script runs. delivery.sieve has the agent or next hop of these users.
struct ScriptSettings {
  std::string dovecot = "/etc/dovecot/dovecot.conf";  // the path of Dovecot's configuration, for doveconf
  // Whether rows of Dovecot's user database have fields about Sieve. nullopt: the operator has not said it.
  std::optional<bool> scripts_in_rows = {};
  bool all_users = false;  // all users go there, whatever doveconf says
};

struct Config {
  std::string file;      // the path of the configuration file
  std::string hostname;  // empty: the machine's name
  LogLevel log_level = LogLevel::info;
  std::string user;   // name or number; empty: the user that started lmtpd
  std::string group;  // empty: the user's primary group
  std::vector<ListenSettings> listen;
  TlsSettings tls;
  LimitSettings limits;
  UserSettings users;
  DeliveryConfig delivery;  // lmtpd/app sets hostname
  SpoolWatchConfig spool_watch;
  std::vector<AgentSpec> agents;
  std::vector<NextHopSettings> next_hops;  // with Dovecot's LMTP of delivery.sieve, as the last
  ScriptSettings scripts;
  FiltersSettings filters;
  SpawnerOptions spawner;
  QuotaStatusConfig quota_status;  // for QuotaDriver::count
  std::optional<SpoolMilterSettings> spool_milter;
  bool delivers_here() const { return !delivery.spool.root.empty(); }  // false: all mail goes to next hops
  bool asks_dovecot() const { return delivers_here() && delivery.maildir.quota.driver == QuotaDriver::count; }
  std::string dovecot;  // the path of Dovecot's configuration, which check-config compares the quota with.
                        // Empty: no comparison
  std::vector<std::string> warnings;  // "file:line: key: what", a line each. That of a template may have a
                                      // caret below it
};

inline constexpr const char* default_config_path = "/etc/twinloft/lmtpd.toml";

// The settings of a file with errors: a wrong setting has its default.
struct ReadConfig {
  Config config;
  std::vector<std::string> errors;     // "file:line: key: what is wrong and what to write"
  std::set<std::string> bad_sections;  // sections with errors, such as "users", and the names of wrong keys
                                       // outside of sections
};
// Reads the file, and reports all errors of the settings in the result. Errors: the file cannot be read, or
// is not TOML.
Result<ReadConfig> read_config(const std::string& path);

// Reads a file without errors. Errors: all errors of the file, a line each, as "file:line: key: what is wrong
// and what to write".
Result<Config> load_config(const std::string& path);
// As load_config(), from `text`. path: the name of the file in messages.
Result<Config> parse_config(const std::string& path, std::string_view text);

}  // namespace twinloft::lmtpd
