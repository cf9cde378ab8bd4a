#include "dovecot_fields.h"

#include <algorithm>
#include <array>

#include "fold.h"
#include "twinloft/lmtpd/userdb/check.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::string_view prefix = "userdb_";
constexpr std::string_view known_variables = "known are %u, %n, %d, %h at the start, and Dovecot 2.4's %{user}, %{user|username}, %{user|domain}, %{home}";

struct Heeded {
  std::string_view name;
  Column column;
};
constexpr Heeded own_fields[] = {{"twinloft_agent", Column::agent},
                                 {"twinloft_next_hop", Column::next_hop},
                                 {"twinloft_detail_folders", Column::detail_folders},
                                 {"twinloft_state", Column::state},
                                 {"twinloft_alias", Column::alias}};
constexpr Heeded dovecot_fields[] = {{"uid", Column::uid},
                                     {"gid", Column::gid},
                                     {"home", Column::home},
                                     {"quota_rule", Column::quota_rule},
                                     {"quota_storage_size", Column::quota_bytes},
                                     {"quota_message_count", Column::quota_messages}};

constexpr std::string_view location_fields[] = {"mail",          "mail_location",       "mail_driver",       "mail_path",
                                                "mail_inbox_path", "mailbox_list_layout", "mailbox_list_utf8", "mail_control_path"};

struct Refused {
  std::string_view name, why;
};
constexpr Refused refused_fields[] = {
    {"user", "it gives the user another name"},
    {"chroot", "paths are taken without a chroot"},
    {"mail_chroot", "paths are taken without a chroot"},
    {"mail_home", "write the home into its field, or userdb_home"},
    {"mail_uid", "write userdb_uid"},
    {"mail_gid", "write userdb_gid"},
    {"mailbox_directory_name", "messages would lie in another directory than the folder's own"},
    {"mailbox_root_directory_name", "folders would lie in another directory than the Maildir"},
    {"mailbox_subscriptions_filename", "subscriptions would be in another file"},
    {"mailbox_list_storage_escape_char", "folders would have other names"},
};

// Of Dovecot's settings and fields: they change neither where mail lies nor who takes it. Prefixes of names.
constexpr std::string_view harmless_userdb[] = {"sieve",        "acl",           "imap",           "pop3",           "lmtp_",        "lda_",        "nice",
                                                "fts",          "mail_index_",   "mail_cache_path", "mail_volatile", "mail_plugins", "mail_max_",   "mail_debug",
                                                "mail_log",     "mail_access_",  "mail_privileged", "mail_attachment", "system_groups_user", "virtual", "trash",
                                                "expire",       "last_login",    "notify",          "push_notification", "event_", "mailbox_list_index", "allow_nets",
                                                "nopassword",   "mail_attribute", "mail_sort_",     "mail_prefetch", "mail_fsync",   "mail_crypt", "quota_warning",
                                                "quota_status", "welcome"};
constexpr std::string_view harmless_passdb[] = {"password", "nopassword", "allow_nets",  "allow_real_nets", "nologin", "nodelay", "user",     "login_user", "noauthenticate",
                                                "fail",     "pass",       "host",        "hostip",          "port",    "destuser", "proxy_", "starttls",   "ssl",
                                                "master",   "delay_until", "k5principals", "event_",        "forward_", "auth_mech", "reason", "source_ip",  "cert_username",
                                                "code",     "k5", "authz", "allowed_mechs"};

template <class Names>
bool begins_with_any(std::string_view name, const Names& names) {
  return std::ranges::any_of(names, [&](std::string_view n) { return name.starts_with(n); });
}

template <class Fields>
bool set_column(const Fields& fields, Row& row, std::string_view name, std::string_view value) {
  for (const Heeded& f : fields) {
    if (f.name != name) continue;
    row[f.column] = std::string(value);
    return true;
  }
  return false;
}

bool decides_place(std::string_view name) {
  auto is = [&](const auto& f) { return f.name == name; };
  return std::ranges::find(location_fields, name) != std::end(location_fields) || std::ranges::any_of(refused_fields, is) || name.starts_with("namespace") ||
         name.find('/') != std::string_view::npos;
}

// ---- variables ------------------------------------------------------------------------------------------------------

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// The home has a value later only: it is written as "~".
struct Value {
  std::string text;
  bool is_home = false;
};

