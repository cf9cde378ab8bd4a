#include "read_users.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <vector>

namespace twinloft::lmtpd {

namespace {

constexpr std::array common_keys = std::to_array<std::string_view>(
    {"driver", "detail_delimiter", "detail_first", "catch_all", "name", "home", "maildir", "uid", "gid", "agent", "cache_time", "cache_negative_time",
     "cache_stale_time", "cache_size"});

void read_directory(const TomlTable& t, DirectoryConfig& out) {
  t.text("detail_delimiter", out.detail_delimiter);
  if (out.detail_delimiter.size() > 1)
    t.error("detail_delimiter", "expected one character, or \"\" for addresses without detail");
  t.flag("detail_first", out.detail_first);
  t.flag("catch_all", out.catch_all);
}

void read_defaults(const TomlTable& t, UserSettings& users) {
  t.text("name", users.defaults.name);
  t.path("home", users.defaults.home);
  t.path("maildir", users.defaults.maildir);
  t.identity("uid", users.uid);
  t.identity("gid", users.gid);
  t.text("agent", users.defaults.agent);
  if (Status good = check_defaults(users.defaults); !good) t.error("driver", good.error().message);
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

void read_passwd_file(const TomlTable& t, UserSettings& users) {
  t.allow(common_keys, {"path", "key"});
  users.directory.cache.stale = std::chrono::hours(24);
  t.path("path", users.passwd_file.path, true);
  t.text("key", users.passwd_file.key);
}

void read_static(const TomlTable& t, UserSettings& users) {
  t.allow(common_keys, {"domains", "users"});
  if (!t.has("home")) t.error("home", "is missing");
  t.texts("domains", users.fixed.domains);
  t.texts("users", users.fixed.users);
}

struct Driver {
  std::string_view name;
  UserDriver driver;
  void (*read)(const TomlTable&, UserSettings&);
};
constexpr std::array drivers = std::to_array<Driver>({
    {"sqlite", UserDriver::sqlite, read_sqlite},
    {"passwd-file", UserDriver::passwd_file, read_passwd_file},
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
  std::string name;
  t.text("driver", name, true);
  auto driver = std::find_if(drivers.begin(), drivers.end(), [&](const Driver& d) { return d.name == name; });
  if (driver == drivers.end()) {
    if (!name.empty()) t.error("driver", "expected " + known_drivers());
    return;
  }
  users.driver = driver->driver;
  driver->read(t, users);
  read_directory(t, users.directory);
  read_defaults(t, users);
  read_cache(t, users.directory.cache);
}

}  // namespace twinloft::lmtpd
