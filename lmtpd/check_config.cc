#include "check_config.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <ostream>
#include <vector>

#include "dovecot_quota.h"
#include "review_rows.h"
#include "twinloft/argv/argv.h"
#include "twinloft/base/fd.h"
#include "twinloft/lmtpd/delivery/spool.h"
#include "twinloft/lmtpd/net/try_address.h"
#include "twinloft/lmtpd/userdb/check.h"
#include "users.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t pem_bytes_max = 4u << 20;
constexpr std::int64_t expires_soon_days = 14;

// Problems found, one a line, each with its key.
class Checker {
 public:
  void problem(std::string text) { problems_.push_back(std::move(text)); }
  void warning(std::string text) { warnings_.push_back(std::move(text)); }
  // Large messages are kept there, in files without a name.
  void must_take_files(const char* key, const std::string& path) {
    Fd file(::open(path.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (!file) problem(fmt::format("{}: {}: no file can be made there: {}", key, path, std::strerror(errno)));
  }
  const std::vector<std::string>& problems() const { return problems_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::vector<std::string> problems_, warnings_;
};

void check_programs(const Config& config, Checker& check) {
  for (const AgentSpec& agent : config.agents) {
    auto command = argv::Template::parse(agent.command);
    if (!command) continue;  // the loader has refused it
    const std::string& program = command->words().front().parts.front().text;
    struct stat found {};
    std::string key = "agent." + agent.name + ".command: ";
    if (::stat(program.c_str(), &found) != 0) check.problem(key + program + ": " + std::strerror(errno));
    else if (!S_ISREG(found.st_mode) || (found.st_mode & 0111) == 0)
      check.problem(key + program + " is no program that can be executed");
  }
}

void check_quota(const Config& config, Checker& check, std::ostream& err) {
  bool counts = config.delivery.maildir.quota.driver != QuotaDriver::none;
  if (config.dovecot.empty() && counts) err << "warning: quota: that it agrees with Dovecot is not checked: name its configuration, dovecot = \"/etc/dovecot/dovecot.conf\"\n";
  if (config.dovecot.empty()) return;
  auto dovecot = read_dovecot_quota(config.dovecot);
  if (!dovecot) return check.problem("quota.dovecot: " + dovecot.error().message);
  for (std::string& problem : compare_quota(config, *dovecot)) check.problem(std::move(problem));
  if (!counts && !dovecot->quota.empty() && !dovecot->quota.starts_with("maildir"))
    err << "warning: quota: Dovecot's is \"" << dovecot->quota << "\", which the built-in agent does not ask: it delivers to full mailboxes\n";
}

void check_tls(const Config& config, Checker& check, std::ostream& err) {
  auto tls = load_tls(config.tls);
  if (!tls) return check.problem(tls.error().message);
  if (!*tls) return;
  std::int64_t days = (*tls)->expires_in_days();
  if (days < 0) check.problem(fmt::format("tls.certificate: {} has expired", config.tls.certificate));
  else if (days < expires_soon_days) err << "warning: tls.certificate: " << config.tls.certificate << " expires within " << days + 1 << " days\n";
}

void check_spool(const Config& config, Checker& check) {
  static OsFileOps ops;
  auto spool = Spool::create(config.delivery.spool, ops);
  if (!spool) return check.problem("spool.path: " + spool.error().message);
  auto opened = (*spool)->open();
  if (!opened) return check.problem("spool: " + opened.error().message);
  bool for_agents = std::ranges::any_of(config.agents, [](const AgentSpec& agent) { return !agent.syncs; });
  if (for_agents && !(*spool)->sees_failure(*opened))
    check.warning(fmt::format("spool: lmtpd may write neither to {} nor to a {} in it: mail of agents may be acknowledged for a moment after the file system's journal "
                              "has failed; give one of them to lmtpd's user", (*spool)->root(), spool_marker_name));
}

// Of users whose rows say nothing.
void check_folders(const Config& config, Checker& check) {
  const UserDefaults& users = config.users.defaults;
  bool is_home = users.maildir == "~" || users.maildir == "%home%" || (!users.maildir.empty() && normal_path(users.maildir) == normal_path(users.home));
  if (is_home && config.delivery.maildir.folders.detail == FoldersByDetail::create)
    check.warning("maildir.detail_folders: no folder is made where users.maildir is the home, since other programs have files there whose names begin with a dot: give the home a directory "
                  "of its own");
}

struct DirectConnector final : Connector {
  const ConnectTarget& target;
  explicit DirectConnector(const ConnectTarget& t) : target(t) {}
  Result<Fd> connect(std::size_t) override { return connect_to(target); }
};

// Asked for a user who is nobody: what it says of them does not matter, but it is an answer.
void check_quota_status(const QuotaStatusConfig& config, const Clock& clock, Checker& check) {
  DirectConnector connector(config.target);
  User nobody;
  nobody.name = "nobody@invalid";
  auto answer = QuotaStatus(config, connector, 0, clock).room(nobody, 1);
  if (!answer && answer.error().code != Errc::conflict) check.problem("quota.address: " + answer.error().message);
}

// What lmtpd opens after it has become its user: root would be let in where that user is not.
void check_as_user(const Config& config, const UserSettings& users, const Identity& identity, bool by_root, Checker& check) {
  OsClock clock;
  auto opened = open_users(users, clock);
  if (!opened) check.problem("users: " + opened.error().message);
  auto reviewed = opened ? review_rows(config, users, identity, by_root, clock) : std::vector<std::string>{};
  if (!reviewed) check.problem("users: " + reviewed.error().message);
  else for (std::string& warning : *reviewed) check.warning(std::move(warning));
  if (config.delivers_here()) check_spool(config, check);
  check_folders(config, check);
  if (config.delivery.maildir.quota.driver == QuotaDriver::count) check_quota_status(config.quota_status, clock, check);
  check.must_take_files("limits.body_directory", config.limits.body_directory);
  if (!config.agents.empty()) check.must_take_files("delivery.temporary", config.delivery.external.temporary);
}

constexpr char problem_mark = 'p', warning_mark = 'w';

[[noreturn]] void check_in_child(const Config& config, const UserSettings& users, const Identity& identity, int report) {
  Checker check;
  if (Status dropped = drop_privileges(identity); !dropped) check.problem("user: " + dropped.error().message);
  else check_as_user(config, users, identity, true, check);
  std::string text;
  for (const std::string& problem : check.problems()) ((text += problem_mark) += problem) += '\0';
  for (const std::string& warning : check.warnings()) ((text += warning_mark) += warning) += '\0';
  ::_exit(write_all(report, as_bytes(text)) ? 0 : EX_OSERR);
}

// Nothing but what came through the pipe is trusted to have been checked.
Status check_in_process_of(const Identity& identity, const Config& config, const UserSettings& users, Checker& check) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "pipe");
  Fd from_child(ends[0]), to_parent(ends[1]);
  pid_t child = ::fork();
  if (child < 0) return fail_errno(errno, "fork");
  if (child == 0) check_in_child(config, users, identity, to_parent.get());
  to_parent.reset();
  std::string text;
  char piece[4096];
  for (ssize_t n; (n = ::read(from_child.get(), piece, sizeof piece)) != 0;)
    if (n > 0) text.append(piece, static_cast<std::size_t>(n));
    else if (errno != EINTR) return fail_errno(errno, "pipe");
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  for (std::size_t at = 0, end; (end = text.find('\0', at)) != std::string::npos; at = end + 1)
    if (text[at] == warning_mark) check.warning(text.substr(at + 1, end - at - 1));
    else check.problem(text.substr(at + 1, end - at - 1));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return fail(Errc::internal, "the check as uid {} ended early, status {}", identity.uid, status);
  return {};
}

void check_users(const Config& config, Checker& check, std::ostream& err) {
  auto identity = find_identity(config);
  if (!identity) return check.problem(identity.error().message);
  UserSettings users = config.users;
  if (Status read = read_secrets(users); !read) check.problem(read.error().message);
  if (Status filled = fill_user_ids(users, *identity); !filled) return check.problem(filled.error().message);
  if (Status works = check_static_users(config, users, *identity); !works) check.problem(works.error().message);
  if (::geteuid() == 0) {
    if (Status checked = check_in_process_of(*identity, config, users, check); !checked)
      check.problem(checked.error().message);
    return;
  }
  if (::geteuid() != identity->uid)
    err << "warning: files are checked as uid " << ::geteuid() << ", and not as " << config.user
        << ", since only root can become that user\n";
  check_as_user(config, users, *identity, false, check);
}

void check_listen(const ListenSettings& listen, Checker& check, std::ostream& err) {
  if (!listen.group.empty())
    if (auto gid = find_group_id(listen.group, "listen.group"); !gid) check.problem(gid.error().message);
  auto outcome = try_address({listen.address, listen.host, listen.port, listen.unix_path, listen.mode, {}, {}});
  if (!outcome) return check.problem("listen.address: " + outcome.error().message);
  if (*outcome == AddressState::in_use)
    err << "note: listen.address: something listens at " << listen.address << " already: this lmtpd, or a server that has to be stopped\n";
}

// Everything that the machine says of the sections that could be read.
void check_machine(const ReadConfig& read, Checker& check, std::ostream& err) {
  const Config& config = read.config;
  auto good = [&](std::initializer_list<const char*> sections) {
    return std::ranges::none_of(sections, [&](const char* section) { return read.bad_sections.contains(section); });
  };
  if (good({"user", "group", "users", "spool", "delivery", "agent", "next_hop", "limits", "quota"})) check_users(config, check, err);
  if (good({"agent"})) check_programs(config, check);
  if (good({"tls"})) check_tls(config, check, err);
  if (good({"next_hop"}))
    if (auto routes = load_routes(config); !routes) check.problem(routes.error().message);
  if (good({"quota", "maildir", "users"})) check_quota(config, check, err);
  if (good({"listen"}))
    for (const ListenSettings& listen : config.listen) check_listen(listen, check, err);
}

// What the file amounts to, so that its reader sees a wrong idea of it.
std::string summary(const Config& config) {
  std::string out;
  for (const ListenSettings& listen : config.listen) out += "listens on " + listen.address + "\n";
  out += "users: ";
  out += describe_users(config.users);
  for (const NextHopSettings& hop : config.next_hops) out += "\nhands on to " + hop.spec.name + " at " + hop.spec.target.text;
  if (!config.next_hops.empty()) out += config.users.defaults.next_hop.empty() ? "\n  where a user's row says so" : "\n  " + config.users.defaults.next_hop + " where a user's row says nothing";
  if (!config.delivers_here()) return out + "\n";
  out += "\nspool: " + config.delivery.spool.root;
  out += config.delivery.spool.volume ? ", volume " + config.delivery.spool.volume->text() : ", no marker asked for";
  if (config.delivery.maildir.quota.driver == QuotaDriver::count) out += "\nquota: as Dovecot says, at " + config.quota_status.target.text;
  if (config.delivery.maildir.quota.driver == QuotaDriver::maildir)
    out += "\nquota: " + quota_text(config.users.defaults.quota) + " where a user's row says nothing";
  out += "\ndelivers with " + config.delivery.default_agent;
  for (const AgentSpec& agent : config.agents)
    if (agent.name != config.delivery.default_agent) out += ", or " + agent.name + " where a user's row says so";
  return out + "\n";
}

}  // namespace

