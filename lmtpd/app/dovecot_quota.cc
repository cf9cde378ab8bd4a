#include "dovecot_quota.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <strings.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "doveconf.h"
#include "twinloft/lmtpd/quota_status/policy.h"
#include "twinloft/lmtpd/userdb/quota_limit.h"
#include "twinloft/mail/folder_name.h"

namespace twinloft::lmtpd {

namespace {

// The lines "  name = value" of a section.
std::map<std::string, std::string> settings_in(const std::string& text) {
  std::map<std::string, std::string> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::size_t begin = line.find_first_not_of(" \t"), equals = line.find(" = ");
    if (begin != std::string::npos && equals != std::string::npos)
      out[line.substr(begin, equals - begin)] = line.substr(equals + 3);
  }
  return out;
}

bool has_word(const std::string& text, std::string_view word) {
  std::istringstream words(text);
  for (std::string one; words >> one;)
    if (one == word) return true;
  return false;
}

// Whether a list has this word, in the format of 2.3 (words) or of 2.4 ("quota = yes").
bool is_on(const std::string& text, std::string_view word) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line == fmt::format("{} = yes", word) ||
        (line.find(" = ") == std::string::npos && has_word(line, word)))
      return true;
  return false;
}

Result<std::vector<std::string>> protocols_without_plugin(const Doveconf& doveconf, bool by_all) {
  std::vector<std::string> out;
  TL_TRY_ASSIGN(std::string served, doveconf.ask({"-h", "protocols"}));
  for (const char* protocol : {"imap", "pop3"}) {
    if (!is_on(served, protocol)) continue;
    TL_TRY_ASSIGN(std::string plugins,
                  doveconf.ask({"-f", std::string("protocol=") + protocol, "-h", "mail_plugins"}));
    if (!by_all && !is_on(plugins, "quota")) out.push_back(protocol);
  }
  return out;
}

// ---- differences

std::string limit_keys(const QuotaLimit& limit) {
  return fmt::format("storage = {}, messages = {}", limit.bytes, limit.messages);
}

void compare_rules(const Config& config, const DovecotQuota& dovecot, std::vector<std::string>& out) {
  QuotaLimit limit;
  std::vector<std::string> ignored;
  for (const std::string& rule : dovecot.rules) {
    std::size_t colon = std::min(rule.rfind(':'), rule.size());
    std::string folder = rule.substr(0, colon);
    if (rule.substr(colon) == ":ignore") {
      bool is_inbox = ::strcasecmp(folder.c_str(), "INBOX") == 0;            // in any namespace
      if (!is_inbox && !folder.starts_with(dovecot.inbox_prefix)) continue;  // in another namespace
      if (!is_inbox) folder.erase(0, dovecot.inbox_prefix.size());
      auto directory = mail::quota_folder(folder, config.delivery.maildir.folders.separator);
      ignored.push_back(directory ? *directory : folder);
    } else if (rule.starts_with("*:")) {
      auto parsed = parse_quota_rule(rule);
      if (parsed)
        limit = *parsed;
      else
        out.push_back(fmt::format("quota: lmtpd does not support Dovecot's rule for all folders: {}",
                                  parsed.error().message));
    }  // a limit of a single folder: ignored
  }
  const QuotaLimit& ours = config.users.defaults.quota;
  if (limit != ours)
    out.push_back(fmt::format(
        "quota.storage: the default limit is {} here, but {} in Dovecot (quota_rule): each program "
        "would recount after the other; write {}",
        limit_keys(ours), limit_keys(limit), limit_keys(limit)));
  std::vector<std::string> our_ignored = config.delivery.maildir.quota.ignored;
  std::ranges::sort(ignored);
  std::ranges::sort(our_ignored);
  if (ignored != our_ignored)
    out.push_back(
        fmt::format("quota.ignore: the folders [{}] do not count here, but [{}] do not count in Dovecot "
                    "(quota_rule...:ignore)",
                    fmt::join(our_ignored, ", "), fmt::join(ignored, ", ")));
}

