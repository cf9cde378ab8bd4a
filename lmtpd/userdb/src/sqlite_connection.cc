#include "sqlite_connection.h"

#include <sys/stat.h>

#include <cerrno>
#include <string_view>

#include "dovecot_fields.h"
#include "named_query.h"

namespace twinloft::lmtpd {

namespace {

// Advice for errors whose text by SQLite is misleading: lmtpd only reads, but SQLite reports "attempt to
// write a readonly database".
const char* advice(int code, int sys) {
  const int kind = code & 0xff;
  if (code == SQLITE_READONLY_ROLLBACK)
    return " (a program ended while it was writing: any program with write permission repairs the file, such "
           "as: sqlite3 FILE \"PRAGMA quick_check\")";
  if (kind == SQLITE_READONLY ||
      (kind == SQLITE_CANTOPEN && (sys == EACCES || sys == EROFS || sys == ENOENT)))
    return " (a database in WAL mode can only be read with write permission on its directory: PRAGMA "
           "journal_mode = "
           "DELETE ends that mode)";
  return "";
}

}  // namespace

Result<FileIdentity> identity_of(const std::string& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) return fail_errno(errno, "user database {}", path);
  return FileIdentity{about.st_dev, about.st_ino};
}

std::unexpected<Error> SqliteConnection::database_error(int code, const char* doing) const {
  const char* text = db_ ? sqlite3_errmsg(db_.get()) : sqlite3_errstr(code);
  return fail(Errc::unavailable, "user database {}: {}: {}{}; the query is: {}", config_.path, doing, text,
              advice(code, db_ ? sqlite3_system_errno(db_.get()) : 0), one_line(config_.query));
}

Result<std::unique_ptr<SqliteConnection>> SqliteConnection::open(const SqliteDbConfig& config,
                                                                 const RowReader& reader, SeenColumns& seen) {
  std::unique_ptr<SqliteConnection> connection(new SqliteConnection(config, reader, seen));
  TL_TRY(connection->connect());
  TL_TRY(connection->prepare());
  TL_TRY(connection->check_parameters());
  TL_TRY(connection->find_columns());
  return connection;
}

Status SqliteConnection::connect() {
  // Read before the open. If the file is replaced in between, the next look-up finds another identity, and
  // opens the new file.
  TL_TRY_ASSIGN(identity_, identity_of(config_.path));
  sqlite3* db = nullptr;
  int code = sqlite3_open_v2(config_.path.c_str(), &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, nullptr);
  db_.reset(db);
  if (int error = db ? sqlite3_system_errno(db) : 0; code != SQLITE_OK && error != 0)
    return fail_errno(error, "user database {}: open", config_.path);
  if (code != SQLITE_OK) return fail(Errc::io, "{}", database_error(code, "open").error().message);
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
    int kind = code & 0xff;
    bool passes = kind == SQLITE_BUSY || kind == SQLITE_LOCKED || kind == SQLITE_NOMEM;
    return fail(passes ? Errc::unavailable : Errc::invalid, "{}", error.error().message);
  }
  std::string_view rest(tail);
  if (rest.find_first_not_of(" \t\r\n;") != std::string_view::npos)
    return fail(Errc::invalid, "user database {}: the query holds a second statement: {}", config_.path,
                rest);
  if (!statement_ || !sqlite3_stmt_readonly(statement_.get()))
    return fail(Errc::invalid, "user database {}: the query must be a SELECT: {}", config_.path,
                one_line(config_.query));
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
        config_.path, one_line(config_.query));
  return {};
}

