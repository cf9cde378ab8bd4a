#include "mysql_connection.h"

#include <errmsg.h>

#include <algorithm>
#include <string_view>

#include "dovecot_fields.h"

namespace twinloft::lmtpd {

namespace {

// The library's timeouts are in seconds.
unsigned seconds_of(std::chrono::milliseconds time) {
  return static_cast<unsigned>(std::max<std::int64_t>(1, (time.count() + 999) / 1000));
}

const char* or_null(const std::string& text) {
  return text.empty() ? nullptr : text.c_str();
}

// Errors caused by the configuration, not by the state of the server.
bool is_configuration(unsigned number) {
  constexpr unsigned access_denied_for_database = 1044, access_denied = 1045, unknown_database = 1049,
                     parse_error = 1064, no_such_column = 1054, table_access_denied = 1142,
                     column_access_denied = 1143, no_such_table = 1146, read_only = 1792;
  constexpr unsigned all[] = {
      access_denied_for_database, access_denied,        unknown_database, parse_error, no_such_column,
      table_access_denied,        column_access_denied, no_such_table,    read_only};
  return std::find(std::begin(all), std::end(all), number) != std::end(all);
}

// For TCP without a verified server. Other plugins would reveal the password to any server that answers:
// caching_sha2_password encrypts it with a key that the server chooses.
constexpr const char* careful_plugins = "mysql_native_password,client_ed25519";

// The server ends the connection: it shuts down, or the connection was idle for too long.
bool is_farewell(unsigned number) {
  constexpr unsigned shutdown_in_progress = 1053, connection_killed = 1927, client_interaction_timeout = 4031;
  return number == shutdown_in_progress || number == connection_killed ||
         number == client_interaction_timeout;
}

// The character set of the table does not have a character of the key. The server and other keys are not
// affected.
bool is_about_the_key(unsigned number) {
  constexpr unsigned mix_of_two_collations = 1267, mix_of_three_collations = 1270, mix_of_collations = 1271,
                     no_such_character = 1300, wrong_value = 1366, cannot_convert = 1977;
  constexpr unsigned all[] = {mix_of_two_collations, mix_of_three_collations,
                              mix_of_collations,     no_such_character,
                              wrong_value,           cannot_convert};
  return std::find(std::begin(all), std::end(all), number) != std::end(all);
}

}  // namespace

std::unexpected<Error> MysqlConnection::failed(unsigned number, const char* text, const char* doing) {
  if (opened_ && is_about_the_key(number))
    return fail(Errc::conflict, "user database {}: {}: {} ({}); the query is: {}", host_.text, doing, text,
                number, one_line(config_.query));
  good_ = false;
  lost_ = (number >= CR_MIN_ERROR && number <= CR_MAX_ERROR) || is_farewell(number);
  return fail(!opened_ && is_configuration(number) ? Errc::invalid : Errc::unavailable,
              "user database {}: {}: {} ({}); the query is: {}", host_.text, doing, text, number,
              one_line(config_.query));
}

// Some errors are reported by the statement, others only by the connection.
std::unexpected<Error> MysqlConnection::statement_failed(const char* doing) {
  unsigned number = mysql_stmt_errno(statement_.get());
  if (number != 0) return failed(number, mysql_stmt_error(statement_.get()), doing);
  return failed(mysql_errno(mysql_.get()), mysql_error(mysql_.get()), doing);
}

Result<std::unique_ptr<MysqlConnection>> MysqlConnection::open(const MysqlDbConfig& config,
                                                               const MysqlHost& host, const NamedQuery& query,
                                                               const RowReader& reader) {
  std::unique_ptr<MysqlConnection> out(new MysqlConnection(config, host, query, reader));
  TL_TRY(out->connect());
  TL_TRY(out->prepare());
  TL_TRY(out->find_columns());
  TL_TRY(out->bind_results());
  out->opened_ = true;
  return out;
}

Status MysqlConnection::connect() {
  mysql_.reset(mysql_init(nullptr));
  if (!mysql_) return fail(Errc::exhausted, "user database {}: no memory", host_.text);
  MYSQL* m = mysql_.get();
  unsigned connect = seconds_of(config_.connect_timeout), answer = seconds_of(config_.query_timeout),
           no_files = 0;
  my_bool no = 0, yes = 1;
  mysql_optionsv(m, MYSQL_OPT_CONNECT_TIMEOUT, &connect);
  mysql_optionsv(m, MYSQL_OPT_READ_TIMEOUT, &answer);
  mysql_optionsv(m, MYSQL_OPT_WRITE_TIMEOUT, &answer);
  // The library would reconnect without preparing the query again, so MysqlDb reconnects.
  mysql_optionsv(m, MYSQL_OPT_RECONNECT, &no);
  mysql_optionsv(m, MYSQL_OPT_LOCAL_INFILE, &no_files);  // a server must not ask for files of this machine
  mysql_optionsv(m, MYSQL_SET_CHARSET_NAME, "utf8mb4");
  if (config_.tls != MysqlTls::none) {
    mysql_ssl_set(m, or_null(config_.tls_key), or_null(config_.tls_certificate), or_null(config_.tls_ca),
                  nullptr, nullptr);
    mysql_optionsv(m, MYSQL_OPT_SSL_ENFORCE, &yes);
    mysql_optionsv(m, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, config_.tls == MysqlTls::verified ? &yes : &no);
  }
  bool over_tcp = host_.socket.empty();
  unsigned tcp = MYSQL_PROTOCOL_TCP;
  if (over_tcp) mysql_optionsv(m, MYSQL_OPT_PROTOCOL, &tcp);  // also to "localhost"
  if (over_tcp && config_.tls != MysqlTls::verified)
    mysql_optionsv(m, MARIADB_OPT_RESTRICTED_AUTH, careful_plugins);
  if (!mysql_real_connect(m, or_null(host_.host), config_.user.c_str(), config_.password.c_str(),
                          config_.database.c_str(), host_.port, or_null(host_.socket), 0))
    return failed(mysql_errno(m), mysql_error(m), "connect");
  // The library continues without TLS if the server does not offer it.
  if (over_tcp && config_.tls != MysqlTls::none && !mysql_get_ssl_cipher(m))
    return failed(CR_SSL_CONNECTION_ERROR, "the server offers no TLS", "connect");
  // Otherwise every look-up would see the tables as the first look-up saw them.
  if (mysql_autocommit(m, 1) != 0) return failed(mysql_errno(m), mysql_error(m), "autocommit");
  // No query may change data.
  if (mysql_query(m, "SET SESSION TRANSACTION READ ONLY") != 0)
    return failed(mysql_errno(m), mysql_error(m), "read only");
  return {};
}

Status MysqlConnection::prepare() {
  statement_.reset(mysql_stmt_init(mysql_.get()));
  if (!statement_) return fail(Errc::exhausted, "user database {}: no memory", host_.text);
  MYSQL_STMT* s = statement_.get();
  if (mysql_stmt_prepare(s, query_.text.data(), query_.text.size()) != 0) return statement_failed("query");
  if (mysql_stmt_param_count(s) != query_.parameters.size())
    return fail(Errc::invalid,
                "user database {}: the server sees {} parameters in the query, and there are {}: {}",
                host_.text, mysql_stmt_param_count(s), query_.parameters.size(), one_line(config_.query));
  return {};
}

Status MysqlConnection::find_columns() {
  std::unique_ptr<MYSQL_RES, Close> about(mysql_stmt_result_metadata(statement_.get()));
  if (!about)
    return fail(Errc::invalid, "user database {}: the query must be a SELECT: {}", host_.text,
                one_line(config_.query));
  std::array<bool, column_names.size()> has{};
  values_.resize(mysql_num_fields(about.get()));
  for (std::size_t i = 0; i < values_.size(); ++i) {
    values_[i].name = mysql_fetch_field_direct(about.get(), static_cast<unsigned>(i))->name;
    auto column = column_named(values_[i].name);
    if (!column) continue;
    values_[i].column = static_cast<int>(*column);
    has[static_cast<std::size_t>(*column)] = true;
  }
  if (auto missing = reader_.missing(has)) {
    std::string_view name = column_names[static_cast<std::size_t>(*missing)];
    return fail(Errc::invalid,
                "user database {}: the query yields no column \"{}\" (use AS to name it), and there is no "
                "users.{}: {}",
                host_.text, name, name, one_line(config_.query));
  }
  return {};
}

// Binds all columns as text, independent of their types.
Status MysqlConnection::bind_results() {
  std::vector<MYSQL_BIND> binds(values_.size());
  for (std::size_t i = 0; i < values_.size(); ++i) {
    Value& v = values_[i];
    binds[i].buffer_type = MYSQL_TYPE_STRING;
    binds[i].buffer = v.bytes.data();
    binds[i].buffer_length = v.bytes.size();
    binds[i].length = &v.length;
    binds[i].is_null = &v.is_null;
    binds[i].error = &v.cut;
  }
  MYSQL_STMT* s = statement_.get();
  if (mysql_stmt_bind_result(s, binds.data()) != 0) return statement_failed("results");
  return {};
}

Status MysqlConnection::execute(const UserKey& key) {
  std::vector<std::string> texts;
  for (QueryParameter p : query_.parameters) texts.push_back(value_of(p, key));
  std::vector<MYSQL_BIND> binds(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    binds[i].buffer_type = MYSQL_TYPE_STRING;
    binds[i].buffer = texts[i].data();
    binds[i].buffer_length = texts[i].size();
  }
  MYSQL_STMT* s = statement_.get();
  if (mysql_stmt_bind_param(s, binds.data()) != 0 || mysql_stmt_execute(s) != 0)
    return statement_failed("look-up");
  return {};
}

Result<bool> MysqlConnection::next_row() {
  int got = mysql_stmt_fetch(statement_.get());
  if (got == MYSQL_NO_DATA) return false;
  if (got == 0 || got == MYSQL_DATA_TRUNCATED) return true;
  return statement_failed("look-up");
}

Result<Row> MysqlConnection::row() const {
  Row out;
  for (const Value& v : values_) {
    bool of_dovecot = v.column < 0 && is_dovecot_column(v.name);
    if ((v.column < 0 && !of_dovecot) || v.is_null) continue;
    if (v.length > v.bytes.size()) return fail(Errc::invalid, "column \"{}\" has {} bytes", v.name, v.length);
    std::string value(v.bytes.data(), v.length);
    if (of_dovecot)
      out.of_dovecot.emplace_back(v.name, std::move(value));
    else
      out.values[static_cast<std::size_t>(v.column)] = std::move(value);
  }
  return out;
}

std::unexpected<Error> MysqlConnection::row_error(const UserKey& key, const Error& error) const {
  return fail(error.code, "user database {}: the row of {}: {}; the query is: {}", host_.text, key.address(),
              error.message, one_line(config_.query));
}

FindResult MysqlConnection::find_row(const UserKey& key) {
  TL_TRY(execute(key));
  TL_TRY_ASSIGN(bool there, next_row());
  if (!there) return std::nullopt;
  auto found = row();
  TL_TRY_ASSIGN(bool more, next_row());
  if (more) {
    good_ = false;  // closed, since reading the other rows may take long
    return row_error(key, {Errc::invalid, "there is more than one"});
  }
  if (!found) return row_error(key, found.error());
  auto entry = reader_.read(key, *found);
  if (!entry) return row_error(key, entry.error());
  return std::move(*entry);
}

FindResult MysqlConnection::find(const UserKey& key) {
  FindResult found = find_row(key);
  if (good_) mysql_stmt_free_result(statement_.get());
  return found;
}

}  // namespace twinloft::lmtpd
