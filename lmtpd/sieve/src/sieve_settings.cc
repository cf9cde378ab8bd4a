#include "twinloft/lmtpd/sieve/sieve_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace twinloft::lmtpd {

namespace {

// Of both versions.
constexpr std::string_view usual_directory = "~/sieve", usual_active = "~/.dovecot.sieve";

bool is_numbered(std::string_view name, std::string_view base) {
  if (!name.starts_with(base)) return false;
  name.remove_prefix(base.size());
  return std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
}

// "file:~/sieve;active=~/.dovecot.sieve"
ScriptStorage storage_of(std::string_view text) {
  ScriptStorage out;
  std::size_t colon = text.find(':');
  bool has_driver = colon != std::string_view::npos &&
                    text.substr(0, colon).find_first_of("/~%;") == std::string_view::npos;
  if (has_driver) {
    out.driver = text.substr(0, colon);
    text.remove_prefix(colon + 1);
  }
  out.path = text.substr(0, text.find(';'));
  while (text.find(';') != std::string_view::npos) {
    text.remove_prefix(text.find(';') + 1);
    std::string_view option = text.substr(0, text.find(';'));
    if (option.starts_with("active=")) out.active = option.substr(option.find('=') + 1);
  }
  return out;
}

void read_2_3(const DoveconfSection& root, SieveSettings& out) {
  static const DoveconfSection none;
  const DoveconfSection* section = root.find("plugin", "");
  const DoveconfSection& plugin = section ? *section : none;
  const std::string own = plugin.value("sieve");
  if (!plugin.has("sieve"))
    out.personal.push_back({"file", std::string(usual_directory), std::string(usual_active)});
  else if (!own.empty())
    out.personal.push_back(storage_of(own));
  for (const auto& [name, value] : plugin.values) {
    bool for_all = is_numbered(name, "sieve_before") || is_numbered(name, "sieve_after") ||
                   name == "sieve_default" || name == "sieve_global_path";
    if (for_all && !value.empty()) out.for_all.push_back(fmt::format("{} = {}", name, value));
  }
}

// doveconf prints the short names of a section's settings.
std::string of_script(const DoveconfSection& script, const std::string& name) {
  return script.has(name) ? script.value(name) : script.value("sieve_script_" + name);
}

// A script with another cause than delivery runs when a client stores a message.
bool is_for_delivery(const DoveconfSection& script) {
  std::string cause = of_script(script, "cause");
  return cause.empty() || cause.find("delivery") != std::string::npos;
}

// Where no personal script is found, 2.4 looks in the default place.
void read_2_4(const DoveconfSection& root, SieveSettings& out) {
  for (const DoveconfSection& script : root.sections) {
    if (script.kind != "sieve_script" || !is_for_delivery(script)) continue;
    std::string type = of_script(script, "type"), driver = of_script(script, "driver");
    if (type.empty() || type == "personal")
      out.personal.push_back(
          {driver.empty() ? "file" : driver, of_script(script, "path"), of_script(script, "active_path")});
    else if (type != "global" && type != "discard")
      out.for_all.push_back(fmt::format("sieve_script {}, type {}", script.name, type));
  }
  out.personal.push_back({"file", std::string(usual_directory), std::string(usual_active)});
}

// "sieve" at the start of a word.
bool names_sieve(std::string_view text) {
  for (std::size_t at = text.find("sieve"); at != std::string_view::npos; at = text.find("sieve", at + 1)) {
    std::string_view before = text.substr(0, at);
    if (before.ends_with("userdb_")) return true;
    char last = before.empty() ? ' ' : before.back();
    bool inside = (last >= 'a' && last <= 'z') || (last >= 'A' && last <= 'Z') ||
                  (last >= '0' && last <= '9') || last == '_' || last == '/' || last == '.' || last == '-';
    if (!inside) return true;
  }
  return false;
}

void look_in_userdb(const DoveconfSection& section, std::string_view where, std::vector<std::string>& out) {
  for (const auto& [name, value] : section.values)
    if (names_sieve(name) || names_sieve(value))
      out.push_back(fmt::format("{}: {} = {}", where, name, value));
  for (const DoveconfSection& inner : section.sections) look_in_userdb(inner, where, out);
}

// What a user's row may have, is in the configuration itself for "static" and in no place for system
// accounts. 2.4 shows queries and fields, and "*" in a query hides them. A field of a passdb may be one of
// the userdb.
bool hides_rows(const DoveconfSection& section, bool is_2_4) {
  std::string driver = section.value("driver");
  if (driver.empty()) driver = section.name;
  if (driver == "static" || driver == "passwd" || driver == "nss" || driver == "pam" || driver == "shadow" ||
      driver == "bsdauth")
    return false;
  if (!is_2_4 || (driver != "sql" && driver != "ldap")) return true;
  return section.value("query").find('*') != std::string::npos;
}

}  // namespace

SieveSettings read_sieve_settings(const DoveconfOutput& output) {
  SieveSettings out;
  const DoveconfSection& root = output.root;
  out.is_2_4 = output.is_2_4();
  out.loads_plugin = root.lists("mail_plugins", "sieve");
  out.user_format = root.value("auth_username_format");
  out.is_2_4 ? read_2_4(root, out) : read_2_3(root, out);
  for (const DoveconfSection& section : root.sections) {
    if (section.kind != "userdb" && section.kind != "passdb") continue;
    look_in_userdb(section, section.kind, out.in_userdb);
    // With a passdb alone, fields "userdb_..." count only where a userdb "prefetch" takes them.
    if (section.kind == "userdb" && hides_rows(section, out.is_2_4))
      out.hidden_rows.push_back(
          fmt::format("userdb {}", section.value("driver").empty() ? section.name : section.value("driver")));
  }
  return out;
}

}  // namespace twinloft::lmtpd
