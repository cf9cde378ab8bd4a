#include "check_config.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ostream>
#include <set>
#include <tuple>
#include <vector>

#include "dovecot_quota.h"
#include "dovecot_sieve.h"
#include "review_rows.h"
#include "twinloft/argv/argv.h"
#include "twinloft/base/fd.h"
#include "twinloft/lmtpd/check/checker.h"
#include "twinloft/lmtpd/check/checks.h"
#include "twinloft/lmtpd/filters/filters.h"
#include "twinloft/lmtpd/sieve/lmtp_name.h"
#include "twinloft/lmtpd/spool/spool.h"
#include "twinloft/lmtpd/userdb/check.h"
#include "twinloft/lmtpd/users/users.h"
#include "users.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::int64_t expires_soon_days = 14;

std::array<PemFile, 3> pem_files(const TlsSettings& tls) {
  return {{{"tls.certificate", tls.certificate}, {"tls.key", tls.key}, {"tls.client_ca", tls.client_ca}}};
}

void check_programs(const Config& config, Checker& check) {
  for (const AgentSpec& agent : config.agents) {
    auto command = argv::Template::parse(agent.command);
    if (!command) continue;  // the loader has already reported the error
    const std::string& program = command->words().front().parts.front().text;
    struct stat found{};
    std::string key = "agent." + agent.name + ".command: ";
    if (::stat(program.c_str(), &found) != 0)
      check.problem(key + program + ": " + std::strerror(errno));
    else if (!S_ISREG(found.st_mode) || (found.st_mode & 0111) == 0)
      check.problem(key + program + " is not an executable program");
  }
}

void check_quota(const Config& config, Checker& check, std::ostream& err) {
  bool counts = config.delivery.maildir.quota.driver != QuotaDriver::none;
  if (config.dovecot.empty() && counts)
    err << "warning: quota: not compared with Dovecot's: to compare, set dovecot = "
           "\"/etc/dovecot/dovecot.conf\"\n";
  if (config.dovecot.empty()) return;
  auto dovecot = read_dovecot_quota(config.dovecot);
  if (!dovecot) return check.problem("quota.dovecot: " + dovecot.error().message);
  for (std::string& problem : compare_quota(config, *dovecot)) check.problem(std::move(problem));
  if (!counts && !dovecot->quota.empty() && !dovecot->quota.starts_with("maildir"))
    err << "warning: quota: Dovecot's driver is \"" << dovecot->quota
        << "\", but quota.driver is \"none\": the built-in agent delivers to full mailboxes\n";
}

void check_sieve(const Config& config, Checker& check) {
  if (!config.delivery.sieve.on()) return;
  auto dovecot = read_dovecot_delivery(config);
  if (!dovecot) return check.problem("delivery.sieve.dovecot: " + dovecot.error().message);
  SieveFindings found = compare_sieve(config, *dovecot);
  for (std::string& problem : found.problems) check.problem(std::move(problem));
  for (std::string& warning : found.warnings) check.warning(std::move(warning));
}

// Checks what lmtpd's own user needs for these users' mail. Under lmtpd.service this user runs doveconf,
// which leaves out included files that it may not read. `config` has what root has seen.
void check_sieve_as_user(const Config& config, Checker& check) {
  if (!config.delivery.sieve.on()) return;
  auto seen = ask_for_scripts(config);
  const std::string by_root = describe_rule(config.delivery.sieve.scripts);
  if (const std::string by_user = seen ? describe_rule(*seen) : seen.error().message; by_user != by_root)
    check.problem(fmt::format(
        "delivery.sieve.dovecot: doveconf shows other Sieve settings to lmtpd's own user, as which it runs "
        "under lmtpd.service: scripts of {}, and not of {}; let this user read all of Dovecot's "
        "configuration about Sieve, or write users = \"all\"",
        by_user, by_root));
  if (std::string by_user = find_delimiters(config); by_user != config.delivery.sieve.delimiters)
    check.problem(
        fmt::format("delivery.sieve.dovecot: doveconf shows the recipient_delimiter \"{}\" to lmtpd's own "
                    "user, as which it "
                    "runs under lmtpd.service, and not \"{}\"; let this user read the setting",
                    by_user, config.delivery.sieve.delimiters));
  for (const NextHopSettings& hop : config.next_hops)
    if (auto connected = hop.spec.local() ? connect_to(hop.spec.target) : Result<Fd>(); !connected)
      check.problem("delivery.sieve.lmtp: " + connected.error().message);
}

