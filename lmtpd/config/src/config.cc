#include "twinloft/lmtpd/config/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "compare_limits.h"
#include "find_ignored.h"
#include "read_address.h"
#include "read_agent.h"
#include "read_filters.h"
#include "read_next_hop.h"
#include "read_sieve.h"
#include "read_spool_milter.h"
#include "read_users.h"
#include "toml_table.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/suggest.h"
#include "twinloft/lmtpd/proto/path.h"
#include "twinloft/lmtpd/userdb/check.h"
#include "twinloft/mail/folder_name.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t config_bytes_max = 1 << 20;

void read_networks(const TomlTable& t, std::string_view key, Networks& out) {
  std::vector<std::string> words;
  t.texts(key, words);
  auto networks = Networks::parse(words);
  if (networks)
    out = std::move(*networks);
  else
    t.error(key, networks.error().message);
}

void read_rules(const TomlTable& t, ListenRules& rules) {
  std::string tls = "none";
  t.text("tls", tls);
  if (tls == "offered")
    rules.tls = TlsPolicy::offered;
  else if (tls == "required")
    rules.tls = TlsPolicy::required;
  else if (tls != "none")
    t.wrong_word("tls", "expected \"none\", \"offered\" or \"required\"", tls,
                 {"none", "offered", "required"});
  read_networks(t, "trusted", rules.may_speak_for);
  read_networks(t, "proxies", rules.proxies);
}

void read_client_subjects(const TomlTable& t, Config& config) {
  std::vector<std::string> names;
  t.texts("client_subjects", names);
  if (!t.has("client_subjects")) return;
  if (names.empty()) return t.error("client_subjects", "is an empty list: no client could connect");
  if (!config.tls.client_certificate_required)
    return t.error(
        "client_subjects",
        "needs client_certificate = \"require\": otherwise a client without a certificate is let in");
  for (const std::string& name : names)
    if (name.empty() || name[0] == '.' || name.find_first_of("* /") != std::string::npos)
      t.error("client_subjects",
              fmt::format("\"{}\": expected a whole name as in the certificate, such as \"mx1.example.org\"",
                          name));
  for (std::string& name : names)
    if (auto normal = normal_domain(name)) name = std::move(*normal);
  config.tls.client_subjects = std::move(names);
}

// A client without STARTTLS would be served without a certificate.
void check_certificate_is_required(const TomlTable& t, const Config& config) {
  if (!config.tls.client_certificate_required) return;
  for (const ListenSettings& listen : config.listen)
    if (listen.rules.tls == TlsPolicy::offered)
      t.error("client_certificate",
              fmt::format("is \"require\", and [[listen]] {} has tls = \"offered\": a client without "
                          "STARTTLS is served there without a certificate. Write tls = \"required\" there",
                          listen.address));
    else if (listen.rules.tls == TlsPolicy::none && listen.unix_path.empty())
      t.warning("client_certificate",
                fmt::format("is \"require\", and [[listen]] {} has no TLS: its clients show no certificate",
                            listen.address));
}

void read_tls(const TomlTable& top, Config& config) {
  const toml::table* raw = top.child("tls");
  bool wanted = std::any_of(config.listen.begin(), config.listen.end(),
                            [](const ListenSettings& l) { return l.rules.tls != TlsPolicy::none; });
  if (!raw && wanted)
    return top.error("tls", "is missing: a [[listen]] offers TLS, which needs a certificate and a key");
  if (!raw) return;
  TomlTable t(top.problems(), *raw, "tls");
  t.allow({"certificate", "key", "client_ca", "client_certificate", "client_subjects", "min_version"});
  t.path("certificate", config.tls.certificate, true);
  t.path("key", config.tls.key, true);
  t.path("client_ca", config.tls.client_ca);
  std::string client = "request", version = "1.2";
  t.text("client_certificate", client);
  t.text("min_version", version);
  config.tls.client_certificate_required = client == "require";
  if (client != "request" && client != "require")
    t.wrong_word("client_certificate", "expected \"request\" or \"require\"", client, {"request", "require"});
  else if (t.has("client_certificate") && config.tls.client_ca.empty())
    t.error("client_certificate", "needs client_ca, the authorities of the clients' certificates");
  read_client_subjects(t, config);
  check_certificate_is_required(t, config);
  config.tls.tls_1_2 = version == "1.2";
  if (version != "1.2" && version != "1.3") t.error("min_version", "expected \"1.2\" or \"1.3\"");
}

