#include "passwd_line.h"

#include <array>

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t fields_max = 8;  // the last one may hold colons
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

struct Extra {
  std::string_view name;
  Column column;
};
constexpr Extra extras[] = {{"uid", Column::uid},
                            {"gid", Column::gid},
                            {"home", Column::home},
                            {"mail", Column::maildir},
                            {"twinloft_agent", Column::agent},
                            {"twinloft_next_hop", Column::next_hop},
                            {"twinloft_detail_folders", Column::detail_folders},
                            {"twinloft_state", Column::state},
                            {"twinloft_alias", Column::alias},
                            {"quota_rule", Column::quota_rule},
                            {"quota_storage_size", Column::quota_bytes},
                            {"quota_message_count", Column::quota_messages}};

void take_extra(Row& row, std::string_view word) {
  constexpr std::string_view prefix = "userdb_";
  if (word.starts_with(prefix)) word.remove_prefix(prefix.size());
  std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return;
  for (const Extra& e : extras)
    if (word.substr(0, equals) == e.name) row[e.column] = std::string(word.substr(equals + 1));
}

// The path in Dovecot's mail_location, "maildir:~/Maildir:INDEX=...", as the column maildir has it.
Result<std::string> path_of(std::string_view mail, const UserKey& key) {
  constexpr std::string_view format = "maildir:";
  if (!mail.starts_with(format)) return fail(Errc::invalid, "mail={}: expected maildir:PATH", mail);
  mail = mail.substr(format.size());
  mail = mail.substr(0, mail.find(':'));
  std::string out;
  if (mail.starts_with("%h/")) out = "~", mail.remove_prefix(2);
  for (std::size_t i = 0; i < mail.size(); ++i) {
    if (mail[i] != '%') {
      out += mail[i];
      continue;
    }
    switch (++i < mail.size() ? mail[i] : '\0') {
      case 'u':
        out += key.address();
        break;
      case 'n':
        out += key.local_part;
        break;
      case 'd':
        out += key.domain;
        break;
      case '%':
        out += '%';
        break;
      default:
        return fail(Errc::invalid, "mail=maildir:{}: known are %u, %n, %d, %%, and %h at the start", mail);
    }
  }
  return out;
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
  for (std::string_view rest = fields[extra]; !rest.empty();) {
    std::size_t blank = std::min(rest.find_first_of(" \t"), rest.size());
    take_extra(row, rest.substr(0, blank));
    rest.remove_prefix(std::min(blank + 1, rest.size()));
  }
  if (auto& mail = row[Column::maildir]) {
    TL_TRY_ASSIGN(mail, path_of(*mail, key));
  }
  return row;
}

}  // namespace twinloft::lmtpd
