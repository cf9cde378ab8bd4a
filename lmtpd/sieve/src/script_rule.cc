#include "twinloft/lmtpd/sieve/script_rule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>

namespace twinloft::lmtpd {

namespace {

constexpr std::string_view default_active = "~/.dovecot.sieve";

// Whether Dovecot writes names in lower case. nullopt: it changes them in another way.
std::optional<bool> lowers_names(std::string format) {
  std::erase(format, ' ');
  if (format.empty() || format == "%Lu" || format == "%L{user}" || format == "%{user|lower}") return true;
  if (format == "%u" || format == "%{user}") return false;
  return std::nullopt;
}

// The files that are a user's active script in one storage. Without an active link, the path is the script,
// or a directory with the default link. Where the link is named, a file in the place of the directory is not
// looked at.
std::vector<std::string> files_of(const ScriptStorage& storage) {
  if (!storage.active.empty()) return {storage.active};
  if (storage.path.empty()) return {std::string(default_active)};
  return {storage.path, std::string(default_active)};
}

}  // namespace

ScriptRule decide_scripts(const SieveSettings& settings, bool scripts_in_rows) {
  if (!settings.loads_plugin) return NoUser{"Dovecot's mail_plugins lack \"sieve\" for this protocol"};
  if (!settings.for_all.empty())
    return AllUsers{fmt::format("Dovecot runs a script for users without their own ({})",
                                fmt::join(settings.for_all, ", "))};
  if (scripts_in_rows) return AllUsers{"scripts_in_rows = true"};
  if (!settings.in_userdb.empty())
    return AllUsers{fmt::format("Dovecot's user database may name a user's script ({})",
                                fmt::join(settings.in_userdb, ", "))};
  const std::optional<bool> lower = lowers_names(settings.user_format);
  ByFile by_file;
  for (const ScriptStorage& storage : settings.personal) {
    if (storage.driver != "file")
      return AllUsers{
          fmt::format("the users' scripts are in \"{}\", which lmtpd does not read", storage.driver)};
    for (const std::string& text : files_of(storage)) {
      auto path = ScriptPath::parse(text, lower.value_or(true));
      if (!path) return AllUsers{path.error().message};
      if (text == storage.active && path->is_relative())
        return AllUsers{fmt::format("the path {} of the active script is relative", text)};
      if (path->uses_names() && !lower)
        return AllUsers{
            fmt::format("the path {} has the user's name, which auth_username_format = {} changes", text,
                        settings.user_format)};
      if (std::ranges::find(by_file.any_of, *path) != by_file.any_of.end()) continue;
      by_file.any_of.push_back(std::move(*path));
      by_file.texts.push_back(text);
    }
  }
  if (by_file.any_of.empty()) return NoUser{"Dovecot's setting \"sieve\" is empty"};
  return by_file;
}

std::string describe_rule(const ScriptRule& rule) {
  if (const auto* nobody = std::get_if<NoUser>(&rule)) return "nobody: " + nobody->why;
  if (const auto* all = std::get_if<AllUsers>(&rule)) return "all users: " + all->why;
  return fmt::format("users who have {}", fmt::join(std::get<ByFile>(rule).texts, " or "));
}

}  // namespace twinloft::lmtpd
