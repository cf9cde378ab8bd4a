#include "dovecot_quota.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <sstream>

#include "twinloft/base/fd.h"
#include "twinloft/lmtpd/quota_status/policy.h"
#include "twinloft/lmtpd/userdb/quota_limit.h"

namespace twinloft::lmtpd {

namespace {

constexpr const char* doveconf_paths[] = {"/usr/bin/doveconf", "/usr/local/bin/doveconf"};
constexpr std::size_t output_bytes_max = 1u << 20;

Result<std::string> find_doveconf() {
  for (const char* path : doveconf_paths)
    if (::access(path, X_OK) == 0) return std::string(path);
  return fail(Errc::not_found, "there is no {}, by which Dovecot's configuration is read", doveconf_paths[0]);
}

// Standard output; standard error where the program fails.
Result<std::string> run(std::vector<std::string> words) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "pipe");
  Fd from(ends[0]), to(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (int number : {STDOUT_FILENO, STDERR_FILENO}) ::posix_spawn_file_actions_adddup2(&actions, to.get(), number);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = -1;
  int failed = ::posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return fail_errno(failed, "{}", words[0]);
  to.reset();
  std::string text;
  char piece[4096];
  for (ssize_t n; (n = ::read(from.get(), piece, sizeof piece)) != 0;) {
    if (n < 0 && errno != EINTR) break;
    if (n > 0 && text.size() < output_bytes_max) text.append(piece, static_cast<std::size_t>(n));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text;
  return fail(Errc::invalid, "{} says: {}", words[0], text.substr(0, text.find('\n')));
}

// The lines "  name = value" of a section.
std::map<std::string, std::string> settings_in(const std::string& text) {
  std::map<std::string, std::string> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::size_t begin = line.find_first_not_of(" \t"), equals = line.find(" = ");
    if (begin != std::string::npos && equals != std::string::npos) out[line.substr(begin, equals - begin)] = line.substr(equals + 3);
  }
  return out;
}

bool has_word(const std::string& text, std::string_view word) {
  std::istringstream words(text);
  for (std::string one; words >> one;)
    if (one == word) return true;
  return false;
}

Result<std::vector<std::string>> protocols_without_plugin(const std::string& doveconf, const std::string& path) {
  std::vector<std::string> out;
  TL_TRY_ASSIGN(std::string served, run({doveconf, "-c", path, "-h", "protocols"}));
  for (const char* protocol : {"imap", "pop3"}) {
    if (!has_word(served, protocol)) continue;
    TL_TRY_ASSIGN(std::string plugins, run({doveconf, "-c", path, "-f", std::string("protocol=") + protocol, "-h", "mail_plugins"}));
    if (!has_word(plugins, "quota")) out.push_back(protocol);
  }
  return out;
}

// ---- what differs --------------------------------------------------------------------------------------------------

std::string limit_keys(const QuotaLimit& limit) { return fmt::format("storage = {}, messages = {}", limit.bytes, limit.messages); }

void compare_rules(const Config& config, const DovecotQuota& dovecot, std::vector<std::string>& out) {
  QuotaLimit limit;
  std::vector<std::string> ignored;
  for (const std::string& rule : dovecot.rules) {
    std::size_t colon = std::min(rule.rfind(':'), rule.size());
    std::string folder = rule.substr(0, colon);
    if (rule.substr(colon) == ":ignore") {
      auto directory = quota_folder(folder, config.delivery.maildir.folders.separator);
      ignored.push_back(directory ? *directory : folder);
    } else if (rule.starts_with("*:")) {
      auto parsed = parse_quota_rule(rule);
      if (parsed) limit = *parsed;
      else out.push_back(fmt::format("quota: Dovecot's rule for all folders cannot be kept: {}", parsed.error().message));
    }  // another folder's own limit: nothing that lmtpd delivers there
  }
  const QuotaLimit& ours = config.users.defaults.quota;
  if (limit != ours)
    out.push_back(fmt::format("quota.storage: users whose rows say nothing have {} here, and {} in Dovecot (quota_rule): each would count anew what the other has "
                              "counted; write {}",
                              limit_keys(ours), limit_keys(limit), limit_keys(limit)));
  std::vector<std::string> our_ignored = config.delivery.maildir.quota.ignored;
  std::ranges::sort(ignored);
  std::ranges::sort(our_ignored);
  if (ignored != our_ignored)
    out.push_back(fmt::format("quota.ignore: the folders [{}] do not count here, and [{}] do not in Dovecot (quota_rule...:ignore)", fmt::join(our_ignored, ", "),
                              fmt::join(ignored, ", ")));
}

void compare_maildir(const Config& config, const DovecotQuota& dovecot, std::vector<std::string>& out) {
  std::string driver = dovecot.quota.substr(0, dovecot.quota.find(':'));
  if (driver != "maildir") {
    out.push_back(fmt::format("quota.driver: is \"maildir\", and Dovecot's own quota is \"{}\": what it adds and removes would not be counted; write driver = \"none\", "
                              "or quota = maildir:User quota in Dovecot's plugin section",
                              dovecot.quota));
    return;
  }
  for (const std::string& protocol : dovecot.without_plugin)
    out.push_back(fmt::format("quota.driver: Dovecot does not load its plugin \"quota\" in protocol {} (mail_plugins), and what is removed there would go on counting",
                              protocol));
  if (std::ranges::count(dovecot.quota, ':') > 1)
    out.push_back(fmt::format("quota.driver: Dovecot's \"{}\" has options, of which lmtpd knows none", dovecot.quota));
  if (dovecot.vsizes) out.push_back("quota.driver: Dovecot counts sizes with CRLF (quota_vsizes), and lmtpd those of the files");
  if (std::string grace = fmt::format("{}%", config.delivery.maildir.quota.grace_percent); dovecot.grace != grace)
    out.push_back(fmt::format("quota.grace_percent: is {}, and Dovecot's quota_grace is {}", grace, dovecot.grace));
  compare_rules(config, dovecot, out);
}

void compare_answers(const DovecotQuota& dovecot, std::vector<std::string>& out) {
  auto must_say = [&](const char* key, const std::string& value, bool right, const char* example) {
    if (!value.empty() && !right) out.push_back(fmt::format("quota.driver: Dovecot's {} is \"{}\", from which lmtpd learns nothing; write {}", key, value, example));
  };
  auto success = room_of_action(dovecot.status_success), over = room_of_action(dovecot.status_overquota), too_large = room_of_action(dovecot.status_toolarge);
  must_say("quota_status_success", dovecot.status_success, success && *success == Room::enough, "DUNNO");
  must_say("quota_status_overquota", dovecot.status_overquota, over && *over == Room::full, "552 5.2.2 Mailbox is full");
  must_say("quota_status_toolarge", dovecot.status_toolarge, too_large && *too_large != Room::enough, "552 5.2.3 Message is too large");
}

// Where Dovecot is asked it has to count what others than Dovecot deliver.
void compare_count(const DovecotQuota& dovecot, std::vector<std::string>& out) {
  if (dovecot.quota != "count" && !dovecot.quota.starts_with("count:")) {
    out.push_back(fmt::format("quota.driver: is \"count\", and Dovecot's own quota is \"{}\", which does not learn of what lmtpd delivers; write quota = count:User quota in "
                              "Dovecot's plugin section",
                              dovecot.quota));
    return;
  }
  if (!dovecot.vsizes) out.push_back("quota.driver: Dovecot's driver count needs quota_vsizes = yes in its plugin section");
  if (!dovecot.status_service) out.push_back("quota.driver: Dovecot has no service quota-status, which is asked");
  else if (!dovecot.status_plugin) out.push_back("quota.driver: Dovecot's mail_plugins do not have \"quota\" outside of all protocols, and its quota-status says that there is room");
  for (const std::string& protocol : dovecot.without_plugin)
    out.push_back(fmt::format("quota.driver: Dovecot does not load its plugin \"quota\" in protocol {} (mail_plugins), which has no limit then", protocol));
  compare_answers(dovecot, out);
}

}  // namespace

