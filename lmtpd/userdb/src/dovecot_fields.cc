#include "dovecot_fields.h"

#include <algorithm>
#include <array>

#include "fold.h"
#include "twinloft/lmtpd/userdb/check.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::string_view prefix = "userdb_";

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
                                     {"quota_rule", Column::quota_rule},
                                     {"quota_storage_size", Column::quota_bytes},
                                     {"quota_message_count", Column::quota_messages}};

constexpr std::string_view location_fields[] = {"mail",
                                                "mail_location",
                                                "mail_driver",
                                                "mail_path",
                                                "mail_inbox_path",
                                                "mailbox_list_layout",
                                                "mailbox_list_utf8",
                                                "mail_control_path",
                                                "mail_alt_path"};

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

// Prefixes of Dovecot's settings and fields that do not change the place of mail or whether it is accepted.
constexpr std::string_view harmless_userdb[] = {"acl",
                                                "imap",
                                                "pop3",
                                                "lmtp_",
                                                "lda_",
                                                "nice",
                                                "fts",
                                                "mail_index_",
                                                "mail_cache_path",
                                                "mail_volatile",
                                                "mail_plugins",
                                                "mail_max_",
                                                "mail_debug",
                                                "mail_log",
                                                "mail_access_",
                                                "mail_privileged",
                                                "mail_attachment",
                                                "system_groups_user",
                                                "virtual",
                                                "trash",
                                                "expire",
                                                "last_login",
                                                "notify",
                                                "push_notification",
                                                "event_",
                                                "mailbox_list_index",
                                                "allow_nets",
                                                "nopassword",
                                                "mail_attribute",
                                                "mail_sort_",
                                                "mail_prefetch",
                                                "mail_fsync",
                                                "mail_crypt",
                                                "quota_warning",
                                                "quota_status",
                                                "welcome"};
constexpr std::string_view harmless_passdb[] = {"password",
                                                "nopassword",
                                                "allow_nets",
                                                "allow_real_nets",
                                                "nologin",
                                                "nodelay",
                                                "user",
                                                "login_user",
                                                "noauthenticate",
                                                "fail",
                                                "pass",
                                                "host",
                                                "hostip",
                                                "port",
                                                "destuser",
                                                "proxy_",
                                                "starttls",
                                                "ssl",
                                                "master",
                                                "delay_until",
                                                "k5principals",
                                                "event_",
                                                "forward_",
                                                "auth_mech",
                                                "reason",
                                                "source_ip",
                                                "cert_username",
                                                "code",
                                                "k5",
                                                "authz",
                                                "allowed_mechs"};

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

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
  return std::ranges::find(location_fields, name) != std::end(location_fields) ||
         std::ranges::any_of(refused_fields, is) || name.starts_with("namespace") ||
         name.find('/') != std::string_view::npos;
}

// ---- variables

// The meaning of "%" depends on Dovecot's version and on the field. Dovecot expands no variables in the
// result of a query.
enum class Variables {
  none,        // the result of a query
  dovecot_23,  // userdb_mail in a passwd-file
  dovecot_24,  // userdb_mail_path in a passwd-file
  either,      // userdb_home in a passwd-file
  braces,      // the home's own field in a passwd-file: 2.3 expands nothing, 2.4 expands %{...}
};