// Reads every file, so that every problem is reported.
void check_tls(const Config& config, Checker& check, std::ostream& err) {
  std::size_t before = check.problems().size();
  if (!config.tls.certificate.empty())
    for (const PemFile& file : pem_files(config.tls))
      if (auto text = file.path.empty() ? std::string() : read_pem(file); !text)
        check.problem(text.error().message);
  if (check.problems().size() > before) return;
  auto tls = load_tls(config.tls);
  if (!tls) return check.problem(tls.error().message);
  if (!*tls) return;
  std::int64_t days = (*tls)->expires_in_days();
  if (days < 0)
    check.problem(fmt::format("tls.certificate: {} has expired", config.tls.certificate));
  else if (days < expires_soon_days)
    err << "warning: tls.certificate: " << config.tls.certificate << " expires within " << days + 1
        << " days\n";
}

// Checks the defaults, which apply to users whose rows set nothing.
void check_folders(const Config& config, Checker& check) {
  const UserDefaults& users = config.users.defaults;
  bool is_home = users.maildir == "~" || users.maildir == "%home%" ||
                 (!users.maildir.empty() && normal_path(users.maildir) == normal_path(users.home));
  if (is_home && config.delivery.maildir.folders.detail == FoldersByDetail::create)
    check.warning(
        "maildir.detail_folders: no folders are created, because users.maildir is the home, which has dot "
        "files of other programs: use a directory in the home, such as maildir = \"~/Maildir\"");
}

// A filter may start after lmtpd, so this is no error.
void check_filters(const Config& config, const Clock& clock, Checker& check) {
  for (const FilterSettings& filter : config.filters.order)
    if (Status works = try_filter(filter.spec, filter.target, clock); !works)
      check.warning(
          fmt::format("filter.{}.address: {}; now each message would get the filter's default "
                      "action \"{}\"",
                      filter.spec.name, works.error().message, milter::to_string(filter.spec.on_failure)));
}

constexpr std::initializer_list<const char*> sections_of_users = {"users", "spool",    "delivery",
                                                                  "agent", "next_hop", "quota"};

// Checks the rows of the user database.
void check_rows(const Config& config, const UserSettings& users, const Identity& identity, bool by_root,
                const Clock& clock, Checker& check) {
  auto reviewed = review_rows(config, users, identity, by_root, clock);
  if (!reviewed) return check.problem("users: " + reviewed.error().message);
  for (std::string& warning : *reviewed) check.warning(std::move(warning));
}

// Checks the files that lmtpd opens as its own user. As root the checks would pass where this user has no
// access. identity null: the user is unknown.
void check_as_user(const Config& config, const UserSettings& users, const Identity* identity, bool by_root,
                   GoodSections good, Checker& check) {
  OsClock clock;
  if (identity && good({"users"}) && check_user_source(users, clock, check) && good(sections_of_users))
    check_rows(config, users, *identity, by_root, clock, check);
  if (config.delivers_here() && good({"spool"})) check_spool(config, check);
  if (config.delivers_here() && good({"spool", "maildir"})) check_intake_log(config, check);
  if (good({"users", "maildir"})) check_folders(config, check);
  if (config.delivery.maildir.quota.driver == QuotaDriver::count && good({"quota"}))
    check_quota_status(config.quota_status, clock, check);
  if (good({"filter", "filters"})) check_filters(config, clock, check);
  if (good({"delivery"})) check_sieve_as_user(config, check);
  for (std::string& problem : try_directories(config)) check.problem(std::move(problem));
}

// Fills in secrets and ids, and checks static users if all their sections are good.
void fill_users(const Config& config, const Identity& identity, GoodSections good, UserSettings& users,
                Checker& check) {
  if (Status read = read_secrets(users); !read) check.problem(read.error().message);
  if (Status filled = fill_user_ids(users, identity); !filled) return check.problem(filled.error().message);
  if (!good(sections_of_users)) return;
  if (Status works = check_static_users(config, users, identity); !works)
    check.problem(works.error().message);
}

