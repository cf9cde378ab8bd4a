// One connection to a MariaDB or MySQL server with the prepared look-up. Used by one thread at a time.
#pragma once

#include <mysql.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "named_query.h"
#include "row.h"
#include "twinloft/lmtpd/userdb/mysql_db.h"

namespace twinloft::lmtpd {

class MysqlConnection {
 public:
  // Errors: Errc::invalid if the server refuses the login, or the query or its columns are wrong. All
  // references must outlive the connection.
  static Result<std::unique_ptr<MysqlConnection>> open(const MysqlDbConfig& config, const MysqlHost& host,
                                                       const NamedQuery& query, const RowReader& reader);

  FindResult find(const UserKey& key);
  // After an error of find(): whether the connection is lost, so that another server or another connection
  // may succeed.
  bool lost() const { return lost_; }
  bool good() const { return good_; }  // for another look-up

 private:
  static constexpr std::size_t value_bytes_max = 8192;
  struct Close {
    void operator()(MYSQL* m) const { mysql_close(m); }
    void operator()(MYSQL_STMT* s) const { mysql_stmt_close(s); }
    void operator()(MYSQL_RES* r) const { mysql_free_result(r); }
  };
  struct Value {  // of a column of the result
    std::vector<char> bytes = std::vector<char>(value_bytes_max);
    unsigned long length = 0;
    my_bool is_null = 0, cut = 0;
    int column = -1;  // of Row; -1: not a column of Row
    std::string name;
  };

  MysqlConnection(const MysqlDbConfig& config, const MysqlHost& host, const NamedQuery& query,
                  const RowReader& reader)
      : config_(config), host_(host), query_(query), reader_(reader) {}
  Status connect();
  Status prepare();
  Status find_columns();
  Status bind_results();
  Result<bool> next_row();
  Status execute(const UserKey& key);
  Result<Row> row() const;
  FindResult find_row(const UserKey& key);
  std::unexpected<Error> failed(unsigned number, const char* text, const char* doing);
  std::unexpected<Error> statement_failed(const char* doing);
  std::unexpected<Error> row_error(const UserKey& key, const Error& error) const;

  const MysqlDbConfig& config_;
  const MysqlHost& host_;
  const NamedQuery& query_;
  const RowReader& reader_;
  std::unique_ptr<MYSQL_STMT, Close> statement_;
  std::unique_ptr<MYSQL, Close> mysql_;  // closed before the statement, which would otherwise
                                         // read all rows of a result
  std::vector<Value> values_;
  bool opened_ = false, lost_ = false, good_ = true;
};

}  // namespace twinloft::lmtpd
