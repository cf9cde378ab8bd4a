#include "row.h"

#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "dovecot_fields.h"
#include "twinloft/lmtpd/userdb/check.h"
#include "twinloft/lmtpd/userdb/quota_limit.h"

namespace twinloft::lmtpd {

namespace {

std::string_view name_of(Column column) {
  return column_names[static_cast<std::size_t>(column)];
}

// Replaces "~" at the start by the home. "~" alone: the Maildir is the home.
std::string at_home(std::string path, const std::string& home) {
  if (path == "~" || path.starts_with("~/")) path.replace(0, 1, home);
  return path.empty() ? path : normal_path(path);
}

// Finds the id of an account or group of this machine by name, because Dovecot accepts names too.
std::optional<std::uint64_t> id_of_name(const std::string& name, bool is_group) {
  std::vector<char> buffer(std::size_t{1} << 16);
  if (is_group) {
    group entry{}, *found = nullptr;
    if (::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || !found)
      return std::nullopt;
    return found->gr_gid;
  }
  passwd entry{}, *found = nullptr;
  if (::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || !found)
    return std::nullopt;
  return found->pw_uid;
}

// Any table may have an address in a column `mail`, which is not a location. A path without a format counts
// as a location, and is refused later.
bool is_location(std::string_view name, std::string_view value) {
  if (name != "mail" || value.starts_with('/') || value.starts_with('~') || value.starts_with('%'))
    return true;
  std::size_t letters = value.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_");
  return letters != std::string_view::npos && letters > 0 && value[letters] == ':';
}

Result<UserState> state_of(const Row& row) {
  const auto& text = row[Column::state];
  if (!text || text->empty() || *text == "active") return UserState::active;
  if (*text == "disabled") return UserState::disabled;
  if (*text == "deferred") return UserState::deferred;
  return fail(Errc::invalid, "column \"state\" is \"{}\"; expected active, disabled or deferred", *text);
}

}  // namespace

std::optional<Column> column_named(std::string_view name) {
  auto found = std::find(column_names.begin(), column_names.end(), name);
  if (found == column_names.end()) return std::nullopt;
  return static_cast<Column>(found - column_names.begin());
}

std::optional<Column> SeenColumns::lost(const ColumnSet& now) {
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < now.size(); ++i)
    if (seen_[i] && !now[i]) return static_cast<Column>(i);
  for (std::size_t i = 0; i < now.size(); ++i) seen_[i] = seen_[i] || now[i];
  return std::nullopt;
}

Result<RowReader> RowReader::create(const UserDefaults& defaults) {
  RowReader out;
  out.defaults_ = defaults;
  TL_TRY_ASSIGN(out.name_, PathTemplate::parse("users.name", defaults.name, PathTemplate::Part::domain));
  TL_TRY_ASSIGN(out.home_, PathTemplate::parse("users.home", defaults.home, PathTemplate::Part::name));
  TL_TRY_ASSIGN(out.maildir_,
                PathTemplate::parse("users.maildir", defaults.maildir, PathTemplate::Part::home));
  // A sample user shows errors that every user would have.
  PathTemplate::Values values{"user", "example.org", "user", "/home/user"};
  User trial;
  trial.name = "a user";
  trial.uid = trial.gid = 1;
  trial.home = out.home_.empty() ? "/" : normal_path(out.home_.expand(values));
  trial.maildir = at_home(out.maildir_.expand(values), values.home);
  trial.agent = defaults.agent;
  trial.next_hop = defaults.next_hop;
  TL_TRY(check_user(trial));
  return out;
}

std::optional<Column> RowReader::missing(const ColumnSet& has) const {
  auto lacks = [&](Column c) { return !has[static_cast<std::size_t>(c)]; };
  if (lacks(Column::user) && name_.empty()) return Column::user;
  if (!lacks(Column::next_hop) || !defaults_.next_hop.empty())
    return std::nullopt;  // these columns are enough for a row
  if (lacks(Column::uid) && defaults_.uid == 0) return Column::uid;
  if (lacks(Column::gid) && defaults_.gid == 0) return Column::gid;
  if (lacks(Column::home) && home_.empty()) return Column::home;
  return std::nullopt;
}

Result<std::string> RowReader::text_of(const Row& row, Column column, const PathTemplate& fallback,
                                       const PathTemplate::Values& values) const {
  if (row[column]) return *row[column];
  if (!fallback.fits(values))
    return fail(Errc::invalid,
                "column \"{}\" has no value, and {}@{} cannot be part of the path that users.{} makes",
                name_of(column), values.user, values.domain, name_of(column));
  return fallback.expand(values);
}