void check_users(const Config& config, GoodSections good, Checker& check, std::ostream& err) {
  auto identity = find_identity(config.user, config.group);
  if (!identity && good({"user", "group"})) check.problem(identity.error().message);
  UserSettings users = config.users;
  if (!identity) return check_as_user(config, users, nullptr, false, good, check);
  if (good({"users"})) fill_users(config, *identity, good, users, check);
  const bool by_root = ::geteuid() == 0;
  check_as(
      *identity, config.user,
      [&](Checker& there) { check_as_user(config, users, &*identity, by_root, good, there); }, check, err);
}

// Checks the readable sections against this machine: files, users, addresses, services.
void check_machine(const ReadConfig& read, Checker& check, std::ostream& err) {
  Config config = read.config;
  GoodSections good{read.bad_sections};
  if (auto scripts = ask_for_scripts(config)) config.delivery.sieve.scripts = *std::move(scripts);
  config.delivery.sieve.delimiters = find_delimiters(config);
  check_users(config, good, check, err);
  if (good({"agent"})) check_programs(config, check);
  if (good({"tls"})) check_tls(config, check, err);
  if (good({"next_hop"}))
    if (auto routes = load_routes(config); !routes) check.problem(routes.error().message);
  if (good({"quota", "maildir", "users"})) check_quota(config, check, err);
  if (good({"delivery", "agent", "maildir", "users"})) check_sieve(config, check);
  if (good({"listen"}))
    for (const ListenSettings& listen : config.listen)
      check_listen(listen, "listen.address", "lmtpd", check, err);
  if (config.spool_milter && good({"spool_milter"}))
    check_group(config.spool_milter->listen, "spool_milter.group", check);
  if (good({"limits"}))
    if (auto few = compare_open_files(config)) check.warning(*few);
}

// Where users with a script go. Empty: scripts are not run.
std::string sieve_text(const Config& config) {
  const SieveConfig& sieve = config.delivery.sieve;
  if (!sieve.agent.empty()) return "users with a script get " + sieve.agent;
  for (const NextHopSettings& hop : config.next_hops)
    if (hop.spec.local()) return "users with a script get Dovecot's LMTP at " + hop.spec.target.text;
  return {};
}

std::string summary(const Config& config) {
  std::string out;
  for (const ListenSettings& listen : config.listen) out += "listens on " + listen.address + "\n";
  out += "users: ";
  out += describe_users(config.users);
  bool has_hops = false;
  for (const NextHopSettings& hop : config.next_hops)
    if (!hop.spec.local()) {
      has_hops = true;
      out += "\nnext hop: " + hop.spec.name + " at " + hop.spec.target.text;
    }
  if (has_hops)
    out += config.users.defaults.next_hop.empty()
               ? "\n  for users whose row names it"
               : "\n  " + config.users.defaults.next_hop + " if a user's row names none";
  for (const FilterSettings& filter : config.filters.order)
    out += fmt::format("\nfilter: {} at {}, \"{}\" if it fails", filter.spec.name, filter.target.text,
                       milter::to_string(filter.spec.on_failure));
  if (!config.delivers_here()) return out + "\n";
  out += "\nspool: " + config.delivery.spool.root;
  out += config.delivery.spool.volume ? ", volume " + config.delivery.spool.volume->text()
                                      : ", without a marker";
  if (config.delivery.maildir.quota.driver == QuotaDriver::count)
    out += "\nquota: as Dovecot says, at " + config.quota_status.target.text;
  if (config.delivery.maildir.quota.driver == QuotaDriver::maildir)
    out += "\nquota: " + quota_text(config.users.defaults.quota) + " if a user's row sets none";
  out += "\ndelivers with " + config.delivery.default_agent;
  for (const AgentSpec& agent : config.agents)
    if (agent.name != config.delivery.default_agent)
      out += ", or " + agent.name + " if a user's row names it";
  if (config.delivery.maildir.durability == DurabilityWay::intake_log)
    out += fmt::format("\nintake log: {} bytes, for messages up to {} bytes",
                       config.delivery.intake.log_bytes, config.delivery.intake.message_bytes_max);
  if (const std::string where = sieve_text(config); !where.empty()) out += "\nsieve: " + where;
  return out + "\n";
}

}  // namespace