void compare_maildir(const Config& config, const DovecotQuota& dovecot, std::vector<std::string>& out) {
  std::string driver = dovecot.quota.substr(0, dovecot.quota.find(':'));
  if (driver != "maildir") {
    out.push_back(fmt::format(
        "quota.driver: is \"maildir\", but Dovecot's own quota is \"{}\": mail that Dovecot adds or "
        "removes would not be counted; write driver = \"none\", "
        "or quota = maildir:User quota in Dovecot's plugin section (2.4: driver = maildir in its "
        "quota section)",
        dovecot.quota));
    return;
  }
  for (const std::string& protocol : dovecot.without_plugin)
    out.push_back(
        fmt::format("quota.driver: Dovecot does not load its plugin \"quota\" in protocol {} (mail_plugins): "
                    "mail removed there would still be counted",
                    protocol));
  if (std::ranges::count(dovecot.quota, ':') > 1)
    out.push_back(
        fmt::format("quota.driver: Dovecot's \"{}\" has options, but lmtpd supports none", dovecot.quota));
  if (dovecot.location.find(":CONTROL=") != std::string::npos)
    out.push_back(
        "quota.driver: Dovecot keeps maildirsize outside the Maildir (CONTROL= in mail_location, "
        "mail_control_path), but lmtpd keeps it inside: each would count only its own mail; remove that "
        "setting, or write driver = \"count\"");
  if (dovecot.location.find(":LAYOUT=fs") != std::string::npos)
    out.push_back(
        "quota.driver: Dovecot has nested directories as folders (LAYOUT=fs in mail_location), but lmtpd "
        "counts "
        "Maildir++ folders only");
  if (dovecot.vsizes)
    out.push_back("quota.driver: Dovecot counts sizes with CRLF (quota_vsizes), but lmtpd counts file sizes");
  if (dovecot.roots > 1)
    out.push_back(fmt::format("quota.driver: Dovecot has {} quotas for one mailbox, but lmtpd supports one",
                              dovecot.roots));
  if (std::string grace = fmt::format("{}%", config.delivery.maildir.quota.grace_percent);
      !dovecot.grace.empty() && dovecot.grace != grace)
    out.push_back(
        fmt::format("quota.grace_percent: is {}, but Dovecot's quota_grace is {}", grace, dovecot.grace));
  compare_rules(config, dovecot, out);
}

void compare_answers(const DovecotQuota& dovecot, std::vector<std::string>& out) {
  auto must_say = [&](const char* key, const std::string& value, bool right, const char* example) {
    if (!value.empty() && !right)
      out.push_back(
          fmt::format("quota.driver: Dovecot's {} is \"{}\", which lmtpd does not understand; write {}", key,
                      value, example));
  };
  auto success = room_of_action(dovecot.status_success), over = room_of_action(dovecot.status_overquota),
       too_large = room_of_action(dovecot.status_toolarge);
  must_say("quota_status_success", dovecot.status_success, success && *success == Room::enough, "DUNNO");
  must_say("quota_status_overquota", dovecot.status_overquota, over && *over == Room::full,
           "552 5.2.2 Mailbox is full");
  must_say("quota_status_toolarge", dovecot.status_toolarge, too_large && *too_large != Room::enough,
           "552 5.2.3 Message is too large");
}

// lmtpd asks for a lease of several messages only if the user has no limit of messages.
void compare_leases(const Config& config, const DovecotQuota& dovecot, std::vector<std::string>& out) {
  const QuotaConfig& quota = config.delivery.maildir.quota;
  if (quota.lease == 0) return;
  if (dovecot.trash_plugin)
    out.push_back(
        "quota.lease: Dovecot's mail_plugins have \"trash\" (outside of protocol sections): its quota-status "
        "removes mail from Trash until as much fits as lmtpd asks for; write lease = 0");
  const QuotaLimit& ours = config.users.defaults.quota;
  for (const std::string& rule : dovecot.rules) {
    auto limit = rule.starts_with("*:") ? parse_quota_rule(rule) : QuotaLimit{};
    if (!limit && rule.find("messages") != std::string::npos)
      out.push_back(
          fmt::format("quota.lease: lmtpd does not understand Dovecot's limit of messages: {}; "
                      "write lease = 0",
                      limit.error().message));
    if (!limit || !rule.starts_with("*:")) continue;
    if (limit->messages != ours.messages)
      out.push_back(
          fmt::format("quota.messages: the default limit is {} here, but {} in Dovecot (quota_rule, "
                      "quota_message_count); write messages = {}",
                      ours.messages, limit->messages, limit->messages));
    if (ours.bytes != 0 && limit->bytes != ours.bytes)
      out.push_back(
          fmt::format("quota.storage: the default limit is {} here, but {} in Dovecot (quota_rule, "
                      "quota_storage_size); write storage = {}",
                      ours.bytes, limit->bytes, limit->bytes));
  }
}

