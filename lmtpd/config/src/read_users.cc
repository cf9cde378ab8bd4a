#include "read_users.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <vector>

#include "twinloft/base/suggest.h"
#include "twinloft/lmtpd/proto/path.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::array common_keys = std::to_array<std::string_view>(
    {"driver", "detail_delimiter", "detail_first", "catch_all", "name", "home", "maildir", "uid", "gid",
     "agent", "next_hop", "cache_time", "cache_negative_time", "cache_stale_time", "cache_size"});

void read_directory(const TomlTable& t, DirectoryConfig& out) {
  t.text("detail_delimiter", out.detail_delimiter);
  if (out.detail_delimiter.size() > 1)
    t.error("detail_delimiter", "expected one character, or \"\" for addresses without detail");
  t.flag("detail_first", out.detail_first);
  t.flag("catch_all", out.catch_all);
}

// Reports the error at the key with which the message begins, if the section has this key.
void place_error(const TomlTable& t, std::string_view message) {
  constexpr std::string_view section = "users.";
  std::size_t end = message.find(": ");
  std::string_view key = message.starts_with(section) && end != std::string_view::npos
                             ? message.substr(section.size(), end - section.size())
                             : "";
  if (t.has(key))
    t.error(key, message.substr(end + 2));
  else
    t.error("driver", message);
}

void read_defaults(const TomlTable& t, UserSettings& users) {
  t.text("name", users.defaults.name);
  t.path("home", users.defaults.home);
  std::string& maildir = users.defaults.maildir;
  t.text("maildir", maildir);
  bool is_home = maildir == "~" || maildir == "%home%";
  if (!maildir.empty() && !is_home && !maildir.starts_with('/') && !maildir.starts_with("~/") &&
      !maildir.starts_with("%home%/"))
    return t.error("maildir", "expected an absolute path, or \"~\", the user's home, or one below \"~/\"");
  t.identity("uid", users.uid);
  t.identity("gid", users.gid);
  t.text("agent", users.defaults.agent);
  t.text("next_hop", users.defaults.next_hop);
  if (Status good = check_defaults(users.defaults); !good) place_error(t, good.error().message);
}

void read_cache(const TomlTable& t, CacheConfig& out) {
  t.duration("cache_time", out.positive, true);
  t.duration("cache_negative_time", out.negative, true);
  t.duration("cache_stale_time", out.stale, true);
  std::uint64_t bytes = out.bytes_max;
  t.size("cache_size", 64u << 10, std::uint64_t{64} << 30, bytes);
  out.bytes_max = bytes;
}

void read_sqlite(const TomlTable& t, UserSettings& users) {
  t.allow(common_keys, {"path", "query", "busy_timeout", "db_connections"});
  users.directory.cache.stale = std::chrono::hours(24);
  t.path("path", users.sqlite.path, true);
  t.text("query", users.sqlite.query);
  t.duration("busy_timeout", users.sqlite.busy_timeout);
  t.number("db_connections", 1, 1024, users.sqlite.connections_max);
}

void read_mysql_hosts(const TomlTable& t, MysqlDbConfig& out) {
  std::vector<std::string> hosts;
  t.texts("hosts", hosts);
  if (hosts.empty())
    return t.error("hosts",
                   "expected a list, such as [\"db1.example.org\", \"192.0.2.1:3306\", "
                   "\"unix:/run/mysqld/mysqld.sock\"]");
  for (const std::string& text : hosts) {
    auto host = parse_mysql_host(with_ascii_host(text));
    if (host)
      out.hosts.push_back(std::move(*host));
    else
      t.error("hosts", host.error().message);
  }
}

void read_mysql_tls(const TomlTable& t, MysqlDbConfig& out) {
  std::string tls = "none";
  t.text("tls", tls);
  if (tls == "required")
    out.tls = MysqlTls::required;
  else if (tls == "verified")
    out.tls = MysqlTls::verified;
  else if (tls != "none")
    t.wrong_word("tls", "expected \"none\", \"required\" or \"verified\"", tls,
                 {"none", "required", "verified"});
  t.path("tls_ca", out.tls_ca);
  t.path("tls_certificate", out.tls_certificate);
  t.path("tls_key", out.tls_key);
  if (out.tls_certificate.empty() != out.tls_key.empty())
    t.error(out.tls_key.empty() ? "tls_certificate" : "tls_key",
            "needs its counterpart: give tls_certificate and tls_key together");
  if (out.tls == MysqlTls::none)
    for (const char* key : {"tls_ca", "tls_certificate", "tls_key"})
      if (t.has(key)) t.error(key, "needs tls = \"required\" or \"verified\"");
}

