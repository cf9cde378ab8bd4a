#include "sqlite_connection.h"

#include <sys/stat.h>

#include <cerrno>
#include <limits>
#include <string_view>

#include "twinloft/lmtpd/userdb/check.h"

namespace twinloft::lmtpd {

Result<FileIdentity> identity_of(const std::string& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) return fail_errno(errno, "user database {}", path);
  return FileIdentity{about.st_dev, about.st_ino};
}

std::unexpected<Error> SqliteConnection::database_error(int code, const char* doing) const {
  const char* text = db_ ? sqlite3_errmsg(db_.get()) : sqlite3_errstr(code);
  return fail(Errc::unavailable, "user database {}: {}: {}", config_.path, doing, text);
}

Result<std::unique_ptr<SqliteConnection>> SqliteConnection::open(const SqliteDbConfig& config) {
  std::unique_ptr<SqliteConnection> connection(new SqliteConnection(config));
  TL_TRY(connection->connect());
  TL_TRY(connection->prepare());
  TL_TRY(connection->check_parameters());
  TL_TRY(connection->find_columns());
  return connection;
}

Status SqliteConnection::connect() {
  // Before the open: if the file is replaced in between, the next look-up sees another identity and opens
  // anew.
  TL_TRY_ASSIGN(identity_, identity_of(config_.path));
  sqlite3* db = nullptr;
  int code = sqlite3_open_v2(config_.path.c_str(), &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, nullptr);
  db_.reset(db);
  if (code != SQLITE_OK) return database_error(code, "open");
  sqlite3_extended_result_codes(db, 1);
  sqlite3_busy_timeout(db, static_cast<int>(config_.busy_timeout.count()));
  return {};
}

Status SqliteConnection::prepare() {
  sqlite3_stmt* statement = nullptr;
  const char* tail = nullptr;
  int code = sqlite3_prepare_v3(db_.get(), config_.query.c_str(), static_cast<int>(config_.query.size()),
                                SQLITE_PREPARE_PERSISTENT, &statement, &tail);
  statement_.reset(statement);
  if (code != SQLITE_OK) {
    auto error = database_error(code, "query");
    return fail(Errc::invalid, "{}; the query is: {}", error.error().message, config_.query);
  }
  std::string_view rest(tail);
  if (rest.find_first_not_of(" \t\r\n;") != std::string_view::npos)
    return fail(Errc::invalid, "user database {}: the query holds a second statement: {}", config_.path,
                rest);
  if (!statement_ || !sqlite3_stmt_readonly(statement_.get()))
    return fail(Errc::invalid, "user database {}: the query must be a SELECT: {}", config_.path,
                config_.query);
  return {};
}

Status SqliteConnection::check_parameters() const {
  int count = sqlite3_bind_parameter_count(statement_.get());
  for (int i = 1; i <= count; ++i) {
    const char* given = sqlite3_bind_parameter_name(statement_.get(), i);
    std::string_view name = given ? given : "?";
    if (name != ":user" && name != ":domain" && name != ":address")
      return fail(
          Errc::invalid,
          "user database {}: the query has the unknown parameter {}; known are :user, :domain and :address",
          config_.path, name);
  }
  if (count == 0)
    return fail(
        Errc::invalid,
        "user database {}: the query uses none of :user, :domain and :address, so that every address would "
        "be the same user: {}",
        config_.path, config_.query);
  return {};
}

Result<SqliteConnection::Columns> SqliteConnection::find_columns() const {
  Columns columns;
  int count = sqlite3_column_count(statement_.get());
  for (int i = 0; i < count; ++i) {
    std::string_view name = sqlite3_column_name(statement_.get(), i);
    if (name == "user")
      columns.user = i;
    else if (name == "uid")
      columns.uid = i;
    else if (name == "gid")
      columns.gid = i;
    else if (name == "home")
      columns.home = i;
    else if (name == "maildir")
      columns.maildir = i;
    else if (name == "agent")
      columns.agent = i;
  }
  for (auto [index, name] :
       {std::pair{columns.user, "user"}, {columns.uid, "uid"}, {columns.gid, "gid"}, {columns.home, "home"}})
    if (index < 0)
      return fail(Errc::invalid,
                  "user database {}: the query yields no column \"{}\" (use AS to name it): {}", config_.path,
                  name, config_.query);
  return columns;
}