std::string_view known(Variables variables) {
  switch (variables) {
    case Variables::none:
      return "Dovecot expands no variables in the result of a query: build the path in the query";
    case Variables::dovecot_23:
      return "known are %u, %n, %d, %h at the start, and %{user}, %{username}, %{domain}, %{home}";
    case Variables::either:
      return "known are %u, %n, %d, %{user}, %{username}, %{domain}, and Dovecot 2.4's %{user|username}, "
             "%{user|domain}";
    case Variables::dovecot_24:
    case Variables::braces:
      break;
  }
  return "known are Dovecot 2.4's %{user}, %{user|username}, %{user|domain}; the home is \"~\" at the start";
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// The home is not known yet, so its value is "~".
struct Value {
  std::string text;
  bool is_home = false;
};

// The value of "user" with filters behind "|".
std::optional<Value> value_with_filters(std::string_view inside, const UserKey& key) {
  std::size_t bar = std::min(inside.find('|'), inside.size());
  if (trimmed(inside.substr(0, bar)) != "user") return std::nullopt;
  std::string value = key.address();
  while (bar < inside.size()) {
    inside.remove_prefix(bar + 1);
    bar = std::min(inside.find('|'), inside.size());
    std::string_view filter = trimmed(inside.substr(0, bar));
    if (filter == "lower") continue;  // keys are in lower case
    if (filter != "username" && filter != "domain") return std::nullopt;
    value = filter == "username" ? key.local_part : key.domain;
  }
  return Value{std::move(value)};
}

// The value of %{inside}.
std::optional<Value> value_of_long(std::string_view inside, const UserKey& key, Variables variables) {
  if (inside == "user") return Value{key.address()};
  if (variables == Variables::dovecot_23 || variables == Variables::either) {
    if (inside == "username") return Value{key.local_part};
    if (inside == "domain") return Value{key.domain};
  }
  if (variables == Variables::dovecot_23)
    return inside == "home" ? std::optional(Value{"~", true}) : std::nullopt;
  return value_with_filters(inside, key);
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

struct Found {
  std::optional<Value> value;  // nullopt: an unknown variable
  std::size_t bytes = 1;
};

// `text` begins with a "%".
Found variable_at(std::string_view text, const UserKey& key, Variables variables) {
  bool in_braces = text.starts_with("%{");
  const Found literal{Value{"%"}, 1};
  if (variables == Variables::none)
    return in_braces || (text.size() > 1 && is_letter(text[1])) ? Found{} : literal;
  if (in_braces) {
    std::size_t end = text.find('}');
    if (end == std::string_view::npos) return {};
    return {value_of_long(text.substr(2, end - 2), key, variables), end + 1};
  }
  if (variables == Variables::braces) return literal;
  if (variables == Variables::dovecot_24) return {};
  std::size_t at = text.starts_with("%L") ? 2 : 1;
  if (at >= text.size()) return {};
  return {value_of_short(text[at], key), at + 1};
}

// "~" at the start is the home.
Result<std::string> expand(std::string_view text, const UserKey& key, Variables variables) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '%') {
      out += text[i++];
      continue;
    }
    auto [value, bytes] = variable_at(text.substr(i), key, variables);
    bool home_is_known = variables == Variables::dovecot_23 && i == 0;
    if (!value || (value->is_home && !home_is_known))
      return fail(Errc::invalid, "\"{}\": {}", text, known(variables));
    if (!fits_path(value->text))
      return fail(Errc::invalid, "\"{}\": a value of it cannot be part of a path", text);
    out += value->text;
    i += bytes;
  }
  if (out.starts_with('~') && out != "~" && !out.starts_with("~/"))
    return fail(Errc::invalid, "\"{}\": expected \"/\" after \"~\"", text);
  return out;
}

// ---- mail_location

// Takes the text up to the next single ":", and this ":" too. A doubled ":" is a literal colon.
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

bool same_path(std::string_view a, std::string_view b) {
  return normal_path(a) == normal_path(b);
}

// Accepts the options of Dovecot 2.3's Maildir that do not change the place of mail.
Status check_harmless(std::string_view name, std::string_view value) {
  constexpr std::string_view harmless[] = {"INDEX",       "INDEXPVT",    "INDEXCACHE", "ITERINDEX",
                                           "VOLATILEDIR", "NO-NOSELECT", "BROKENCHAR"};
  if (std::ranges::find(harmless, name) == std::end(harmless))
    return fail(Errc::invalid,
                "lmtpd writes Maildir++ with names in modified UTF-7 and its control files in the Maildir; "
                "Dovecot would look elsewhere, or show nothing");
  if (name == "BROKENCHAR" && value.size() != 1)
    return fail(Errc::invalid, "Dovecot shows nothing: it expects one character");
  return {};
}

struct Location {
  std::string path;
  std::string layout = "maildir++";  // as written
  bool names_inbox = false;          // INBOX= is set to the same path
};