// With driver "count", Dovecot must also count mail that it has not delivered itself.
void compare_count(const Config& config, const DovecotQuota& dovecot, std::vector<std::string>& out) {
  if (dovecot.quota != "count" && !dovecot.quota.starts_with("count:")) {
    out.push_back(fmt::format(
        "quota.driver: is \"count\", but Dovecot's own quota is \"{}\", which does not count mail "
        "that lmtpd delivers; write quota = count:User quota in "
        "Dovecot's plugin section (2.4: driver = count in its quota section)",
        dovecot.quota));
    return;
  }
  if (!dovecot.vsizes)
    out.push_back("quota.driver: Dovecot's driver count needs quota_vsizes = yes in its plugin section");
  if (!dovecot.status_service)
    out.push_back("quota.driver: Dovecot has no service quota-status, which lmtpd needs");
  else if (!dovecot.status_plugin)
    out.push_back(
        "quota.driver: Dovecot's global mail_plugins lack \"quota\" (outside of protocol sections): its "
        "quota-status would report room for every message");
  for (const std::string& protocol : dovecot.without_plugin)
    out.push_back(
        fmt::format("quota.driver: Dovecot does not load its plugin \"quota\" in protocol {} (mail_plugins): "
                    "mail stored by this protocol has no limit",
                    protocol));
  if (const std::string& ours = config.quota_status.delimiters; ours != dovecot.recipient_delimiter)
    out.push_back(fmt::format(
        "quota.delimiters: is \"{0}\", but Dovecot's recipient_delimiter is \"{1}\": Dovecot might "
        "answer for another user; write delimiters = \"{1}\"",
        ours, dovecot.recipient_delimiter));
  compare_answers(dovecot, out);
  compare_leases(config, dovecot, out);
}

}  // namespace

namespace {

struct Namespace {
  std::string prefix, location;
  bool inbox = false;
};

// The namespace with "inbox = yes".
Namespace inbox_namespace(const std::string& namespaces) {
  std::istringstream lines(namespaces);
  Namespace at;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("namespace ")) at = {};
    if (line == "  inbox = yes") at.inbox = true;
    if (line.starts_with("  prefix = ")) at.prefix = line.substr(11);
    if (line.starts_with("  location = ")) at.location = line.substr(13);
    if (line == "}" && at.inbox) return at;
  }
  return {};
}

Status read_2_3(const Doveconf& doveconf, DovecotQuota& out) {
  TL_TRY_ASSIGN(std::string namespaces, doveconf.ask({"namespace"}));
  Namespace inbox = inbox_namespace(namespaces);
  out.inbox_prefix = inbox.prefix;
  out.location = inbox.location;
  if (out.location.empty()) {
    TL_TRY_ASSIGN(out.location, doveconf.value("mail_location"));
  }
  TL_TRY_ASSIGN(std::string section, doveconf.ask({"plugin"}));
  std::map<std::string, std::string> settings = settings_in(section);
  out.quota = settings["quota"];
  if (std::string& grace = settings["quota_grace"]; !grace.empty())
    out.grace = grace.substr(0, grace.find("%%")) + (grace.ends_with("%%") ? "%" : "");
  out.vsizes = settings["quota_vsizes"] == "yes";
  out.status_success = settings["quota_status_success"];
  out.status_overquota = settings["quota_status_overquota"];
  out.status_toolarge = settings["quota_status_toolarge"];
  for (const auto& [name, value] : settings) {
    std::string_view number = std::string_view(name).substr(std::min<std::size_t>(name.size(), 10));
    bool is_rule = name.starts_with("quota_rule") &&
                   std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
    if (is_rule) out.rules.push_back(value);
  }
  TL_TRY_ASSIGN(out.without_plugin, protocols_without_plugin(doveconf, false));
  return {};
}

// "1 G" as "1G", "unlimited" as 0. A number without a unit is bytes.
std::string size_text(std::string text) {
  std::erase(text, ' ');
  if (text.ends_with("B")) text.pop_back();
  return text == "unlimited" || text.empty() ? "0" : text;
}

std::string trimmed(const std::string& line) {
  std::size_t begin = std::min(line.find_first_not_of(" \t"), line.size());
  return line.substr(begin);
}

// The name of a section, such as in `quota "User quota" {`.
std::string section_name(const std::string& line, std::size_t skip) {
  std::string name = line.substr(skip, line.size() - skip - 2);
  if (name.size() >= 2 && name.front() == '"' && name.back() == '"') name = name.substr(1, name.size() - 2);
  return name;
}