void read_mysql(const TomlTable& t, UserSettings& users) {
  t.allow(common_keys, {"hosts", "database", "db_user", "db_password", "db_password_file", "query", "tls",
                        "tls_ca", "tls_certificate", "tls_key", "connect_timeout", "query_timeout",
                        "lookup_timeout", "db_connections"});
  users.directory.cache = {std::chrono::seconds(60), std::chrono::seconds(5), std::chrono::hours(24)};
  MysqlDbConfig& mysql = users.mysql;
  read_mysql_hosts(t, mysql);
  read_mysql_tls(t, mysql);
  t.text("database", mysql.database, true);
  t.text("db_user", mysql.user, true);
  t.text("db_password", mysql.password);
  t.path("db_password_file", users.mysql_password_file);
  if (t.has("db_password") && t.has("db_password_file"))
    t.error("db_password", "is set, and a file too: remove one of them");
  t.text("query", mysql.query);
  // The user process has a minute to become ready, and may have to try several hosts.
  constexpr std::chrono::milliseconds timeout_max{10'000};
  t.duration("connect_timeout", mysql.connect_timeout);
  t.duration("query_timeout", mysql.query_timeout);
  for (auto [key, time] :
       {std::pair{"connect_timeout", mysql.connect_timeout}, {"query_timeout", mysql.query_timeout}})
    if (time > timeout_max) t.error(key, "must be at most 10s");
  t.duration("lookup_timeout", users.lookup_timeout);
  if (users.lookup_timeout < mysql.connect_timeout + mysql.query_timeout)
    t.error("lookup_timeout", "must be at least connect_timeout and query_timeout together");
  t.number("db_connections", 1, 256, mysql.connections_max);
}

void read_passwd_file(const TomlTable& t, UserSettings& users) {
  t.allow(common_keys, {"path", "key"});
  users.directory.cache.stale = std::chrono::hours(24);
  t.path("path", users.passwd_file.path, true);
  t.text("key", users.passwd_file.key);
}

void read_passwd(const TomlTable& t, UserSettings& users) {
  t.allow(common_keys, {"domains", "uid_min", "lookup_timeout"});
  users.directory.cache = {std::chrono::seconds(60), std::chrono::seconds(5), std::chrono::hours(24)};
  t.texts("domains", users.passwd.domains);
  t.number("uid_min", 1, 4294967294, users.passwd.uid_min);
  t.duration("lookup_timeout", users.lookup_timeout);
  for (const char* key : {"uid", "gid", "home"})
    if (t.has(key)) t.error(key, "comes from the account");
}

void read_static(const TomlTable& t, UserSettings& users) {
  t.allow(common_keys, {"domains", "users", "accept_all"});
  if (!t.has("home") && !t.has("next_hop")) t.error("home", "is missing");
  t.texts("domains", users.fixed.domains);
  LocalParts listed;
  bool accept_all = false;
  t.texts("users", listed);
  t.flag("accept_all", accept_all);
  const char* missing =
      "is missing: list the local parts that exist, or write accept_all = true to accept mail for every "
      "address";
  if (listed.empty() && t.has("accept_all") && !accept_all) t.error("users", missing);
  if (t.has("users") && listed.empty()) t.error("users", "is empty: list the local parts that exist");
  // Older files without the key stay valid.
  if (!t.has("users") && !t.has("accept_all")) {
    t.warning("users", std::string(missing) + ". Until then mail for every address is accepted");
    accept_all = true;
  }
  if (t.has("users") && accept_all)
    t.error("accept_all",
            "accepts every address, and \"users\" lists those that exist: remove one of the two keys");
  if (accept_all)
    users.fixed.users = AcceptAll{};
  else
    users.fixed.users = std::move(listed);
}

// Entries that no address can match, since a look-up has no domain and, as a rule, no detail.
void check_local_parts(const TomlTable& t, const UserSettings& users) {
  const auto* listed = std::get_if<LocalParts>(&users.fixed.users);
  const DirectoryConfig& directory = users.directory;
  if (users.driver != UserDriver::static_db || !listed) return;
  for (const std::string& name : *listed) {
    if (name.empty() || name.front() == '"' || name.find('@') != std::string::npos)
      t.error("users", fmt::format("\"{}\": expected a local part, such as \"ann\": without quotes and "
                                   "domain (\"domains\" lists those)",
                                   name));
    else if (!directory.detail_first && !split_detail(name, directory.detail_delimiter).detail.empty())
      t.error("users", fmt::format("\"{}\": no address would find it, since \"{}\" begins the detail of an "
                                   "address: set detail_first = true, or remove the detail",
                                   name, directory.detail_delimiter));
  }
}

struct Driver {
  std::string_view name;
  UserDriver driver;
  void (*read)(const TomlTable&, UserSettings&);
};
constexpr std::array drivers = std::to_array<Driver>({
    {"sqlite", UserDriver::sqlite, read_sqlite},
    {"mysql", UserDriver::mysql, read_mysql},
    {"passwd-file", UserDriver::passwd_file, read_passwd_file},
    {"passwd", UserDriver::passwd, read_passwd},
    {"static", UserDriver::static_db, read_static},
});

std::string known_drivers() {
  std::string out;
  for (std::size_t i = 0; i < drivers.size(); ++i)
    out += fmt::format("{}\"{}\"", i == 0 ? "" : i + 1 == drivers.size() ? " or " : ", ", drivers[i].name);
  return out;
}

}  // namespace

void read_users(const TomlTable& top, UserSettings& users) {
  const toml::table* raw = top.child("users");
  if (!raw) return top.error("users", "is missing; add [users] with driver = " + known_drivers());
  TomlTable t(top.problems(), *raw, "users");
  std::string name = "sqlite";
  t.text("driver", name);
  auto driver = std::find_if(drivers.begin(), drivers.end(), [&](const Driver& d) { return d.name == name; });
  if (driver == drivers.end()) {
    std::vector<std::string_view> names;
    for (const Driver& d : drivers) names.push_back(d.name);
    auto nearest = nearest_word(name, names);
    t.error("driver",
            "expected " + known_drivers() + (nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : ""));
    return;
  }
  users.driver = driver->driver;
  driver->read(t, users);
  read_directory(t, users.directory);
  check_local_parts(t, users);
  read_defaults(t, users);
  read_cache(t, users.directory.cache);
}

}  // namespace twinloft::lmtpd