Status take_option(Location& location, const std::string& option, const UserKey& key, Variables variables) {
  std::size_t equals = std::min(option.find('='), option.size());
  std::string name = option.substr(0, equals), value = option.substr(std::min(equals + 1, option.size()));
  if (name == "LAYOUT" && ascii_lower(value) == "maildir++") {
    location.layout = value;
    return {};
  }
  if (name == "INBOX") {
    TL_TRY_ASSIGN(std::string inbox, expand(value, key, variables));
    location.names_inbox = same_path(inbox, location.path);
    if (location.names_inbox) return {};
    return fail(Errc::invalid,
                "{}: lmtpd delivers to the inbox in the Maildir itself, and Dovecot would not show it",
                option);
  }
  if (name == "CONTROL" && !value.empty()) {
    TL_TRY_ASSIGN(std::string control, expand(value, key, variables));
    if (same_path(control, location.path)) return {};
  }
  if (Status good = check_harmless(name, value); !good)
    return fail(Errc::invalid, "{}: {}", option, good.error().message);
  return {};
}

Result<Location> read_location(std::string_view location, const UserKey& key, Variables variables) {
  constexpr std::string_view format = "maildir:";
  if (ascii_lower(location.substr(0, format.size())) != format)
    return fail(Errc::invalid, "expected maildir:PATH");
  std::string_view rest = location.substr(format.size());
  Location out;
  TL_TRY_ASSIGN(out.path, expand(take_part(rest), key, variables));
  if (out.path.empty()) return fail(Errc::invalid, "expected a path after \"maildir:\"");
  while (!rest.empty()) TL_TRY(take_option(out, take_part(rest), key, variables));
  // With another spelling, Dovecot 2.3 places the inbox in a folder of this name.
  if (out.layout != "maildir++" && !out.names_inbox)
    return fail(Errc::invalid,
                "LAYOUT={}: write LAYOUT=maildir++: with other letters Dovecot has the inbox in a folder",
                out.layout);
  return out;
}

// The path, with "~" for the home.
Result<std::string> maildir_of_location(std::string_view field, std::string_view location, const UserKey& key,
                                        Variables variables) {
  auto read = read_location(location, key, variables);
  if (!read) return fail(Errc::invalid, "{}={}: {}", field, location, read.error().message);
  return std::move(read->path);
}

}  // namespace

bool is_dovecot_column(std::string_view name) {
  if (name.starts_with(prefix) || name.find('/') != std::string_view::npos) return true;
  return DovecotFields::is_quota(name) ||
         (name != "user" && !name.starts_with("namespace") && decides_place(name));
}

bool DovecotFields::is_quota(std::string_view name) {
  return name == "quota_storage_size" || name == "quota_message_count";
}

Status DovecotFields::take(Row& row, std::string_view name, std::string_view value) {
  if (set_column(own_fields, row, name, value) || set_column(dovecot_fields, row, name, value)) return {};
  if (name == "home")
    home_ = std::string(value);
  else if (name == "mail")
    mail_ = std::string(value);
  else if (name == "mail_location")
    location_ = std::string(value);
  else if (name == "mail_driver")
    driver_ = std::string(value);
  else if (name == "mail_path")
    path_ = std::string(value);
  else if (name == "mail_inbox_path")
    inbox_path_ = std::string(value);
  else if (name == "tempfail")
    row[Column::state] = "deferred";
  else if (name == "proxy" || name == "proxy_maybe")
    handed_on_ = true;
  else if (name == "mailbox_list_layout" && ascii_lower(value) == "maildir++")
    return {};
  else if (name == "mailbox_list_utf8" && (value == "no" || value.empty()))
    return {};
  else if ((name == "mail_control_path" || name == "mail_alt_path") && value.empty())
    return {};
  else if (auto refused = std::ranges::find(refused_fields, name, &Refused::name);
           refused != std::end(refused_fields)) {
    if (origin_ == Origin::query && value.empty()) return {};  // the column of a table exists for all users
    return fail(Errc::invalid, "{}{}={}: {}", prefix, name, value, refused->why);
  } else if (decides_place(name))
    return fail(Errc::invalid, "{}{}={}: lmtpd does not know where Dovecot would look for this user's mail",
                prefix, name, value);
  else if (name.starts_with("sieve"))
    row.sieve = true;
  else if (!begins_with_any(name, harmless_userdb))
    row.not_known.push_back(std::string(prefix) + std::string(name));
  return {};
}