void read_listen(const TomlTable& top, Config& config) {
  const toml::node* node = top.raw().get("listen");
  if (node && node->is_table())
    return top.error("listen", "expected [[listen]], with two brackets on each side");
  const toml::array* array = node ? node->as_array() : nullptr;
  if (!array || array->empty())
    return top.error("listen", "at least one [[listen]] with an address is needed");
  for (const toml::node& entry : *array) {
    const toml::table* raw = entry.as_table();
    if (!raw) return top.error("listen", "expected [[listen]] sections");
    TomlTable t(top.problems(), *raw, "listen");
    t.allow({"address", "mode", "group", "tls", "trusted", "proxies"});
    ListenSettings listen;
    bool good = read_listen_address(t, listen);
    read_rules(t, listen.rules);
    if (listen.address.empty()) continue;
    for (const ListenSettings& other : config.listen)
      if (std::string why = clash(other, listen); good && !why.empty()) t.error("address", why);
    config.listen.push_back(std::move(listen));
  }
}

void read_limits(const TomlTable& top, Config& config) {
  const toml::table* raw = top.child("limits");
  if (!raw) return;
  TomlTable t(top.problems(), *raw, "limits");
  LimitSettings& l = config.limits;
  t.allow({"message_size", "header_size", "recipients", "connections", "connections_per_address",
           "idle_timeout", "transaction_timeout", "queue_time", "stop_timeout", "bad_commands",
           "refused_recipients", "body_memory", "body_memory_total", "body_directory", "body_disk_total",
           "deliveries", "deliveries_per_transaction", "deliveries_per_user", "io_threads"});
  t.size("message_size", 1024, no_bound, l.message_bytes_max);
  t.size("header_size", 1024, 64u << 20, l.header_bytes_max);
  t.number("recipients", 1, 100'000, l.recipients_max);
  t.number("connections", 1, 100'000, l.connections_max);
  t.number("connections_per_address", 1, 100'000, l.connections_per_address_max);
  t.duration("idle_timeout", l.idle_timeout);
  t.duration("transaction_timeout", l.transaction_timeout);
  t.duration("queue_time", l.queue_time);
  t.duration("stop_timeout", l.stop_timeout);
  t.number("bad_commands", 1, 10'000, l.bad_commands_max);
  t.number("refused_recipients", 1, 1'000'000, l.refused_max);
  t.size("body_memory", 0, 1u << 30, l.body_memory);
  t.size("body_memory_total", 1u << 16, no_bound, l.body_memory_total);
  t.path("body_directory", l.body_directory);
  t.size("body_disk_total", 1u << 16, no_bound, l.body_disk_total);
  t.number("deliveries", 1, 4096, l.deliveries);
  t.number("deliveries_per_transaction", 1, 4096, l.deliveries_per_transaction);
  t.number("deliveries_per_user", 1, 4096, l.deliveries_per_user);
  t.number("io_threads", 1, 64, l.io_threads);
  if (l.body_memory > l.body_memory_total)
    t.error("body_memory", "is larger than body_memory_total: no message would fit");
  if (l.message_bytes_max > l.body_memory && l.message_bytes_max > l.body_disk_total)
    t.error("body_disk_total", "is less than message_size: a message of that size would never fit");
  config.delivery.per_user_max = l.deliveries_per_user;
}

void read_spool_watch(const TomlTable& t, SpoolWatchConfig& watch) {
  SpoolRules& rules = watch.rules;
  t.path("state_file", watch.state_file);
  std::uint64_t reserve = 0;
  t.size("reserve", 0, 1ull << 50, reserve);
  if (t.has("reserve")) rules.reserve_bytes = reserve;
  auto suspended_for = std::chrono::duration_cast<std::chrono::milliseconds>(rules.suspended_for);
  t.duration("suspended_for", suspended_for, true);
  rules.suspended_for = suspended_for;
}

void read_spool(const TomlTable& top, bool hands_on, SpoolConfig& spool, SpoolWatchConfig& watch) {
  const toml::table* raw = top.child("spool");
  if (!raw && hands_on) return;
  if (!raw) return top.error("spool", "is missing; add [spool] with path and volume");
  TomlTable t(top.problems(), *raw, "spool");
  t.allow({"path", "volume", "require_marker", "state_file", "reserve", "suspended_for"});
  t.path("path", spool.root, true);
  read_spool_watch(t, watch);
  bool require_marker = true;
  t.flag("require_marker", require_marker);
  std::string volume;
  t.text("volume", volume);
  if (!require_marker && volume.empty()) return;
  if (!require_marker) return t.error("require_marker", "is false, and a volume is set: remove one of them");
  if (volume.empty())
    return t.error("volume",
                   "is missing: the UUID in the file .twinloft-spool at the spool's root; only for a plain "
                   "directory write require_marker = false");
  auto uuid = Uuid::parse(volume);
  if (!uuid) return t.error("volume", uuid.error().message);
  spool.volume = *uuid;
}

void read_folders(const TomlTable& t, FolderConfig& out) {
  std::string detail = "none", separator(1, out.separator);
  t.text("detail_folders", detail);
  if (auto parsed = parse_folders_by_detail(detail))
    out.detail = *parsed;
  else
    t.error("detail_folders", parsed.error().message);
  t.text("folder_separator", separator);
  if (separator == "." || separator == "/")
    out.separator = separator[0];
  else
    t.error("folder_separator", "expected \".\" or \"/\", as the separator of Dovecot's namespace");
  t.number("folders_max", 0, 1'000'000, out.folders_max);
  t.flag("subscribe", out.subscribe);
}

// The settings of the driver "maildir". "count" has the limits too: they tell what to ask Dovecot for.
void read_quota_limits(const TomlTable& t, Config& config) {
  QuotaConfig& out = config.delivery.maildir.quota;
  QuotaLimit& limit = config.users.defaults.quota;
  t.size("storage", 0, std::uint64_t{1} << 62, limit.bytes);
  t.number("messages", 0, std::uint64_t{1} << 62, limit.messages);
  t.number("grace_percent", 0, 100, out.grace_percent);
  std::vector<std::string> folders;
  t.texts("ignore", folders);
  for (const std::string& folder : folders)
    if (auto directory = mail::quota_folder(folder, config.delivery.maildir.folders.separator))
      out.ignored.push_back(*directory);
    else
      t.error("ignore", directory.error().message);
}

void read_quota_status(const TomlTable& t, const LimitSettings& limits, QuotaStatusConfig& out) {
  std::string address;
  t.text("address", address, true);
  auto target = parse_connect_target(with_ascii_host(address));
  if (target)
    out.target = std::move(*target);
  else if (!address.empty())
    t.error("address", fmt::format("\"{}\": {}", address, target.error().message));
  t.number("connections", 1, 1024, out.connections_max);
  t.duration("timeout", out.answer_timeout);
  t.text("delimiters", out.delimiters);
  out.target.timeout = out.answer_timeout;
  out.queue_time = limits.queue_time;
}

void read_quota(const TomlTable& top, Config& config) {
  const toml::table* raw = top.child("quota");
  if (!raw) return;
  TomlTable t(top.problems(), *raw, "quota");
  t.allow({"driver", "storage", "messages", "over", "grace_percent", "ignore", "dovecot", "address",
           "connections", "timeout", "lease", "delimiters"});
  QuotaConfig& out = config.delivery.maildir.quota;
  std::string driver, over = "reject";
  t.text("driver", driver, true);
  if (driver == "maildir")
    out.driver = QuotaDriver::maildir;
  else if (driver == "count")
    out.driver = QuotaDriver::count;
  else if (driver != "none" && !driver.empty())
    t.wrong_word("driver", "expected \"maildir\", \"count\" or \"none\"", driver,
                 {"maildir", "count", "none"});
  t.text("over", over);
  if (auto parsed = parse_over_quota(over))
    out.over = *parsed;
  else
    t.error("over", parsed.error().message);
  t.path("dovecot", config.dovecot);
  read_quota_limits(t, config);
  if (out.driver == QuotaDriver::count) read_quota_status(t, config.limits, config.quota_status);
  t.size("lease", 0, lease_bytes_default, out.lease);
  if (driver == "none" && t.has("over")) t.error("over", "needs driver = \"maildir\" or \"count\"");
  for (const char* key : {"storage", "messages", "grace_percent", "ignore"}) {
    bool is_limit = std::string_view(key) == "storage" || std::string_view(key) == "messages";
    if (driver == "none" && t.has(key))
      t.error(key, is_limit ? "needs driver = \"maildir\" or \"count\"" : "needs driver = \"maildir\"");
    if (driver == "count" && !is_limit && t.has(key))
      t.error(key,
              "is a setting of Dovecot where Dovecot counts: remove it here, and write it in Dovecot's "
              "configuration");
  }
  for (const char* key : {"address", "connections", "timeout", "lease", "delimiters"})
    if (!driver.empty() && driver != "count" && t.has(key)) t.error(key, "needs driver = \"count\"");
}

void read_homes(const TomlTable& t, RunAsRules& rules) {
  t.texts("homes", rules.homes);
  for (const std::string& directory : rules.homes)
    if (!directory.starts_with('/') || (directory + "/").find("/../") != std::string::npos)
      t.error("homes", fmt::format("\"{}\": expected absolute paths without \"..\"", directory));
}

// A message fits into half of a segment and of a group, so that messages waiting for the same write share it.
void read_intake(const TomlTable& t, IntakeSettings& out) {
  t.size("intake_log_size", 4u << 20, 16ull << 30, out.log_bytes);
  t.size("intake_log_message_size", 0, 1u << 30, out.message_bytes_max);
  t.duration("intake_log_checkpoint", out.checkpoint);
  const std::uint64_t most = std::min<std::uint64_t>(out.log_bytes / 16, 2u << 20);
  if (out.message_bytes_max > most)
    t.error("intake_log_message_size",
            fmt::format("is {} bytes: expected at most {}: a sixteenth of intake_log_size, and up to 2MiB",
                        out.message_bytes_max, most));
}

void read_maildir(const TomlTable& t, DeliveryConfig& delivery) {
  MaildirConfig& out = delivery.maildir;
  t.allow({"durability", "detail_folders", "folder_separator", "folders_max", "subscribe", "hard_links",
           "delivered_to_check", "intake_log_size", "intake_log_message_size", "intake_log_checkpoint"});
  t.flag("delivered_to_check", out.delivered_to_check);
  t.flag("hard_links", out.hard_links);
  std::string durability;
  t.text("durability", durability);
  if (!durability.empty()) {
    if (auto parsed = parse_durability(durability))
      out.durability = *parsed;
    else
      t.error("durability", parsed.error().message);
  }
  read_intake(t, delivery.intake);
  read_folders(t, out.folders);
}

void read_delivery(const TomlTable& top, Config& config) {
  RunAsRules& run_as = config.spawner.run_as;
  run_as.homes.clear();
  if (const toml::table* raw = top.child("delivery")) {
    TomlTable t(top.problems(), *raw, "delivery");
    t.allow({"agent", "memory", "temporary", "received_max", "runs", "uid_min", "gid_min", "homes", "sieve"});
    t.text("agent", config.delivery.default_agent);
    t.size("memory", 0, 1u << 30, config.delivery.external.memory_bytes_max);
    t.path("temporary", config.delivery.external.temporary);
    t.number("received_max", 1, 10'000, config.delivery.external.received_max);
    config.delivery.maildir.received_max = config.delivery.external.received_max;
    t.number("runs", 1, 4096, config.spawner.runs_max);
    t.number("uid_min", 1, 4294967294, run_as.uid_min);
    t.number("gid_min", 1, 4294967294, run_as.gid_min);
    read_homes(t, run_as);
  }
  if (const toml::table* raw = top.child("maildir")) {
    TomlTable t(top.problems(), *raw, "maildir");
    read_maildir(t, config.delivery);
  }
}

void read_agents(const TomlTable& top, Config& config) {
  if (const toml::node* node = top.raw().get("agent"); node && node->is_array())
    return top.error("agent", "expected [agent.NAME], with one bracket on each side");
  if (const toml::table* raw = top.child("agent")) {
    for (const auto& [name, value] : *raw) {
      const toml::table* agent = value.as_table();
      std::string path = "agent." + std::string(name.str());
      if (!agent) {
        TomlTable(top.problems(), *raw, "agent")
            .error(name.str(), fmt::format("expected a section [{}]", path));
        continue;
      }
      TomlTable t(top.problems(), *agent, path);
      config.agents.push_back(read_agent(t, std::string(name.str()), config.warnings));
    }
  }
}

// "; did you mean ...?", or nothing.
template <class All, class NameOf>
std::string meant(const std::string& name, const All& all, NameOf name_of) {
  std::vector<std::string> names;
  for (const auto& each : all) names.push_back(name_of(each));
  std::vector<std::string_view> known(names.begin(), names.end());
  auto nearest = nearest_word(name, known);
  return nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : "";
}

// Checks the names of agents in other sections.
void check_agent_name(const TomlTable& top, const Config& config, const char* section, const char* key,
                      const std::string& name) {
  const toml::table* raw = top.raw().get_as<toml::table>(section);
  if (!raw || name.empty() || name == "maildir") return;
  if (std::any_of(config.agents.begin(), config.agents.end(),
                  [&](const AgentSpec& a) { return a.name == name; }))
    return;
  TomlTable(top.problems(), *raw, section)
      .error(key, fmt::format("there is no section [agent.{}]; \"maildir\" is the built-in agent{}", name,
                              meant(name, config.agents, [](const AgentSpec& a) { return a.name; })));
}

void check_sieve_agent(const TomlTable& top, const Config& config) {
  const std::string& name = config.delivery.sieve.agent;
  bool known = std::ranges::find(config.agents, name, &AgentSpec::name) != config.agents.end();
  if (name.empty() || known) return;
  const toml::table& raw = *top.raw()["delivery"]["sieve"].as_table();
  TomlTable(top.problems(), raw, "delivery.sieve")
      .error("agent", fmt::format("there is no section [agent.{}]{}", name,
                                  meant(name, config.agents, [](const AgentSpec& a) { return a.name; })));
}

void check_next_hop_name(const TomlTable& top, const Config& config) {
  const toml::table* raw = top.raw().get_as<toml::table>("users");
  const std::string& name = config.users.defaults.next_hop;
  bool known = std::any_of(config.next_hops.begin(), config.next_hops.end(),
                           [&](const NextHopSettings& hop) { return hop.spec.name == name; });
  if (raw && !name.empty() && !known)
    TomlTable(top.problems(), *raw, "users")
        .error("next_hop", fmt::format("there is no section [next_hop.{}]{}", name,
                                       meant(name, config.next_hops,
                                             [](const NextHopSettings& h) { return h.spec.name; })));
}

void read_top(const TomlTable& top, Config& config) {
  top.allow({"hostname", "log_level", "user", "group", "listen", "tls", "limits", "users", "spool",
             "delivery", "maildir", "quota", "agent", "next_hop", "filter", "filters", "spool_milter"});
  top.text("hostname", config.hostname);
  if (auto normal = normal_domain(config.hostname)) config.hostname = std::move(*normal);
  if (std::any_of(config.hostname.begin(), config.hostname.end(),
                  [](unsigned char c) { return c <= ' ' || c >= 127; }))
    top.error("hostname", "expected a host name such as \"mail.example.org\"");
  std::string level = "info";
  top.text("log_level", level);
  if (level == "debug")
    config.log_level = LogLevel::debug;
  else if (level == "info")
    config.log_level = LogLevel::info;
  else if (level == "warning")
    config.log_level = LogLevel::warning;
  else if (level == "error")
    config.log_level = LogLevel::error;
  else
    top.wrong_word("log_level", "expected one of \"debug\", \"info\", \"warning\", \"error\"", level,
                   {"debug", "info", "warning", "error"});
  top.identity("user", config.user);
  top.identity("group", config.group);
  if (config.user.empty() && !config.group.empty()) top.error("group", "needs user too");
}

Result<ReadConfig> read_text(const std::string& path, std::string_view text) {
  toml::table root;
  try {
    root = toml::parse(text, path);
  } catch (const toml::parse_error& e) {
    return fail(Errc::invalid, "{}:{}:{}: {}", path, e.source().begin.line, e.source().begin.column,
                e.description());
  }
  Problems problems{path, {}};
  TomlTable top(problems, root, "");
  ReadConfig out;
  Config& config = out.config;
  config.file = path;
  read_top(top, config);
  read_listen(top, config);
  read_tls(top, config);
  read_limits(top, config);
  read_users(top, config.users);
  read_next_hops(top, config);
  read_filters(top, config);
  read_spool(top, !config.next_hops.empty(), config.delivery.spool, config.spool_watch);
  read_delivery(top, config);
  read_quota(top, config);
  read_agents(top, config);
  read_spool_milter(top, config);
  check_next_hop_name(top, config);
  read_sieve(top, config);
  check_agent_name(top, config, "delivery", "agent", config.delivery.default_agent);
  check_sieve_agent(top, config);
  check_agent_name(top, config, "users", "agent", config.users.defaults.agent);
  for (const std::string& warning : compare_limits(config)) config.warnings.push_back(path + ": " + warning);
  for (const std::string& warning : find_ignored(config, root))
    config.warnings.push_back(path + ": " + warning);
  config.warnings.insert(config.warnings.end(), problems.warnings.begin(), problems.warnings.end());
  out.errors = std::move(problems.errors);
  out.bad_sections = std::move(problems.sections);
  return out;
}

Result<std::string> text_of(const std::string& path) {
  auto text = read_file(path, config_bytes_max);
  if (!text) return fail(text.error().code, "{} (--config FILE names another file)", text.error().message);
  return text;
}

}  // namespace

Result<Config> parse_config(const std::string& path, std::string_view text) {
  TL_TRY_ASSIGN(ReadConfig read, read_text(path, text));
  if (!read.errors.empty()) return fail(Errc::invalid, "{}", fmt::join(read.errors, "\n"));
  return std::move(read.config);
}

Result<Config> load_config(const std::string& path) {
  TL_TRY_ASSIGN(std::string text, text_of(path));
  return parse_config(path, text);
}

Result<ReadConfig> read_config(const std::string& path) {
  TL_TRY_ASSIGN(std::string text, text_of(path));
  return read_text(path, text);
}

}  // namespace twinloft::lmtpd