Status SqliteConnection::bind(const char* parameter, const std::string& value) {
  int index = sqlite3_bind_parameter_index(statement_.get(), parameter);
  if (index == 0) return {};
  // Static: the values outlive the step, and are unbound after it.
  int code =
      sqlite3_bind_text64(statement_.get(), index, value.data(), value.size(), SQLITE_STATIC, SQLITE_UTF8);
  if (code != SQLITE_OK) return database_error(code, "bind");
  return {};
}

Result<std::string> SqliteConnection::text_of(int column, bool may_be_null) const {
  if (column < 0) return std::string();
  int type = sqlite3_column_type(statement_.get(), column);
  if (type == SQLITE_NULL && may_be_null) return std::string();
  if (type != SQLITE_TEXT)
    return fail(Errc::invalid, "user database {}: column \"{}\" is not text", config_.path,
                sqlite3_column_name(statement_.get(), column));
  const unsigned char* text = sqlite3_column_text(statement_.get(), column);
  if (!text) return fail(Errc::exhausted, "user database {}: no memory", config_.path);
  auto bytes = static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column));
  return std::string(reinterpret_cast<const char*>(text), bytes);
}

Result<std::uint32_t> SqliteConnection::id_of(int column) const {
  if (sqlite3_column_type(statement_.get(), column) != SQLITE_INTEGER)
    return fail(Errc::invalid, "user database {}: column \"{}\" is not an integer", config_.path,
                sqlite3_column_name(statement_.get(), column));
  sqlite3_int64 value = sqlite3_column_int64(statement_.get(), column);
  if (value < 1 || value >= std::numeric_limits<std::uint32_t>::max())
    return fail(Errc::invalid, "user database {}: column \"{}\" is {}, which is no user's or group's id",
                config_.path, sqlite3_column_name(statement_.get(), column), value);
  return static_cast<std::uint32_t>(value);
}

Result<User> SqliteConnection::read_row(const Columns& columns) const {
  User user;
  TL_TRY_ASSIGN(user.name, text_of(columns.user, false));
  TL_TRY_ASSIGN(user.uid, id_of(columns.uid));
  TL_TRY_ASSIGN(user.gid, id_of(columns.gid));
  TL_TRY_ASSIGN(user.home, text_of(columns.home, false));
  TL_TRY_ASSIGN(user.maildir, text_of(columns.maildir, true));
  TL_TRY_ASSIGN(user.agent, text_of(columns.agent, true));
  if (Status checked = check_user(user); !checked)
    return fail(Errc::invalid, "user database {}: {}", config_.path, checked.error().message);
  return user;
}

namespace {
// Ends the read transaction and lets go of the bound values, however the look-up ended.
struct ResetAtEnd {
  sqlite3_stmt* statement;
  ~ResetAtEnd() {
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
  }
};
}  // namespace

Result<std::optional<User>> SqliteConnection::lookup(const std::string& user, const std::string& domain) {
  std::string address = domain.empty() ? user : user + "@" + domain;
  ResetAtEnd reset{statement_.get()};
  TL_TRY(bind(":user", user));
  TL_TRY(bind(":domain", domain));
  TL_TRY(bind(":address", address));
  int code = sqlite3_step(statement_.get());
  if (code == SQLITE_DONE) return std::nullopt;
  if (code != SQLITE_ROW) return database_error(code, "look-up");
  // The step may have prepared the query anew after a change of the schema.
  TL_TRY_ASSIGN(Columns columns, find_columns());
  TL_TRY_ASSIGN(User found, read_row(columns));
  code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW)
    return fail(Errc::invalid, "user database {}: the query yields more than one row for {}", config_.path,
                address);
  if (code != SQLITE_DONE) return database_error(code, "look-up");
  return found;
}

}  // namespace twinloft::lmtpd