Status DovecotFields::take_extra(Row& row, std::string_view word) {
  std::size_t equals = std::min(word.find('='), word.size());
  std::string_view name = word.substr(0, equals), value = word.substr(std::min(equals + 1, word.size()));
  if (name.starts_with(prefix)) return take(row, name.substr(prefix.size()), value);
  if (set_column(own_fields, row, name, value)) return {};
  if (name == "proxy" || name == "proxy_maybe") {
    handed_on_ = true;
    return {};
  }
  auto is_heeded = [&](const Heeded& f) { return f.name == name; };
  if (name != "user" &&
      (name == "home" || std::ranges::any_of(dovecot_fields, is_heeded) || decides_place(name)))
    return fail(Errc::invalid,
                "{}={}: without \"{}\" it is a field of the password database, which Dovecot ignores here: "
                "write {}{}={}",
                name, value, prefix, prefix, name, value);
  if (!begins_with_any(name, harmless_passdb)) row.not_known.push_back(std::string(name));
  return {};
}

// The row already has the home's own field of a passwd-file.
Status DovecotFields::finish_home(Row& row, const UserKey& key) const {
  if (!home_ && (origin_ == Origin::query || !row[Column::home])) return {};
  const std::string& text = home_ ? *home_ : *row[Column::home];
  auto home = expand(text, key,
                     origin_ == Origin::query ? Variables::none
                     : home_                  ? Variables::either
                                              : Variables::braces);
  if (home && home->starts_with('~')) home = fail(Errc::invalid, "\"{}\": expected an absolute path", text);
  if (!home) return fail(Errc::invalid, "{}home={}", home_ ? prefix : "", home.error().message);
  row[Column::home] = std::move(*home);
  return {};
}

// The fields of Dovecot 2.4, where an empty field does not mean the default.
Result<std::optional<std::string>> DovecotFields::new_path(const UserKey& key) const {
  const Variables variables = origin_ == Origin::query ? Variables::none : Variables::dovecot_24;
  auto path_in = [&](std::string_view name, const std::string& text) -> Result<std::string> {
    if (text.empty())
      return fail(Errc::invalid, "{}{}: is empty, and Dovecot would not find the mail", prefix, name);
    auto path = expand(text, key, variables);
    if (!path) return fail(Errc::invalid, "{}{}={}", prefix, name, path.error().message);
    return path;
  };
  std::optional<std::string> out;
  if (path_) {
    TL_TRY_ASSIGN(out, path_in("mail_path", *path_));
  }
  if (!inbox_path_) return out;
  TL_TRY_ASSIGN(std::string inbox, path_in("mail_inbox_path", *inbox_path_));
  if (!out || !same_path(inbox, *out))
    return fail(Errc::invalid,
                "{}mail_inbox_path={}: lmtpd delivers to the inbox in the Maildir itself, and Dovecot would "
                "not show it",
                prefix, *inbox_path_);
  return out;
}

Status DovecotFields::finish(Row& row, const UserKey& key) const {
  if (handed_on_ && !row[Column::next_hop])
    return fail(Errc::invalid,
                "proxy: Dovecot forwards this user to another host: name a next hop, twinloft_next_hop=NAME, "
                "or remove the field");
  if (driver_ && *driver_ != "maildir")
    return fail(Errc::invalid, "{}mail_driver={}: expected maildir", prefix, *driver_);
  TL_TRY(finish_home(row, key));
  const Variables variables = origin_ == Origin::query ? Variables::none : Variables::dovecot_23;
  std::vector<std::string> paths;
  for (auto [field, value] : {std::pair{"mail", &mail_}, {"mail_location", &location_}}) {
    if (!*value) continue;
    TL_TRY_ASSIGN(std::string path, maildir_of_location(field, **value, key, variables));
    paths.push_back(std::move(path));
  }
  TL_TRY_ASSIGN(std::optional<std::string> newer, new_path(key));
  if (newer) paths.push_back(std::move(*newer));
  for (const std::string& path : paths)
    if (!same_path(path, paths.front()))
      return fail(Errc::invalid, "the fields name two Maildirs, {} and {}: leave one of them out",
                  paths.front(), path);
  if (!paths.empty()) row[Column::maildir] = normal_path(paths.front());
  return {};
}

}  // namespace twinloft::lmtpd
