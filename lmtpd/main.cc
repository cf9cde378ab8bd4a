// lmtpd: mail delivery over LMTP. `lmtpd --help` lists the commands; docs/lmtpd.md describes them.
//
// Order of start: configuration, spawner (forked as root, before any thread and socket), sockets, then the
// process becomes the mail user for good, and only then opens the user database and serves.
#include <signal.h>
#include <sysexits.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "check_config.h"
#include "privileges.h"
#include "twinloft/base/log.h"
#include "twinloft/lmtpd/config/check_command.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/delivery/service.h"
#include "twinloft/lmtpd/net/server.h"

namespace {

using namespace twinloft;
using namespace twinloft::lmtpd;

constexpr const char* usage_text =
    "usage: lmtpd serve [--config FILE]         deliver mail; stays in the foreground, logs to standard error\n"
    "       lmtpd check-config [--config FILE]  say what is wrong with the configuration; exit 0 or 78\n"
    "       lmtpd check-command TEMPLATE [name=value ...]\n"
    "                                           show what a command template becomes, as JSON\n"
    "       lmtpd --help | --version\n"
    "FILE is /etc/twinloft/lmtpd.toml unless given. SIGTERM ends the server in good order.\n";

int usage_error(const std::string& what) {
  std::cerr << "lmtpd: " << what << "\n" << usage_text;
  return EX_USAGE;
}

// What is left of a command after its options: --config FILE or --config=FILE.
struct FileOption {
  std::string path = default_config_path;
  std::string wrong;
};

FileOption parse_file_option(std::span<const std::string> args) {
  FileOption out;
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i].starts_with("--config=")) out.path = args[i].substr(9);
    else if ((args[i] == "--config" || args[i] == "-c") && i + 1 < args.size()) out.path = args[++i];
    else if (out.wrong.empty()) out.wrong = args[i];
  }
  return out;
}

std::string machine_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

ListenAddress to_listen_address(const ListenSettings& s) {
  return {s.address, s.host, s.port, s.unix_path, s.mode};
}

ServerConfig to_server_config(const Config& config) {
  const LimitSettings& l = config.limits;
  ServerConfig out;
  out.session.hostname = config.hostname;
  out.session.message_bytes_max = l.message_bytes_max;
  out.session.recipients_max = l.recipients_max;
  out.session.bad_commands_max = l.bad_commands_max;
  out.session.detail_delimiter = config.users.detail_delimiter;
  out.io_threads = l.io_threads;
  out.deliveries_max = l.deliveries;
  out.deliveries_per_transaction_max = l.deliveries_per_transaction;
  out.connections_max = l.connections_max;
  out.idle_timeout = l.idle_timeout;
  out.body_memory = l.body_memory;
  out.body_memory_total = l.body_memory_total;
  out.body_directory = l.body_directory;
  out.lookup_blocks = config.users.driver != UserDriver::static_db;
  out.stop_on_signals = true;
  return out;
}

Result<std::vector<Listener>> bind_listeners(const Config& config) {
  std::vector<Listener> out;
  out.reserve(config.listen.size());
  for (const ListenSettings& settings : config.listen) {
    TL_TRY_ASSIGN(Listener listener, Listener::bind(to_listen_address(settings)));
    out.push_back(std::move(listener));
  }
  return out;
}

// Members are destroyed in the reverse order: the server first, the spawner last.
struct Parts {
  OsClock clock;
  OsRandom random;
  std::unique_ptr<Spawner> spawner;
  std::unique_ptr<UserDb> users;
  std::unique_ptr<DeliveryService> delivery;
  std::unique_ptr<Server> server;
};

Status start(Config& config, Parts& parts) {
  TL_TRY_ASSIGN(Identity identity, find_identity(config));
  TL_TRY(fill_static_ids(config.users, identity));
  if (!config.agents.empty()) {
    TL_TRY_ASSIGN(parts.spawner, Spawner::start(config.agents, config.spawner));
  }
  TL_TRY_ASSIGN(std::vector<Listener> listeners, bind_listeners(config));
  TL_TRY(drop_privileges(identity));
  TL_TRY_ASSIGN(parts.users, open_users(config.users));
  DeliveryConfig delivery = config.delivery;
  delivery.hostname = config.hostname;
  TL_TRY_ASSIGN(parts.delivery, DeliveryService::create(std::move(delivery), parts.spawner.get(), parts.clock));
  if (Status spool = parts.delivery->check_spool(); !spool)
    log_warning("{}; until it is there, every delivery gets 451 4.3.0", spool.error().message);
  TL_TRY_ASSIGN(parts.server, Server::create(to_server_config(config), std::move(listeners), *parts.users,
                                             *parts.delivery, parts.clock, parts.random));
  return {};
}

int serve(const std::string& path) {
  log_set_program("lmtpd");
  auto config = load_config(path);
  if (!config) {
    std::cerr << config.error().message << "\n";
    return EX_CONFIG;
  }
  log_set_level(config->log_level);
  for (const std::string& warning : config->warnings) log_line(LogLevel::warning, warning);
  if (config->hostname.empty()) config->hostname = machine_name();
  (void)::signal(SIGPIPE, SIG_IGN);
  Parts parts;
  if (Status started = start(*config, parts); !started) {
    log_error("{}", started.error().message);
    return EX_CONFIG;
  }
  for (const ListenSettings& listen : config->listen) log_info("listening on {}", listen.address);
  parts.server->run();
  log_info("stopped");
  return 0;
}

int run(std::span<const std::string> args) {
  if (args.empty()) return usage_error("a command is missing");
  const std::string& command = args.front();
  if (command == "--help" || command == "-h") {
    std::cout << usage_text;
    return 0;
  }
  if (command == "--version") {
    std::cout << "lmtpd " TWINLOFT_VERSION "\n";
    return 0;
  }
  if (command == "check-command") return check_command(args.subspan(1), std::cout, std::cerr);
  if (command != "serve" && command != "check-config") return usage_error("unknown command " + command);
  FileOption option = parse_file_option(args.subspan(1));
  if (!option.wrong.empty()) return usage_error("unexpected argument " + option.wrong);
  return command == "serve" ? serve(option.path) : check_config(option.path, std::cout, std::cerr);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  try {
    return run(args);
  } catch (const std::exception& e) {
    std::cerr << "lmtpd: " << e.what() << "\n";
    return EX_SOFTWARE;
  }
}