// What stands in %{...}: a name, and filters behind "|".
std::optional<Value> value_of_long(std::string_view inside, const UserKey& key) {
  std::size_t bar = std::min(inside.find('|'), inside.size());
  std::string_view name = trimmed(inside.substr(0, bar));
  inside.remove_prefix(std::min(bar + 1, inside.size()));
  if (name == "home" && inside.empty()) return Value{"~", true};
  bool is_user = name == "user";
  if (!is_user && name != "username" && name != "domain") return std::nullopt;
  std::string value = is_user ? key.address() : name == "username" ? key.local_part : key.domain;
  while (!inside.empty()) {
    bar = std::min(inside.find('|'), inside.size());
    std::string_view filter = trimmed(inside.substr(0, bar));
    inside.remove_prefix(std::min(bar + 1, inside.size()));
    if (filter == "lower") continue;  // keys are
    if (!is_user || (filter != "username" && filter != "domain")) return std::nullopt;
    value = filter == "username" ? key.local_part : key.domain;
  }
  return Value{std::move(value)};
}

std::optional<Value> value_of_short(char c, const UserKey& key) {
  switch (c) {
    case 'u':
      return Value{key.address()};
    case 'n':
      return Value{key.local_part};
    case 'd':
      return Value{key.domain};
    case 'h':
      return Value{"~", true};
    case '%':
      return Value{"%"};
    default:
      return std::nullopt;
  }
}

// "~" at the start is the home.
Result<std::string> expand(std::string_view text, const UserKey& key) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    std::size_t end = i;
    std::optional<Value> value;
    if (text.substr(i).starts_with("%{")) {
      end = text.find('}', i);
      if (end != std::string_view::npos) value = value_of_long(text.substr(i + 2, end - i - 2), key);
    } else {
      end = text.substr(i).starts_with("%L") ? i + 2 : i + 1;
      if (end < text.size()) value = value_of_short(text[end], key);
    }
    if (!value || (value->is_home && i != 0)) return fail(Errc::invalid, "\"{}\": {}", text, known_variables);
    if (!fits_path(value->text)) return fail(Errc::invalid, "\"{}\": a value of it cannot be part of a path", text);
    out += value->text;
    i = end;
  }
  if (out.starts_with('~') && out != "~" && !out.starts_with("~/")) return fail(Errc::invalid, "\"{}\": behind \"~\" a \"/\" is expected", text);
  return out;
}

// ---- mail_location --------------------------------------------------------------------------------------------------

// Up to the next single ":", which is taken too; a doubled one is a colon.
std::string take_part(std::string_view& rest) {
  std::string out;
  while (!rest.empty()) {
    char c = rest.front();
    rest.remove_prefix(1);
    if (c == ':' && !rest.starts_with(':')) return out;
    if (c == ':') rest.remove_prefix(1);
    out += c;
  }
  return out;
}

bool same_path(std::string_view a, std::string_view b) { return normal_path(a) == normal_path(b); }

Status check_option(const std::string& option, const std::string& path, const UserKey& key) {
  constexpr std::string_view harmless[] = {"INDEX", "INDEXPVT", "INDEXCACHE", "ITERINDEX", "VOLATILEDIR", "NO-NOSELECT", "KEEP-NOSELECT", "BROKENCHAR", "ALT"};
  std::size_t equals = std::min(option.find('='), option.size());
  std::string name = option.substr(0, equals), value = option.substr(std::min(equals + 1, option.size()));
  if (std::ranges::find(harmless, name) != std::end(harmless)) return {};
  if (name == "LAYOUT" && ascii_lower(value) == "maildir++") return {};
  if (name == "INBOX") {
    TL_TRY_ASSIGN(std::string inbox, expand(value, key));
    if (same_path(inbox, path)) return {};
    return fail(Errc::invalid, "{}: lmtpd delivers to the inbox in the Maildir itself, and Dovecot would not show it", option);
  }
  if (name == "CONTROL" && !value.empty()) {
    TL_TRY_ASSIGN(std::string control, expand(value, key));
    if (same_path(control, path)) return {};
  }
  return fail(Errc::invalid, "{}: lmtpd writes Maildir++ with names in modified UTF-7 and its control files in the Maildir; Dovecot would look elsewhere", option);
}

}  // namespace

Result<std::string> maildir_of_location(std::string_view location, const UserKey& key) {
  constexpr std::string_view format = "maildir:";
  if (ascii_lower(location.substr(0, format.size())) != format) return fail(Errc::invalid, "mail={}: expected maildir:PATH", location);
  std::string_view rest = location.substr(format.size());
  auto path = expand(take_part(rest), key);
  if (!path) return fail(Errc::invalid, "mail={}: {}", location, path.error().message);
  if (path->empty()) return fail(Errc::invalid, "mail={}: expected a path behind \"maildir:\"", location);
  while (!rest.empty())
    if (Status good = check_option(take_part(rest), *path, key); !good) return fail(Errc::invalid, "mail={}: {}", location, good.error().message);
  return path;
}