Result<DovecotQuota> read_dovecot_quota(const std::string& config_path) {
  TL_TRY_ASSIGN(std::string doveconf, find_doveconf());
  TL_TRY_ASSIGN(std::string section, run({doveconf, "-c", config_path, "plugin"}));
  std::map<std::string, std::string> settings = settings_in(section);
  DovecotQuota out;
  out.quota = settings["quota"];
  if (std::string& grace = settings["quota_grace"]; !grace.empty()) out.grace = grace.substr(0, grace.find("%%")) + (grace.ends_with("%%") ? "%" : "");
  out.vsizes = settings["quota_vsizes"] == "yes";
  out.status_success = settings["quota_status_success"];
  out.status_overquota = settings["quota_status_overquota"];
  out.status_toolarge = settings["quota_status_toolarge"];
  for (const auto& [name, value] : settings) {
    std::string_view number = std::string_view(name).substr(std::min<std::size_t>(name.size(), 10));
    bool is_rule = name.starts_with("quota_rule") && std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
    if (is_rule) out.rules.push_back(value);
  }
  TL_TRY_ASSIGN(std::string services, run({doveconf, "-c", config_path, "service"}));
  out.status_service = services.find("\nservice quota-status {") != std::string::npos;
  TL_TRY_ASSIGN(std::string plugins, run({doveconf, "-c", config_path, "-h", "mail_plugins"}));
  out.status_plugin = has_word(plugins, "quota");
  TL_TRY_ASSIGN(out.without_plugin, protocols_without_plugin(doveconf, config_path));
  return out;
}

std::vector<std::string> compare_quota(const Config& config, const DovecotQuota& dovecot) {
  std::vector<std::string> out;
  if (config.delivery.maildir.quota.driver == QuotaDriver::maildir) compare_maildir(config, dovecot, out);
  else if (config.delivery.maildir.quota.driver == QuotaDriver::count) compare_count(dovecot, out);
  else if (dovecot.quota.starts_with("maildir:"))
    out.push_back(fmt::format("quota.driver: is \"none\", and Dovecot's own quota is \"{}\": mail that the built-in agent delivers would not be counted; write "
                              "driver = \"maildir\"",
                              dovecot.quota));
  for (std::string& problem : out) problem += " (" + config.dovecot + ")";
  return out;
}

}  // namespace twinloft::lmtpd