Result<std::shared_ptr<const TlsContext>> load_tls(const TlsSettings& tls) {
  if (tls.certificate.empty()) return nullptr;
  TlsMaterial material;
  std::string* into[] = {&material.certificate, &material.key, &material.client_ca};
  for (std::size_t i = 0; const PemFile& file : pem_files(tls)) {
    TL_TRY_ASSIGN(*into[i++], file.path.empty() ? Result<std::string>() : read_pem(file));
  }
  material.client_certificate_required = tls.client_certificate_required;
  material.client_subjects = tls.client_subjects;
  material.tls_1_2 = tls.tls_1_2;
  auto context = TlsContext::create(material);
  if (!context)
    return fail(context.error().code, "tls: {} (certificate {}, key {})", context.error().message,
                tls.certificate, tls.key);
  return context;
}

namespace {

Result<std::shared_ptr<const TlsClientContext>> load_hop_tls(const NextHopSettings& hop) {
  if (hop.spec.tls == HopTls::none) return nullptr;
  TlsClientMaterial material;
  for (auto [key, path, into] : {std::tuple("tls_ca", &hop.ca, &material.ca),
                                 {"tls_certificate", &hop.certificate, &material.certificate},
                                 {"tls_key", &hop.key, &material.key}}) {
    if (path->empty()) continue;
    TL_TRY_ASSIGN(*into, read_pem({key, *path}));
  }
  material.name = hop.tls_name;
  return TlsClientContext::create(material);
}

}  // namespace

Result<RouterConfig> load_routes(const Config& config) {
  RouterConfig out;
  out.hostname = config.hostname;
  out.detail_delimiter = config.users.directory.detail_delimiter;
  out.received_max = config.delivery.maildir.received_max;
  out.over_quota = config.delivery.maildir.quota.over;
  for (const NextHopSettings& hop : config.next_hops) {
    auto tls = load_hop_tls(hop);
    if (!tls) return fail(tls.error().code, "next_hop.{}: {}", hop.spec.name, tls.error().message);
    out.hops.push_back({hop.spec, out.hops.size(), std::move(*tls)});
    if (hop.spec.local())
      out.hops.back().spec.detail_delimiter = lmtp_delimiter(out.detail_delimiter,
                                                             config.delivery.sieve.delimiters);
  }
  return out;
}

// A connection has a socket, one for each filter, and a file while a large message arrives. A delivery opens
// up to six files.
std::optional<std::string> compare_open_files(const Config& config) {
  constexpr std::uint64_t per_delivery = 6, own = 128;
  const std::uint64_t per_connection = 2 + config.filters.order.size();
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return std::nullopt;
  std::uint64_t wanted = own + per_connection * config.limits.connections_max +
                         per_delivery * config.limits.deliveries;
  for (const NextHopSettings& hop : config.next_hops) wanted += hop.spec.connections_max;
  if (wanted <= limit.rlim_max) return std::nullopt;
  return fmt::format(
      "limits.connections ({}) and limits.deliveries ({}) may need {} open files, but this process may have "
      "only {}: beyond that, no connection is accepted. "
      "Raise the limit (LimitNOFILE= of the service), or lower limits.connections",
      config.limits.connections_max, config.limits.deliveries, wanted, limit.rlim_max);
}

// Large messages are kept there in unlinked files.
std::vector<std::string> try_directories(const Config& config) {
  std::vector<std::string> out;
  auto must_take_files = [&](const char* key, const std::string& path) {
    Fd file(::open(path.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (!file)
      out.push_back(fmt::format("{}: {}: cannot create a file there: {}", key, path, std::strerror(errno)));
  };
  must_take_files("limits.body_directory", config.limits.body_directory);
  if (!config.agents.empty()) must_take_files("delivery.temporary", config.delivery.external.temporary);
  return out;
}

int check_config(const std::string& path, std::ostream& out, std::ostream& err) {
  return check_config_file(path, {check_machine, summary}, out, err);
}

}  // namespace twinloft::lmtpd
