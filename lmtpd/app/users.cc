#include "users.h"

#include <fmt/format.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <ostream>
#include <vector>

#include "dovecot_sieve.h"
#include "twinloft/lmtpd/proto/path.h"
#include "twinloft/lmtpd/sieve/lmtp_name.h"
#include "twinloft/lmtpd/sieve/script_look.h"
#include "twinloft/lmtpd/spool/spool.h"
#include "twinloft/lmtpd/users/users.h"

namespace twinloft::lmtpd {

namespace {

// "/srv/mail/" for "/srv/mail/%domain%/%user%". Empty: the home begins with a macro, or this part is "/".
std::string constant_part(const std::string& home) {
  std::size_t macro = home.find('%');
  if (macro == std::string::npos) return home;
  std::string out = home.substr(0, home.rfind('/', macro) + 1);
  return out.find_first_not_of('/') == std::string::npos ? "" : out;
}

}  // namespace

SpawnerOptions spawner_options(const Config& config, const UserSettings& users, const Identity& identity) {
  SpawnerOptions out = config.spawner;
  out.run_as.own = {{identity.uid, identity.gid}, {users.defaults.uid, users.defaults.gid}};
  out.run_as.only_own = users.driver == UserDriver::static_db;
  if (users.driver == UserDriver::passwd)
    out.run_as.uid_min = std::min(out.run_as.uid_min, users.passwd.uid_min);
  for (const std::string& directory : {config.delivery.spool.root, constant_part(users.defaults.home)})
    if (!directory.empty()) out.run_as.homes.push_back(directory);
  return out;
}

namespace {

Status check_run_as_user(const User& user, const Config& config, const Identity& identity) {
  UserSettings users = config.users;
  TL_TRY(fill_user_ids(users, identity));
  auto ask = check_run_as(spawner_options(config, users, identity).run_as, user.uid, user.gid, user.home);
  if (!ask)
    return fail(Errc::invalid, "users.uid: the mail of {} would get 451: {}", user.name, ask.error().message);
  if (account_agrees(*ask, user.uid, user.gid, user.home)) return {};
  if (ask->home && !account_agrees({false, true}, user.uid, user.gid, user.home))
    return fail(Errc::invalid,
                "users.home: the mail of {} would get 451: its home {} is neither in the spool nor in the "
                "home of the account with uid {}; allow its directory: delivery.homes = [\"{}\"]",
                user.name, user.home, user.uid,
                user.home.substr(0, std::max<std::size_t>(user.home.rfind('/'), 1)));
  return fail(
      Errc::invalid,
      "users.gid: the mail of {} would get 451: gid {} is below delivery.gid_min ({}), and is not the "
      "group of the account with uid {}",
      user.name, user.gid, config.spawner.run_as.gid_min, user.uid);
}

}  // namespace

// Checks the same conditions as the agents (delivery/).
Status check_delivery_to(const User& user, const Config& config, const Identity& identity, bool by_root) {
  if (!user.next_hop.empty()) {
    bool known = std::any_of(config.next_hops.begin(), config.next_hops.end(),
                             [&](const NextHopSettings& hop) { return hop.spec.name == user.next_hop; });
    if (known) return {};
    return fail(Errc::invalid,
                "the user's row names the next hop \"{}\", and every mail would get 451: there is no section "
                "[next_hop.{}]",
                user.next_hop, user.next_hop);
  }
  if (!config.delivers_here())
    return fail(Errc::invalid, "{} has no next hop, and every mail would get 451: there is no [spool] here",
                user.name);
  const std::string& agent = agent_of(config.delivery, user);
  const char* agent_key = user.agent.empty() ? "delivery.agent" : "users.agent";
  bool own_ids = user.uid == identity.uid && user.gid == identity.gid;
  bool is_builtin = agent == "maildir";
  if (is_builtin && user.maildir.empty())
    return fail(
        Errc::invalid,
        "users.maildir: is missing, so every mail, such as for {}, would get 451: {} is \"maildir\", the "
        "built-in agent, which writes there; add maildir = \"{}/Maildir\"",
        user.name, agent_key, config.users.defaults.home);
  if (is_builtin && !own_ids)
    return fail(Errc::invalid,
                "users.uid: the mail of {} belongs to {}:{}, but the built-in agent writes as lmtpd's own "
                "user, {}:{}, and "
                "every mail would get 451; make users.uid and users.gid that user, or name an external agent",
                user.name, user.uid, user.gid, identity.uid, identity.gid);
  if (!is_builtin && !own_ids && !by_root)
    return fail(
        Errc::invalid,
        "users.uid: only root can run agents as {}:{}, the owner of the mail of {}; start lmtpd as root, "
        "and set its own user with user = \"...\"",
        user.uid, user.gid, user.name);
  if (!is_builtin) TL_TRY(check_run_as_user(user, config, identity));
  auto spec = std::find_if(config.agents.begin(), config.agents.end(),
                           [&](const auto& a) { return a.name == agent; });
  bool anywhere = spec != config.agents.end() && spec->syncs && user.maildir.empty();
  if (anywhere) return {};
  static OsFileOps ops;
  TL_TRY_ASSIGN(std::unique_ptr<Spool> spool, Spool::create(config.delivery.spool, ops));
  const char* key = user.maildir.empty() ? "users.home" : "users.maildir";
  auto inside = spool->relative(user.maildir.empty() ? user.home : user.maildir);
  if (!inside) return fail(Errc::invalid, "{}: every mail would get 451: {}", key, inside.error().message);
  return {};
}

Status check_static_users(const Config& config, const UserSettings& users, const Identity& identity) {
  if (users.driver != UserDriver::static_db) return {};
  OsClock clock;
  TL_TRY_ASSIGN(std::unique_ptr<Directory> directory, open_users(users, clock));
  const StaticDbConfig& fixed = users.fixed;
  const auto* listed = std::get_if<LocalParts>(&fixed.users);
  TL_TRY_ASSIGN(std::optional<Resolved> one,
                directory->lookup({listed && !listed->empty() ? listed->front() : "user",
                                   {},
                                   fixed.domains.empty() ? "example.org" : fixed.domains.front()}));
  if (!one) return {};
  return check_delivery_to(one->user, config, identity, ::geteuid() == 0);
}

// ---- lmtpd user

namespace {

void write_line(std::ostream& out, std::string_view name, std::string_view value) {
  out << fmt::format("  {:<10} {}\n", name, value);
}

std::string_view folders_text(FoldersByDetail folders) {
  constexpr std::string_view texts[] = {"none", "existing ones", "existing and new ones"};
  return texts[static_cast<std::size_t>(folders)];
}

int print_outcome(const User& user, const Status& deliverable, std::ostream& out) {
  if (user.state == UserState::disabled)
    return write_line(out, "mail", "refused, 550 5.2.1: the user is disabled"), EX_NOUSER;
  if (user.state == UserState::deferred)
    return write_line(out, "mail", "deferred, 450 4.2.1: the user is deferred"), EX_TEMPFAIL;
  if (!deliverable)
    return write_line(out, "mail", "deferred, 451: " + deliverable.error().message), EX_TEMPFAIL;
  write_line(out, "mail", "accepted");
  return 0;
}

int print_next_hop(const Resolved& found, const LookupRequest& asked, const Config& config,
                   const Status& deliverable, std::ostream& out) {
  auto hop = std::find_if(config.next_hops.begin(), config.next_hops.end(),
                          [&](const NextHopSettings& h) { return h.spec.name == found.user.next_hop; });
  write_line(out, "next hop",
             found.user.next_hop + (hop == config.next_hops.end() ? "" : " at " + hop->spec.target.text));
  if (const std::string& detail = found.detail.value_or(asked.detail); !detail.empty())
    write_line(out, "detail", detail);
  return print_outcome(found.user, deliverable, out);
}

// Whether a script runs for the user now, and where the mail goes.
std::string sieve_text(const User& user, const Config& config) {
  const SieveConfig& sieve = config.delivery.sieve;
  static OsFileOps ops;
  auto look = [&]() -> Result<bool> {
    TL_TRY_ASSIGN(std::unique_ptr<Spool> spool, Spool::create(config.delivery.spool, ops));
    TL_TRY_ASSIGN(SpoolHandle handle, spool->open());
    return has_script(sieve.scripts, user, handle, *spool, ops);
  };
  auto found = look();
  if (!found) return "unknown, mail is deferred, 451: " + found.error().message;
  if (!*found) return fmt::format("no script; scripts run for {}", describe_rule(sieve.scripts));
  if (auto named = sieve.next_hop.empty() ? Status() : check_lmtp_name(user.name, sieve.delimiters); !named)
    return "mail is deferred, 451: " + named.error().message;
  return fmt::format("{} delivers; scripts run for {}", sieve.agent.empty() ? "Dovecot's LMTP" : sieve.agent,
                     describe_rule(sieve.scripts));
}

int print_user(const Resolved& found, const LookupRequest& asked, const Config& config,
               const Status& deliverable, std::ostream& out) {
  const User& user = found.user;
  write_line(out, "user", user.name);
  if (!user.next_hop.empty()) return print_next_hop(found, asked, config, deliverable, out);
  write_line(out, "uid, gid", fmt::format("{}, {}", user.uid, user.gid));
  write_line(out, "home", user.home);
  write_line(out, "maildir", user.maildir.empty() ? "(none)" : user.maildir);
  write_line(out, "agent", agent_of(config.delivery, user) + (user.agent.empty() ? " (delivery.agent)" : ""));
  if (config.delivery.sieve.on() && agent_of(config.delivery, user) == builtin_agent)
    write_line(out, "sieve", sieve_text(user, config));
  if (config.delivery.maildir.quota.driver == QuotaDriver::maildir)
    write_line(out, "quota", quota_text(user.quota));
  if (config.delivery.maildir.quota.driver == QuotaDriver::count)
    write_line(out, "quota", "as Dovecot says, at " + config.quota_status.target.text);
  if (const std::string& detail = found.detail.value_or(asked.detail); !detail.empty())
    write_line(out, "detail", detail);
  if (user.detail_folders)
    write_line(out, "folders", fmt::format("{}, by the detail", folders_text(*user.detail_folders)));
  return print_outcome(user, deliverable, out);
}

struct Asked {
  Config config;
  Identity identity;
  bool by_root = false;
  LookupRequest request;
  std::unique_ptr<Directory> users;
};

Result<Asked> ask_for(const std::string& config_path, const Path& path, const Clock& clock) {
  Asked out;
  TL_TRY_ASSIGN(out.config, load_config(config_path));
  UserSettings& users = out.config.users;
  SplitLocalPart split = split_detail(path.local_part, users.directory.detail_delimiter);
  out.request = {std::string(split.user), std::string(split.detail), path.domain};
  out.by_root = ::geteuid() == 0;
  TL_TRY_ASSIGN(out.identity, find_identity(out.config.user, out.config.group));
  TL_TRY(fill_user_ids(users, out.identity));
  TL_TRY(read_secrets(users));
  auto scripts = ask_for_scripts(out.config);
  out.config.delivery.sieve.scripts = scripts ? in_doubt_all(*std::move(scripts), out.config)
                                              : AllUsers{scripts.error().message};
  out.config.delivery.sieve.delimiters = find_delimiters(out.config);
  if (out.by_root) TL_TRY(drop_privileges(out.identity));
  TL_TRY_ASSIGN(out.users, open_users(users, clock));
  return out;
}

}  // namespace

int show_user(const std::string& config_path, const std::string& address, std::ostream& out,
              std::ostream& err) {
  auto path = parse_address(address);
  if (!path) {
    err << path.error().message << "\n";
    return EX_USAGE;
  }
  OsClock clock;
  auto asked = ask_for(config_path, *path, clock);
  if (!asked) {
    err << asked.error().message << "\n";
    return EX_CONFIG;
  }
  std::vector<LookupStep> steps;
  LookupResult found = asked->users->explain(asked->request, steps);
  out << address << "\n";
  for (const LookupStep& step : steps)
    write_line(out, "looked up",
               fmt::format("{} in {}: {}", step.key, describe_users(asked->config.users), step.found));
  if (!found) return write_line(out, "mail", "deferred, 451: " + found.error().message), EX_TEMPFAIL;
  if (!*found) return write_line(out, "mail", "refused, 550 5.1.1: no such user"), EX_NOUSER;
  Status deliverable = check_delivery_to((*found)->user, asked->config, asked->identity, asked->by_root);
  return print_user(**found, asked->request, asked->config, deliverable, out);
}

}  // namespace twinloft::lmtpd
