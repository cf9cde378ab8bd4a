// The row of a key as texts, and its conversion to a user.
#pragma once

#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "path_template.h"
#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

enum class Column {
  user,
  uid,
  gid,
  home,
  maildir,
  agent,
  state,
  alias,
  quota_bytes,
  quota_messages,
  quota_rule,
  next_hop,
  detail_folders
};
inline constexpr std::array<std::string_view, 13> column_names = {
    "user",       "uid",      "gid",           "home",        "maildir",
    "agent",      "state",    "alias",         "quota_bytes", "quota_messages",
    "quota_rule", "next_hop", "detail_folders"};
std::optional<Column> column_named(std::string_view name);

// nullopt: the source has no value.
struct Row {
  std::array<std::optional<std::string>, column_names.size()> values;
  // Columns with Dovecot's names (dovecot_fields.h).
  std::vector<std::pair<std::string, std::string>> of_dovecot;
  // Why Dovecot's place of the mail is unknown. Only local deliveries need this place.
  std::optional<Error> wrong_place;
  bool sieve = false;                  // there are fields of Dovecot about Sieve
  std::vector<std::string> not_known;  // the names of unknown fields of Dovecot, which are ignored
  std::optional<std::string>& operator[](Column c) { return values[static_cast<std::size_t>(c)]; }
  const std::optional<std::string>& operator[](Column c) const { return values[static_cast<std::size_t>(c)]; }
};

// Keeps the first error only.
inline void note(Row& row, Status taken) {
  if (!taken && !row.wrong_place) row.wrong_place = std::move(taken).error();
}

using ColumnSet = std::array<bool, column_names.size()>;

// The columns that a query has ever returned. If a column disappears (SELECT *, and a change of the table),
// the query is at fault and not the rows. Thread-safe.
class SeenColumns {
 public:
  std::optional<Column> lost(const ColumnSet& now);  // also remembers new columns

 private:
  std::mutex mutex_;
  ColumnSet seen_{};
};

class RowReader {
 public:
  // Errors: malformed templates.
  static Result<RowReader> create(const UserDefaults& defaults);

  // The first column that is missing for a complete user. Nothing: these columns are enough.
  std::optional<Column> missing(const ColumnSet& has) const;
  // Errors: with the name of the column.
  Result<UserEntry> read(const UserKey& key, const Row& row) const;
  bool uses_domain() const { return home_.uses_domain() || maildir_.uses_domain(); }

 private:
  Result<std::string> text_of(const Row& row, Column column, const PathTemplate& fallback,
                              const PathTemplate::Values& values) const;
  Result<QuotaLimit> quota_of(const Row& row) const;
  static Result<std::uint32_t> id_of(const Row& row, Column column, std::uint32_t fallback);
  Result<UserEntry> read_columns(const UserKey& key, const Row& row) const;

  UserDefaults defaults_;
  PathTemplate name_, home_, maildir_;
};

}  // namespace twinloft::lmtpd
