#include "check_config.h"

#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ostream>

#include "privileges.h"
#include "twinloft/argv/argv.h"
#include "twinloft/lmtpd/delivery/spool.h"

namespace twinloft::lmtpd {

namespace {

class Checker {
 public:
  Checker(const Config& config, std::ostream& err) : config_(config), err_(err) {}

  void problem(const std::string& text) {
    err_ << config_.file << ": " << text << "\n";
    ++problems_;
  }
  void must(const Status& status) {
    if (!status) problem(status.error().message);
  }
  void must_be_directory(const char* key, const std::string& path) {
    struct stat found {};
    if (::stat(path.c_str(), &found) != 0) problem(std::string(key) + ": " + path + ": " + std::strerror(errno));
    else if (!S_ISDIR(found.st_mode)) problem(std::string(key) + ": " + path + " is no directory");
  }
  int problems() const { return problems_; }

 private:
  const Config& config_;
  std::ostream& err_;
  int problems_ = 0;
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

void check_spool(const Config& config, Checker& check) {
  static OsFileOps ops;
  auto spool = Spool::create(config.delivery.spool, ops);
  if (!spool) return check.problem("spool.path: " + spool.error().message);
  if (auto opened = (*spool)->open(); !opened) check.problem("spool: " + opened.error().message);
}

void check_users(const Config& config, Checker& check) {
  auto identity = find_identity(config);
  if (!identity) return check.problem(identity.error().message);
  UserSettings users = config.users;
  if (Status filled = fill_static_ids(users, *identity); !filled) return check.problem(filled.error().message);
  if (auto opened = open_users(users); !opened) check.problem("users: " + opened.error().message);
}

// What the file amounts to, so that its reader sees a wrong idea of it.
std::string summary(const Config& config) {
  std::string out;
  for (const ListenSettings& listen : config.listen) out += "listens on " + listen.address + "\n";
  out += "users: ";
  out += config.users.driver == UserDriver::sqlite ? "sqlite, " + config.users.sqlite.path : "static, homes " + config.users.fixed.home;
  out += "\nspool: " + config.delivery.spool.root;
  out += config.delivery.spool.volume ? ", volume " + config.delivery.spool.volume->text() : ", no marker asked for";
  out += "\ndelivers with " + config.delivery.default_agent;
  for (const AgentSpec& agent : config.agents)
    if (agent.name != config.delivery.default_agent) out += ", or " + agent.name + " where a user's row says so";
  return out + "\n";
}

}  // namespace

Result<std::unique_ptr<UserDb>> open_users(const UserSettings& users) {
  if (users.driver == UserDriver::sqlite) return open_sqlite_db(users.sqlite);
  return make_static_db(users.fixed);
}

int check_config(const std::string& path, std::ostream& out, std::ostream& err) {
  auto config = load_config(path);
  if (!config) {
    err << config.error().message << "\n";
    return EX_CONFIG;
  }
  for (const std::string& warning : config->warnings)
    err << "warning: " << warning << (warning.ends_with('\n') ? "" : "\n");
  Checker check(*config, err);
  check_users(*config, check);
  check_spool(*config, check);
  check_programs(*config, check);
  check.must_be_directory("limits.body_directory", config->limits.body_directory);
  for (const ListenSettings& listen : config->listen)
    if (auto gid = listen.group.empty() ? Result<gid_t>(0) : find_group_id(listen.group, "listen.group"); !gid)
      check.problem(gid.error().message);
  if (!config->agents.empty()) check.must_be_directory("delivery.temporary", config->delivery.external.temporary);
  if (check.problems() > 0) return EX_CONFIG;
  out << "ok\n" << summary(*config);
  return 0;
}

}  // namespace twinloft::lmtpd
