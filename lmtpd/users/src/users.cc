#include "twinloft/lmtpd/users/users.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "twinloft/base/fd.h"

namespace twinloft::lmtpd {

namespace {

template <class SourceConfig>
SourceConfig with(const UserDefaults& defaults, SourceConfig config) {
  config.defaults = defaults;
  return config;
}

Result<std::unique_ptr<UserSource>> open_source(const UserSettings& users, const Clock& clock) {
  switch (users.driver) {
    case UserDriver::sqlite:
      return open_sqlite_db(with(users.defaults, users.sqlite));
    case UserDriver::mysql:
      return open_mysql_db(with(users.defaults, users.mysql), clock);
    case UserDriver::passwd_file:
      return open_passwd_file(passwd_file_of(users), clock);
    case UserDriver::passwd:
      return make_passwd_db(with(users.defaults, users.passwd));
    case UserDriver::static_db:
      return make_static_db(with(users.defaults, users.fixed));
  }
  return fail(Errc::internal, "users.driver");
}

std::vector<std::string> host_texts(const MysqlDbConfig& mysql) {
  std::vector<std::string> out;
  for (const MysqlHost& host : mysql.hosts) out.push_back(host.text);
  return out;
}

}  // namespace

PasswdFileConfig passwd_file_of(const UserSettings& users) {
  return with(users.defaults, users.passwd_file);
}

Status read_secrets(UserSettings& users) {
  constexpr std::size_t password_bytes_max = 4096;
  if (users.mysql_password_file.empty()) return {};
  auto text = read_file(users.mysql_password_file, password_bytes_max);
  if (!text) return fail(text.error().code, "users.db_password_file: {}", text.error().message);
  users.mysql.password = text->substr(0, text->find_first_of("\r\n"));
  return {};
}

std::size_t lookups_at_once(const UserSettings& users) {
  constexpr std::size_t without_connections = 4;
  switch (users.driver) {
    case UserDriver::sqlite:
      return users.sqlite.connections_max;
    case UserDriver::mysql:
      return users.mysql.connections_max;
    case UserDriver::static_db:
      return 1;  // never blocks: answered on the asking thread
    case UserDriver::passwd_file:
    case UserDriver::passwd:
      break;
  }
  return without_connections;
}

Result<std::unique_ptr<UserProcess>> start_users(const UserSettings& users,
                                                 const std::function<Status()>& become, const Clock& clock) {
  if (users.driver != UserDriver::mysql && users.driver != UserDriver::passwd) return nullptr;
  UserSettings settings = users;  // a copy: only the new process reads the secrets into it
  return UserProcess::start(
      lookups_at_once(settings), settings.lookup_timeout,
      [&]() -> Status {
        TL_TRY(read_secrets(settings));
        return become();
      },
      [&] { return open_source(settings, clock); });
}

Result<std::unique_ptr<Directory>> open_users(const UserSettings& users, const Clock& clock,
                                              std::unique_ptr<UserSource> started) {
  if (!started) {
    TL_TRY_ASSIGN(started, open_source(users, clock));
  }
  return make_directory(std::move(started), users.directory, clock);
}

std::string describe_users(const UserSettings& users) {
  switch (users.driver) {
    case UserDriver::sqlite:
      return "sqlite, " + users.sqlite.path;
    case UserDriver::mysql:
      return fmt::format("mysql, {} at {}", users.mysql.database, fmt::join(host_texts(users.mysql), ", "));
    case UserDriver::passwd_file:
      return "passwd-file, " + users.passwd_file.path;
    case UserDriver::passwd:
      return "passwd, the machine's accounts";
    case UserDriver::static_db:
      return (std::holds_alternative<AcceptAll>(users.fixed.users)
                  ? "static, every address is accepted, homes "
                  : "static, homes ") +
             users.defaults.home;
  }
  return {};
}

Status fill_user_ids(UserSettings& users, const Identity& process) {
  users.defaults.uid = process.uid;
  users.defaults.gid = process.gid;
  if (!users.uid.empty()) {
    TL_TRY_ASSIGN(Identity owner, find_user(users.uid, "users.uid"));
    users.defaults.uid = owner.uid;
    if (owner.gid != 0) users.defaults.gid = owner.gid;
  }
  if (!users.gid.empty()) {
    TL_TRY_ASSIGN(users.defaults.gid, find_group_id(users.gid, "users.gid"));
  }
  return {};
}

}  // namespace twinloft::lmtpd
