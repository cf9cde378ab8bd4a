#include "passwd_line.h"

#include <array>

#include "dovecot_fields.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t fields_max = 8;  // the last field may have colons
enum Field { user, password, uid, gid, gecos, home, shell, extra };

std::array<std::string_view, fields_max> split(std::string_view line) {
  std::array<std::string_view, fields_max> out;
  for (std::size_t i = 0; i < fields_max; ++i) {
    std::size_t colon = i + 1 < fields_max ? line.find(':') : std::string_view::npos;
    out[i] = line.substr(0, colon);
    if (colon == std::string_view::npos) break;
    line.remove_prefix(colon + 1);
  }
  return out;
}

void set(Row& row, Column column, std::string_view value) {
  if (!value.empty()) row[column] = std::string(value);
}

}  // namespace

std::string_view name_in_passwd_line(std::string_view line) {
  if (line.starts_with('#')) return {};
  return line.substr(0, line.find(':'));
}

Result<Row> parse_passwd_line(std::string_view line, const UserKey& key) {
  auto fields = split(line);
  Row row;
  set(row, Column::user, fields[user]);
  set(row, Column::uid, fields[uid]);
  set(row, Column::gid, fields[gid]);
  set(row, Column::home, fields[home]);
  DovecotFields fields_of_dovecot(DovecotFields::Origin::passwd_file);
  if (fields[extra].find('\t') != std::string_view::npos)
    note(row, fail(Errc::invalid,
                   "there is a tab in the extra fields: Dovecot separates fields at blanks alone, and reads "
                   "the tab as part of a value"));
  for (std::string_view rest = fields[extra]; !rest.empty();) {
    std::size_t blank = std::min(rest.find(' '), rest.size());
    if (blank > 0) note(row, fields_of_dovecot.take_extra(row, rest.substr(0, blank)));
    rest.remove_prefix(std::min(blank + 1, rest.size()));
  }
  if (!row.wrong_place) note(row, fields_of_dovecot.finish(row, key));
  return row;
}

}  // namespace twinloft::lmtpd
