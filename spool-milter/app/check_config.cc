#include "check_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <ostream>
#include <utility>

#include "twinloft/lmtpd/check/checker.h"
#include "twinloft/lmtpd/check/checks.h"
#include "twinloft/lmtpd/users/users.h"

namespace twinloft::spool_milter {

using namespace lmtpd;

namespace {

constexpr std::string_view no_section =
    "there is no section [spool_milter]: add it, with the address where the MTA connects, and the domains "
    "whose mail goes to lmtpd";

void check_as_user(const Config& config, const UserSettings& users, GoodSections good, Checker& check) {
  OsClock clock;
  if (good({"users"})) (void)check_user_source(users, clock, check);
  if (config.delivers_here() && good({"spool"})) check_spool(config, check);
  if (config.asks_dovecot() && good({"quota"})) check_quota_status(config.quota_status, clock, check);
}

void check_users(const Config& config, GoodSections good, Checker& check, std::ostream& err) {
  auto identity = find_identity(config.user, config.group);
  if (!identity) {
    if (good({"user", "group"})) check.problem(identity.error().message);
    return;
  }
  UserSettings users = config.users;
  if (good({"users"})) {
    if (Status read = read_secrets(users); !read) check.problem(read.error().message);
    if (Status filled = fill_user_ids(users, *identity); !filled) check.problem(filled.error().message);
  }
  check_as(
      *identity, config.user, [&](Checker& there) { check_as_user(config, users, good, there); }, check, err);
}

// A connection has a socket.
void check_open_files(const SpoolMilterSettings& milter, Checker& check) {
  constexpr std::uint64_t own = 128;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return;
  const std::uint64_t wanted = own + milter.connections_max;
  if (wanted > limit.rlim_max)
    check.warning(fmt::format(
        "spool_milter.connections ({}) may need {} open files, but this process may have only {}: "
        "raise the limit (LimitNOFILE= of the service), or lower spool_milter.connections",
        milter.connections_max, wanted, limit.rlim_max));
}

void check_machine(const ReadConfig& read, Checker& check, std::ostream& err) {
  const Config& config = read.config;
  GoodSections good{read.bad_sections};
  check_users(config, good, check, err);
  if (!config.spool_milter) return check.problem(std::string(no_section));
  if (!good({"spool_milter"})) return;
  check_listen(config.spool_milter->listen, "spool_milter.address", "spool-milter", check, err);
  check_open_files(*config.spool_milter, check);
}

std::string summary(const Config& config) {
  const SpoolMilterSettings& milter = *config.spool_milter;
  std::string out = "listens on " + milter.listen.address + "\nusers: " + describe_users(config.users);
  if (config.delivers_here()) out += "\nspool: " + config.delivery.spool.root;
  if (!milter.domains.empty())
    out += fmt::format("\njudges recipients in {}", fmt::join(milter.domains, ", "));
  if (!milter.rcpt_mailer.empty() || !milter.rcpt_host.empty()) {
    out += "\njudges recipients that the MTA sends to lmtpd:";
    if (!milter.rcpt_mailer.empty())
      out += fmt::format(" {{rcpt_mailer}} is {}", fmt::join(milter.rcpt_mailer, " or "));
    if (!milter.rcpt_mailer.empty() && !milter.rcpt_host.empty()) out += ", and";
    if (!milter.rcpt_host.empty())
      out += fmt::format(" {{rcpt_host}} is {}", fmt::join(milter.rcpt_host, " or "));
  }
  out += milter.refuses_unknown ? "\nunknown users: refused with 550" : "\nunknown users: left to the MTA";
  return out + "\n";
}

}  // namespace

Result<Config> load_config(const std::string& path) {
  TL_TRY_ASSIGN(Config config, lmtpd::load_config(path));
  if (!config.spool_milter) return fail(Errc::invalid, "{}: {}", path, no_section);
  config.listen = {config.spool_milter->listen};
  return config;
}

int check_config(const std::string& path, std::ostream& out, std::ostream& err) {
  return check_config_file(path, {check_machine, summary}, out, err);
}

}  // namespace twinloft::spool_milter