// Reads the quota sections and the mailboxes. Limits that no section sets are taken from out.rules.
void read_quota_sections(const std::string& quota, const std::string& namespaces, DovecotQuota& out) {
  out.grace.clear();
  out.roots = 0;
  std::string limits = out.rules.empty() ? std::string() : out.rules.front();
  auto part = [&](std::string_view key) {
    std::size_t at = limits.find(key);
    if (at == std::string::npos) return std::string();
    at += key.size();
    return limits.substr(at, limits.find(':', at) - at);
  };
  std::string storage = part("storage="), messages = part("messages=");
  out.rules.clear();
  std::istringstream lines(quota);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("quota ") && line.ends_with(" {")) ++out.roots;
    line = trimmed(line);
    auto value = [&](std::string_view key, std::string& into) {
      if (out.roots <= 1 && line.starts_with(fmt::format("{} = ", key))) into = line.substr(key.size() + 3);
    };
    value("driver", out.quota);
    value("storage_size", storage);
    value("message_count", messages);
  }
  out.rules.push_back(fmt::format("*:bytes={}:messages={}", size_text(storage), size_text(messages)));
  out.vsizes = out.quota == "count";  // 2.4's driver count always uses CRLF sizes
  std::string mailbox;
  std::istringstream below(namespaces);
  for (std::string line; std::getline(below, line);) {
    line = trimmed(line);
    if (line.starts_with("mailbox ") && line.ends_with(" {"))
      mailbox = section_name(line, 8);
    else if (line == "}")
      mailbox.clear();
    else if (line == "quota_ignore = yes" && !mailbox.empty())
      out.rules.push_back(mailbox + ":ignore");
  }
}

Status read_2_4(const Doveconf& doveconf, DovecotQuota& out) {
  TL_TRY_ASSIGN(std::string storage, doveconf.value("quota_storage_size"));
  TL_TRY_ASSIGN(std::string messages, doveconf.value("quota_message_count"));
  out.rules.push_back(fmt::format("*:storage={}:messages={}", storage, messages));
  TL_TRY_ASSIGN(std::string quota, doveconf.ask({"quota"}));
  TL_TRY_ASSIGN(std::string namespaces, doveconf.ask({"namespace"}));
  read_quota_sections(quota, namespaces, out);
  TL_TRY_ASSIGN(std::string control, doveconf.value("mail_control_path"));
  if (!control.empty()) out.location = ":CONTROL=" + control;
  TL_TRY_ASSIGN(out.status_success, doveconf.value("quota_status_success"));
  TL_TRY_ASSIGN(out.status_overquota, doveconf.value("quota_status_overquota"));
  TL_TRY_ASSIGN(out.status_toolarge, doveconf.value("quota_status_toolarge"));
  TL_TRY_ASSIGN(out.without_plugin, protocols_without_plugin(doveconf, out.status_plugin));
  return {};
}

}  // namespace

Result<DovecotQuota> read_dovecot_quota(const std::string& config_path) {
  TL_TRY_ASSIGN(Doveconf doveconf, Doveconf::find(config_path));
  DovecotQuota out;
  TL_TRY_ASSIGN(bool is_2_4, doveconf.is_2_4());
  TL_TRY_ASSIGN(std::string services, doveconf.ask({"service"}));
  out.status_service = ("\n" + services).find("\nservice quota-status {") != std::string::npos;
  TL_TRY_ASSIGN(std::string plugins, doveconf.ask({"-h", "mail_plugins"}));
  out.status_plugin = is_on(plugins, "quota");
  out.trash_plugin = is_on(plugins, "trash");
  TL_TRY_ASSIGN(out.recipient_delimiter, doveconf.ask({"-h", "recipient_delimiter"}));
  out.recipient_delimiter.erase(std::min(out.recipient_delimiter.find('\n'), out.recipient_delimiter.size()));
  TL_TRY(is_2_4 ? read_2_4(doveconf, out) : read_2_3(doveconf, out));
  return out;
}

std::vector<std::string> compare_quota(const Config& config, const DovecotQuota& dovecot) {
  std::vector<std::string> out;
  if (config.delivery.maildir.quota.driver == QuotaDriver::maildir)
    compare_maildir(config, dovecot, out);
  else if (config.delivery.maildir.quota.driver == QuotaDriver::count)
    compare_count(config, dovecot, out);
  else if (dovecot.quota.starts_with("maildir"))
    out.push_back(
        fmt::format("quota.driver: is \"none\", but Dovecot's own quota is \"{}\": mail that the built-in "
                    "agent delivers would not be counted; write "
                    "driver = \"maildir\"",
                    dovecot.quota));
  for (std::string& problem : out) problem += " (" + config.dovecot + ")";
  return out;
}

}  // namespace twinloft::lmtpd