Result<std::uint32_t> RowReader::id_of(const Row& row, Column column, std::uint32_t fallback) {
  const auto& text = row[column];
  if (!text && fallback == 0)
    return fail(Errc::invalid, "column \"{}\" has no value, and there is no users.{}", name_of(column),
                name_of(column));
  if (!text) return fallback;
  std::uint64_t value = 0;
  auto [end, code] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (code == std::errc::invalid_argument || end != text->data() + text->size()) {
    auto named = id_of_name(*text, column == Column::gid);
    if (!named)
      return fail(Errc::invalid, "column \"{}\" is neither a number nor an existing {}: \"{}\"",
                  name_of(column), column == Column::gid ? "group" : "account", *text);
    value = *named, code = {};
  }
  if (code != std::errc() || value < 1 || value >= std::numeric_limits<std::uint32_t>::max())
    return fail(Errc::invalid, "column \"{}\" is {}, which is not a valid id", name_of(column), *text);
  return static_cast<std::uint32_t>(value);
}

// Each limit separately: a limit that the row does not set has its default.
Result<QuotaLimit> RowReader::quota_of(const Row& row) const {
  QuotaLimit out = defaults_.quota;
  auto named = [](Column column, Error error) {
    error.message = fmt::format("column \"{}\": {}", name_of(column), error.message);
    return std::unexpected(std::move(error));
  };
  if (const auto& rule = row[Column::quota_rule]; rule && !rule->empty()) {
    auto parsed = parse_quota_rule(*rule);
    if (!parsed) return named(Column::quota_rule, parsed.error());
    out = *parsed;
  }
  if (const auto& bytes = row[Column::quota_bytes]; bytes && !bytes->empty()) {
    auto parsed = parse_quota_bytes(*bytes);
    if (!parsed) return named(Column::quota_bytes, parsed.error());
    out.bytes = *parsed;
  }
  if (const auto& messages = row[Column::quota_messages]; messages && !messages->empty()) {
    auto parsed = parse_quota_messages(*messages);
    if (!parsed) return named(Column::quota_messages, parsed.error());
    out.messages = *parsed;
  }
  return out;
}

Result<UserEntry> RowReader::read(const UserKey& key, const Row& row) const {
  if (row.of_dovecot.empty()) return read_columns(key, row);
  constexpr std::string_view prefix = "userdb_";
  Row all = row, of_dovecot;
  DovecotFields fields(DovecotFields::Origin::query);
  for (const auto& [column, value] : row.of_dovecot) {
    std::string_view name = column;
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    if (DovecotFields::is_quota(name) || (is_location(name, value) && !row[Column::maildir]))
      note(of_dovecot, fields.take(of_dovecot, name, value));
  }
  if (!of_dovecot.wrong_place) note(of_dovecot, fields.finish(of_dovecot, key));
  all.wrong_place = of_dovecot.wrong_place;
  for (std::size_t i = 0; i < all.values.size(); ++i)
    if (!all.values[i]) all.values[i] = std::move(of_dovecot.values[i]);
  return read_columns(key, all);
}

Result<UserEntry> RowReader::read_columns(const UserKey& key, const Row& row) const {
  if (const auto& alias = row[Column::alias]; alias && !alias->empty()) return Alias{*alias};
  PathTemplate::Values values{key.local_part, key.domain, {}, {}};
  User user;
  user.name = row[Column::user] ? *row[Column::user] : name_.expand(values);
  // An address without domain: "%user%@%domain%" is the user's name alone.
  if (!row[Column::user] && key.domain.empty() && user.name.ends_with('@')) user.name.pop_back();
  values.name = user.name;
  TL_TRY_ASSIGN(user.state, state_of(row));
  user.next_hop = row[Column::next_hop].value_or(defaults_.next_hop);
  if (!user.next_hop.empty()) {
    TL_TRY(check_user(user));
    return user;
  }
  if (row.wrong_place) return std::unexpected(*row.wrong_place);
  TL_TRY_ASSIGN(user.uid, id_of(row, Column::uid, defaults_.uid));
  TL_TRY_ASSIGN(user.gid, id_of(row, Column::gid, defaults_.gid));
  if (!row[Column::home] && home_.empty())
    return fail(Errc::invalid, "column \"home\" has no value, and there is no users.home");
  TL_TRY_ASSIGN(user.home, text_of(row, Column::home, home_, values));
  user.home = normal_path(user.home);
  values.home = user.home;
  TL_TRY_ASSIGN(user.maildir, text_of(row, Column::maildir, maildir_, values));
  user.maildir = at_home(std::move(user.maildir), user.home);
  user.agent = row[Column::agent].value_or(defaults_.agent);
  user.sieve_in_row = row.sieve;
  TL_TRY_ASSIGN(user.quota, quota_of(row));
  if (const auto& folders = row[Column::detail_folders]; folders && !folders->empty()) {
    auto parsed = parse_folders_by_detail(*folders);
    if (!parsed) return fail(Errc::invalid, "column \"detail_folders\": {}", parsed.error().message);
    user.detail_folders = *parsed;
  }
  TL_TRY(check_user(user));
  return user;
}

Status check_defaults(const UserDefaults& defaults) {
  TL_TRY_ASSIGN([[maybe_unused]] RowReader reader, RowReader::create(defaults));
  return {};
}

}  // namespace twinloft::lmtpd