Result<SqliteConnection::Columns> SqliteConnection::find_columns() const {
  Columns columns;
  columns.fill(-1);
  ColumnSet has{};
  int count = sqlite3_column_count(statement_.get());
  for (int i = 0; i < count; ++i)
    if (auto column = column_named(sqlite3_column_name(statement_.get(), i))) {
      columns[static_cast<std::size_t>(*column)] = i;
      has[static_cast<std::size_t>(*column)] = true;
    }
  if (auto missing = reader_.missing(has)) {
    std::string_view name = column_names[static_cast<std::size_t>(*missing)];
    return fail(Errc::invalid,
                "user database {}: the query yields no column \"{}\" (use AS to name it), and there is no "
                "users.{}: {}",
                config_.path, name, name, one_line(config_.query));
  }
  if (auto lost = seen_.lost(has))
    return fail(Errc::unavailable,
                "user database {}: the query yields no column \"{}\" any more; the query is: {}",
                config_.path, column_names[static_cast<std::size_t>(*lost)], one_line(config_.query));
  return columns;
}

Status SqliteConnection::bind(const char* parameter, const std::string& value) {
  int index = sqlite3_bind_parameter_index(statement_.get(), parameter);
  if (index == 0) return {};
  // Static: the values outlive the step, and are unbound after it.
  int code = sqlite3_bind_text64(statement_.get(), index, value.data(), value.size(), SQLITE_STATIC,
                                 SQLITE_UTF8);
  if (code != SQLITE_OK) return database_error(code, "bind");
  return {};
}

Result<std::string> SqliteConnection::text_of(int column) const {
  int type = sqlite3_column_type(statement_.get(), column);
  if (type != SQLITE_TEXT && type != SQLITE_INTEGER)
    return fail(Errc::invalid, "column \"{}\" is neither text nor an integer",
                sqlite3_column_name(statement_.get(), column));
  const unsigned char* text = sqlite3_column_text(statement_.get(), column);
  if (!text) return fail(Errc::exhausted, "no memory");
  auto bytes = static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column));
  return std::string(reinterpret_cast<const char*>(text), bytes);
}

Result<Row> SqliteConnection::read_row(const Columns& columns) const {
  Row row;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] < 0 || sqlite3_column_type(statement_.get(), columns[i]) == SQLITE_NULL) continue;
    TL_TRY_ASSIGN(row.values[i], text_of(columns[i]));
  }
  int count = sqlite3_column_count(statement_.get());
  for (int i = 0; i < count; ++i) {
    const char* name = sqlite3_column_name(statement_.get(), i);
    if (!name || !is_dovecot_column(name) || sqlite3_column_type(statement_.get(), i) == SQLITE_NULL)
      continue;
    TL_TRY_ASSIGN(std::string value, text_of(i));
    row.of_dovecot.emplace_back(name, std::move(value));
  }
  return row;
}

namespace {
// Ends the read transaction and releases the bound values, also after an error.
struct ResetAtEnd {
  sqlite3_stmt* statement;
  ~ResetAtEnd() {
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
  }
};
}  // namespace

std::unexpected<Error> SqliteConnection::row_error(const UserKey& key, const Error& error) const {
  return fail(error.code, "user database {}: the row of {}: {}; the query is: {}", config_.path,
              key.address(), error.message, one_line(config_.query));
}

FindResult SqliteConnection::find(const UserKey& key) {
  std::string address = key.address();
  ResetAtEnd reset{statement_.get()};
  TL_TRY(bind(":user", key.local_part));
  TL_TRY(bind(":domain", key.domain));
  TL_TRY(bind(":address", address));
  int code = sqlite3_step(statement_.get());
  if (code == SQLITE_DONE) return std::nullopt;
  if (code != SQLITE_ROW) return database_error(code, "look-up");
  // The step may have prepared the query again after a change of the schema.
  auto columns = find_columns();
  // The column existed at the start, so the table was changed. Cached users stay valid.
  if (!columns) return fail(Errc::unavailable, "{}", columns.error().message);
  auto row = read_row(*columns);
  if (!row) return row_error(key, row.error());
  code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return row_error(key, {Errc::invalid, "there is more than one"});
  if (code != SQLITE_DONE) return database_error(code, "look-up");
  auto entry = reader_.read(key, *row);
  if (!entry) return row_error(key, entry.error());
  return std::move(*entry);
}

}  // namespace twinloft::lmtpd
