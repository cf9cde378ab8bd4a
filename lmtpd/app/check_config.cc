#include "check_config.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <ostream>
#include <set>
#include <tuple>
#include <vector>

#include "dovecot_quota.h"
#include "review_rows.h"
#include "twinloft/argv/argv.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/process.h"
#include "twinloft/lmtpd/net/try_address.h"
#include "twinloft/lmtpd/spool/spool.h"
#include "twinloft/lmtpd/userdb/check.h"
#include "twinloft/lmtpd/users/users.h"
#include "twinloft/spool-state/spool_state.h"
#include "users.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t pem_bytes_max = 4u << 20;
constexpr std::int64_t expires_soon_days = 14;

struct PemFile {
  const char* key;
  std::string path;
};

Result<std::string> read_pem(const PemFile& file) {
  auto text = read_file(file.path, pem_bytes_max);
  if (!text) return fail(text.error().code, "{}: {}", file.key, text.error().message);
  return text;
}

std::array<PemFile, 3> pem_files(const TlsSettings& tls) {
  return {{{"tls.certificate", tls.certificate}, {"tls.key", tls.key}, {"tls.client_ca", tls.client_ca}}};
}

// Collects problems and warnings: one line each, with the configuration key.
class Checker {
 public:
  void problem(std::string text) { problems_.push_back(std::move(text)); }
  void warning(std::string text) { warnings_.push_back(std::move(text)); }
  const std::vector<std::string>& problems() const { return problems_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::vector<std::string> problems_, warnings_;
};

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

void check_spool(const Config& config, Checker& check) {
  static OsFileOps ops;
  auto spool = Spool::create(config.delivery.spool, ops);
  if (!spool) return check.problem("spool.path: " + spool.error().message);
  if (const std::string& path = config.spool_watch.state_file; !path.empty())
    if (auto state = spool_state::read_state(path); !state)
      check.problem("spool.state_file: " + state.error().message);
  auto opened = (*spool)->open();
  if (!opened) return check.problem("spool: " + opened.error().message);
  bool for_agents = std::ranges::any_of(config.agents, [](const AgentSpec& agent) { return !agent.syncs; });
  if (for_agents && !(*spool)->sees_failure(*opened))
    check.warning(fmt::format(
        "spool: lmtpd cannot write to {} or to {} in it. If the file system's journal fails, mail "
        "of agents may be acknowledged for a moment; give one of them to lmtpd's user",
        (*spool)->root(), spool_marker_name));
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

struct DirectConnector final : Connector {
  const ConnectTarget& target;
  explicit DirectConnector(const ConnectTarget& t) : target(t) {}
  Result<Fd> connect(std::size_t) override { return connect_to(target); }
};

// Asks about a user that does not exist: any answer shows that the service works.
void check_quota_status(const QuotaStatusConfig& config, const Clock& clock, Checker& check) {
  DirectConnector connector(config.target);
  User nobody;
  nobody.name = "nobody@invalid";
  auto answer = QuotaStatus(config, connector, 0, clock).room(nobody, 1);
  if (!answer && answer.error().code != Errc::conflict)
    check.problem("quota.address: " + answer.error().message);
}

// Checks the TLS files of a user database, because the client library reports a missing file only as a failed
// connection.
void check_database_files(const UserSettings& users, Checker& check) {
  if (users.driver != UserDriver::mysql) return;
  const MysqlDbConfig& mysql = users.mysql;
  for (const PemFile& file : {PemFile{"users.tls_ca", mysql.tls_ca},
                              {"users.tls_certificate", mysql.tls_certificate},
                              {"users.tls_key", mysql.tls_key}})
    if (auto text = file.path.empty() ? std::string() : read_pem(file); !text)
      check.problem(text.error().message);
}

// Tells whether all given sections are free of errors. A check runs only if the sections it needs are good.
struct GoodSections {
  const std::set<std::string>& bad;
  bool operator()(std::initializer_list<const char*> sections) const {
    return std::ranges::none_of(sections, [this](const char* section) { return bad.contains(section); });
  }
};
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
  if (identity && good({"users"})) {
    check_database_files(users, check);
    auto opened = open_users(users, clock);
    if (!opened)
      check.problem("users: " + opened.error().message);
    else if (good(sections_of_users))
      check_rows(config, users, *identity, by_root, clock, check);
  }
  if (config.delivers_here() && good({"spool"})) check_spool(config, check);
  if (good({"users", "maildir"})) check_folders(config, check);
  if (config.delivery.maildir.quota.driver == QuotaDriver::count && good({"quota"}))
    check_quota_status(config.quota_status, clock, check);
  for (std::string& problem : try_directories(config)) check.problem(std::move(problem));
}

constexpr char problem_mark = 'p', warning_mark = 'w';

[[noreturn]] void check_in_child(const Config& config, const UserSettings& users, const Identity& identity,
                                 GoodSections good, int report) {
  Checker check;
  if (Status dropped = drop_privileges(identity); !dropped)
    check.problem("user: " + dropped.error().message);
  else
    check_as_user(config, users, &identity, true, good, check);
  std::string text;
  for (const std::string& problem : check.problems()) ((text += problem_mark) += problem) += '\0';
  for (const std::string& warning : check.warnings()) ((text += warning_mark) += warning) += '\0';
  ::_exit(write_all(report, as_bytes(text)) ? 0 : EX_OSERR);
}

// The child reports by the pipe. An early end of the child is an error, even if it has reported no problem.
Status check_in_process_of(const Identity& identity, const Config& config, const UserSettings& users,
                           GoodSections good, Checker& check) {
  constexpr std::size_t report_bytes_max = 64u << 20;
  TL_TRY_ASSIGN(PipeEnds report, make_pipe());
  pid_t child = ::fork();
  if (child < 0) return fail_errno(errno, "fork");
  if (child == 0) check_in_child(config, users, identity, good, report.write.get());
  report.write.reset();
  auto read = read_to_end(report.read.get(), report_bytes_max);
  report.read.reset();  // a child with a longer report ends by SIGPIPE
  int status = wait_for_child(child);
  TL_TRY_ASSIGN(std::string text, std::move(read));
  for (std::size_t at = 0, end; (end = text.find('\0', at)) != std::string::npos; at = end + 1)
    if (text[at] == warning_mark)
      check.warning(text.substr(at + 1, end - at - 1));
    else
      check.problem(text.substr(at + 1, end - at - 1));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return fail(Errc::internal, "the check as uid {} ended early, status {}", identity.uid, status);
  return {};
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
  if (::geteuid() == 0) {
    if (Status checked = check_in_process_of(*identity, config, users, good, check); !checked)
      check.problem(checked.error().message);
    return;
  }
  if (::geteuid() != identity->uid)
    err << "warning: files are checked as uid " << ::geteuid() << ", not as " << config.user
        << ": only root can become this user\n";
  check_as_user(config, users, &*identity, false, good, check);
}

// The process that listens at the address may be this lmtpd before a reload, or the service manager.
void check_listen(const ListenSettings& listen, Checker& check, std::ostream& err) {
  if (!listen.group.empty())
    if (auto gid = find_group_id(listen.group, "listen.group"); !gid) check.problem(gid.error().message);
  auto outcome = try_address(
      {listen.address, listen.host, listen.port, listen.unix_path, listen.mode, {}, {}});
  if (!outcome) return check.problem("listen.address: " + outcome.error().message);
  if (*outcome == AddressState::free) return;
  auto who = find_socket_owner({listen.host, listen.port, listen.unix_path});
  if (who && !who->is_lmtpd() && who->pid != 1)
    return check.problem(
        fmt::format("listen.address: {} is in use by {}, process {}: stop it, or choose another address",
                    listen.address, who->name, who->pid));
  err << "note: listen.address: a server listens at " << listen.address
      << " already: this lmtpd, or a server that must be stopped\n";
}

// Checks the readable sections against this machine: files, users, addresses, services.
void check_machine(const ReadConfig& read, Checker& check, std::ostream& err) {
  const Config& config = read.config;
  GoodSections good{read.bad_sections};
  check_users(config, good, check, err);
  if (good({"agent"})) check_programs(config, check);
  if (good({"tls"})) check_tls(config, check, err);
  if (good({"next_hop"}))
    if (auto routes = load_routes(config); !routes) check.problem(routes.error().message);
  if (good({"quota", "maildir", "users"})) check_quota(config, check, err);
  if (good({"listen"}))
    for (const ListenSettings& listen : config.listen) check_listen(listen, check, err);
  if (good({"limits"}))
    if (auto few = compare_open_files(config)) check.warning(*few);
}

// A summary of the configuration, so that the operator notices misunderstandings.
std::string summary(const Config& config) {
  std::string out;
  for (const ListenSettings& listen : config.listen) out += "listens on " + listen.address + "\n";
  out += "users: ";
  out += describe_users(config.users);
  for (const NextHopSettings& hop : config.next_hops)
    out += "\nnext hop: " + hop.spec.name + " at " + hop.spec.target.text;
  if (!config.next_hops.empty())
    out += config.users.defaults.next_hop.empty()
               ? "\n  for users whose row names it"
               : "\n  " + config.users.defaults.next_hop + " if a user's row names none";
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
  for (const NextHopSettings& hop : config.next_hops) {
    auto tls = load_hop_tls(hop);
    if (!tls) return fail(tls.error().code, "next_hop.{}: {}", hop.spec.name, tls.error().message);
    out.hops.push_back({hop.spec, out.hops.size(), std::move(*tls)});
  }
  return out;
}

// A connection has a socket, and a file while a large message arrives. A delivery opens up to six files.
std::optional<std::string> compare_open_files(const Config& config) {
  constexpr std::uint64_t per_connection = 2, per_delivery = 6, own = 128;
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
  auto read = read_config(path);
  if (!read) {
    err << read.error().message << "\n";
    return EX_CONFIG;
  }
  const Config& config = read->config;
  for (const std::string& error : read->errors) err << error << (error.ends_with('\n') ? "" : "\n");
  for (const std::string& warning : config.warnings)
    err << "warning: " << warning << (warning.ends_with('\n') ? "" : "\n");
  Checker check;
  check_machine(*read, check, err);
  for (const std::string& warning : check.warnings()) err << "warning: " << warning << "\n";
  for (const std::string& problem : check.problems()) err << config.file << ": " << problem << "\n";
  if (!read->errors.empty() || !check.problems().empty()) return EX_CONFIG;
  out << "ok\n" << summary(config);
  return 0;
}

}  // namespace twinloft::lmtpd