bool is_dovecot_column(std::string_view name) {
  if (name.starts_with(prefix)) return true;
  return std::ranges::find(location_fields, name) != std::end(location_fields);
}

Status DovecotFields::take(Row& row, std::string_view name, std::string_view value) {
  if (set_column(own_fields, row, name, value) || set_column(dovecot_fields, row, name, value)) return {};
  if (name == "mail" || name == "mail_location") mail_ = std::string(value);
  else if (name == "mail_driver") driver_ = std::string(value);
  else if (name == "mail_path") path_ = std::string(value);
  else if (name == "mail_inbox_path") inbox_path_ = std::string(value);
  else if (name == "tempfail") row[Column::state] = "deferred";
  else if (name == "proxy" || name == "proxy_maybe") handed_on_ = true;
  else if (name == "mailbox_list_layout" && ascii_lower(value) == "maildir++") return {};
  else if (name == "mailbox_list_utf8" && (value == "no" || value.empty())) return {};
  else if (name == "mail_control_path" && value.empty()) return {};
  else if (auto known = std::ranges::find(refused_fields, name, &Refused::name); known != std::end(refused_fields))
    return fail(Errc::invalid, "{}{}={}: {}", prefix, name, value, known->why);
  else if (decides_place(name)) return fail(Errc::invalid, "{}{}={}: lmtpd does not know where Dovecot would look for this user's mail", prefix, name, value);
  else if (!begins_with_any(name, harmless_userdb)) row.not_known.push_back(std::string(prefix) + std::string(name));
  return {};
}

Status DovecotFields::take_extra(Row& row, std::string_view word) {
  std::size_t equals = std::min(word.find('='), word.size());
  std::string_view name = word.substr(0, equals), value = word.substr(std::min(equals + 1, word.size()));
  // Of a passwd-file Dovecot expands these fields, and not the line's own home.
  if (name == "userdb_home") {
    home_ = std::string(value);
    return {};
  }
  if (name.starts_with(prefix)) return take(row, name.substr(prefix.size()), value);
  if (set_column(own_fields, row, name, value)) return {};
  if (name == "proxy" || name == "proxy_maybe") {
    handed_on_ = true;
    return {};
  }
  auto is_heeded = [&](const Heeded& f) { return f.name == name; };
  if (name != "user" && (std::ranges::any_of(dovecot_fields, is_heeded) || decides_place(name)))
    return fail(Errc::invalid, "{}={}: without \"{}\" it is a field of the password database, which Dovecot does not heed here: write {}{}={}", name, value, prefix, prefix,
                name, value);
  if (!begins_with_any(name, harmless_passdb)) row.not_known.push_back(std::string(name));
  return {};
}

Status DovecotFields::finish(Row& row, const UserKey& key) const {
  if (handed_on_ && !row[Column::next_hop])
    return fail(Errc::invalid, "proxy: Dovecot hands this user on to another host: name a next hop, twinloft_next_hop=NAME, or take the field out");
  if (driver_ && *driver_ != "maildir") return fail(Errc::invalid, "{}mail_driver={}: expected maildir", prefix, *driver_);
  if (home_) {
    auto home = expand(*home_, key);
    if (home && home->starts_with('~')) home = fail(Errc::invalid, "\"{}\": expected an absolute path", *home_);
    if (!home) return fail(Errc::invalid, "{}home={}", prefix, home.error().message);
    row[Column::home] = std::move(*home);
  }
  std::optional<std::string> old_path, new_path;
  if (mail_) {
    TL_TRY_ASSIGN(old_path, maildir_of_location(*mail_, key));
  }
  if (path_ && !path_->empty()) {
    auto path = expand(*path_, key);
    if (!path) return fail(Errc::invalid, "{}mail_path={}", prefix, path.error().message);
    new_path = std::move(*path);
  }
  if (old_path && new_path && !same_path(*old_path, *new_path))
    return fail(Errc::invalid, "{}mail and {}mail_path name two Maildirs: leave one of them out", prefix, prefix);
  if (inbox_path_ && !inbox_path_->empty()) {
    auto inbox = expand(*inbox_path_, key);
    if (!inbox || !new_path || !same_path(*inbox, *new_path))
      return fail(Errc::invalid, "{}mail_inbox_path={}: lmtpd delivers to the inbox in the Maildir itself, and Dovecot would not show it", prefix, *inbox_path_);
  }
  if (new_path || old_path) row[Column::maildir] = normal_path(new_path ? *new_path : *old_path);
  return {};
}

}  // namespace twinloft::lmtpd