Result<std::shared_ptr<const TlsContext>> load_tls(const TlsSettings& tls) {
  if (tls.certificate.empty()) return nullptr;
  TlsMaterial material;
  for (auto [path, into] : {std::pair(&tls.certificate, &material.certificate), {&tls.key, &material.key}, {&tls.client_ca, &material.client_ca}}) {
    if (path->empty()) continue;
    TL_TRY_ASSIGN(*into, read_file(*path, pem_bytes_max));
  }
  material.client_certificate_required = tls.client_certificate_required;
  material.client_subjects = tls.client_subjects;
  material.tls_1_2 = tls.tls_1_2;
  auto context = TlsContext::create(material);
  if (!context) return fail(context.error().code, "tls: {} (certificate {}, key {})", context.error().message, tls.certificate, tls.key);
  return context;
}

namespace {

Result<std::shared_ptr<const TlsClientContext>> load_hop_tls(const NextHopSettings& hop) {
  if (hop.spec.tls == HopTls::none) return nullptr;
  TlsClientMaterial material;
  for (auto [path, into] : {std::pair(&hop.ca, &material.ca), {&hop.certificate, &material.certificate}, {&hop.key, &material.key}}) {
    if (path->empty()) continue;
    TL_TRY_ASSIGN(*into, read_file(*path, pem_bytes_max));
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
