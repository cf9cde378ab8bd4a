// One read-only SQLite connection with the prepared look-up. Used by one thread at a time.
#pragma once

#include <sqlite3.h>
#include <sys/types.h>

#include <array>
#include <memory>
#include <string>

#include "row.h"
#include "twinloft/lmtpd/userdb/sqlite_db.h"

namespace twinloft::lmtpd {

struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};
// Errors: Errc::not_found if the file does not exist.
Result<FileIdentity> identity_of(const std::string& path);

class SqliteConnection {
 public:
  // Errors: no such file, not a database, or a query that is malformed, writes, has unknown parameters or
  // lacks columns.
  static Result<std::unique_ptr<SqliteConnection>> open(const SqliteDbConfig& config, const RowReader& reader,
                                                        SeenColumns& seen);

  FindResult find(const UserKey& key);
  const FileIdentity& identity() const { return identity_; }

 private:
  struct CloseDb {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  using Columns = std::array<int, column_names.size()>;  // the index in the result; -1: missing

  SqliteConnection(const SqliteDbConfig& config, const RowReader& reader, SeenColumns& seen)
      : config_(config), reader_(reader), seen_(seen) {}
  Status connect();
  Status prepare();
  Status check_parameters() const;
  Result<Columns> find_columns() const;
  Status bind(const char* parameter, const std::string& value);
  Result<Row> read_row(const Columns& columns) const;
  Result<std::string> text_of(int column) const;
  std::unexpected<Error> row_error(const UserKey& key, const Error& error) const;
  std::unexpected<Error> database_error(int code, const char* doing) const;

  const SqliteDbConfig& config_;  // of the pool that owns this connection
  const RowReader& reader_;
  SeenColumns& seen_;
  FileIdentity identity_;
  std::unique_ptr<sqlite3, CloseDb> db_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

}  // namespace twinloft::lmtpd
