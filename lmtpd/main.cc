// lmtpd: mail delivery over LMTP. `lmtpd --help` lists the commands; docs/lmtpd.md describes them.
//
// Order of start: configuration, spawner (forked as root, before any thread and socket), sockets, then the
// process becomes the mail user for good, and only then opens the user database and serves.
#include <signal.h>
#include <sys/resource.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cstdlib>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "check_config.h"
#include "privileges.h"
#include "twinloft/base/log.h"
#include "twinloft/base/service_manager.h"
#include "twinloft/lmtpd/config/check_command.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/delivery/service.h"
#include "twinloft/lmtpd/net/server.h"

namespace {

using namespace twinloft;
using namespace twinloft::lmtpd;

namespace po = boost::program_options;

constexpr const char* usage_text =
    "usage: lmtpd serve [--config FILE]         deliver mail; stays in the foreground, logs to standard error\n"
    "       lmtpd check-config [--config FILE]  say what is wrong with the configuration; exit 0 or 78\n"
    "       lmtpd check-command TEMPLATE [name=value ...]\n"
    "                                           show what a command template becomes, as JSON\n"
    "       lmtpd --help | --version\n"
    "FILE is /etc/twinloft/lmtpd.toml unless given; \"lmtpd --config FILE\" serves, and the word \"--config\" may be\n"
    "left out after a command. SIGTERM ends the server in good order.\n";

int usage_error(const std::string& what) {
  std::cerr << "lmtpd: " << what << "\n" << usage_text;
  return EX_USAGE;
}

// check-command is not parsed here: every word behind it is its own, also one that begins with "-".
struct CommandLine {
  std::string command;
  std::string file = default_config_path;
  bool help = false;
  bool version = false;
};

// Errors: unknown options, options without their value, words too many.
Result<CommandLine> parse_command_line(std::span<const std::string> args) {
  CommandLine out;
  std::vector<std::string> words;
  po::options_description options;
  options.add_options()("help,h", "")("version,V", "")("config,c", po::value<std::string>())(
      "word", po::value(&words));
  po::positional_options_description positional;
  positional.add("word", -1);
  po::variables_map given;
  try {
    po::store(po::command_line_parser({args.begin(), args.end()}).options(options).positional(positional).run(), given);
    po::notify(given);
  } catch (const po::error& e) {
    return fail(Errc::invalid, "{}", e.what());
  }
  out.help = given.count("help") > 0;
  out.version = given.count("version") > 0;
  if (given.count("config")) {
    out.file = given["config"].as<std::string>();
    if (words.empty()) words.push_back("serve");
  } else if (words.size() == 2) {
    out.file = words.back();
    words.pop_back();
  }
  if (words.size() > 1) return fail(Errc::invalid, "unexpected argument {}", words.back());
  if (!words.empty()) out.command = words.front();
  return out;
}

std::string machine_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

Result<ListenAddress> to_listen_address(const ListenSettings& s) {
  ListenAddress out{s.address, s.host, s.port, s.unix_path, s.mode, {}, s.rules};
  if (!s.group.empty()) {
    TL_TRY_ASSIGN(out.gid, find_group_id(s.group, "listen.group"));
  }
  return out;
}

// The built-in agent does, and an external one whose section says so.
bool takes_utf8(const Config& config, const User& user) {
  const std::string& agent = user.agent.empty() ? config.delivery.default_agent : user.agent;
  auto spec = std::find_if(config.agents.begin(), config.agents.end(), [&](const AgentSpec& a) { return a.name == agent; });
  return spec == config.agents.end() || spec->smtputf8;
}

ServerConfig to_server_config(const Config& config) {
  const LimitSettings& l = config.limits;
  ServerConfig out;
  out.session.hostname = config.hostname;
  out.session.message_bytes_max = l.message_bytes_max;
  out.session.header_bytes_max = l.header_bytes_max;
  out.session.recipients_max = l.recipients_max;
  out.session.bad_commands_max = l.bad_commands_max;
  out.session.detail_delimiter = config.users.detail_delimiter;
  out.session.takes_utf8 = [&config](const User& user) { return takes_utf8(config, user); };
  out.io_threads = l.io_threads;
  out.deliveries_max = l.deliveries;
  out.lookups_max = static_cast<std::uint32_t>(config.users.sqlite.connections_max);
  out.deliveries_per_transaction_max = l.deliveries_per_transaction;
  out.connections_max = l.connections_max;
  out.connections_per_address_max = l.connections_per_address_max;
  out.transaction_timeout = l.transaction_timeout;
  out.idle_timeout = l.idle_timeout;
  out.queue_time = l.queue_time;
  out.stop_timeout = l.stop_timeout;
  out.body_memory = l.body_memory;
  out.body_memory_total = l.body_memory_total;
  out.body_directory = l.body_directory;
  out.lookup_blocks = config.users.driver != UserDriver::static_db;
  out.stop_on_signals = true;
  return out;
}

// What the service manager has opened is taken; the rest is opened here.
Result<std::vector<Listener>> open_listeners(const Config& config, std::vector<Fd> passed) {
  std::vector<Listener> out;
  out.reserve(config.listen.size());
  for (const ListenSettings& settings : config.listen) {
    TL_TRY_ASSIGN(ListenAddress address, to_listen_address(settings));
    TL_TRY_ASSIGN(std::optional<Listener> adopted, Listener::adopt(address, passed));
    if (adopted) {
      out.push_back(std::move(*adopted));
      continue;
    }
    TL_TRY_ASSIGN(Listener bound, Listener::bind(address));
    out.push_back(std::move(bound));
  }
  if (!passed.empty())
    return fail(Errc::invalid, "the service manager has passed {} socket(s) that no [[listen]] names: each ListenStream= needs one with the same address",
                passed.size());
  return out;
}

// Connections and deliveries need several descriptors each; the usual soft limit of 1024 is there for select(2), which
// nothing here uses. Called after the fork of the spawner, whose agents get a limit of their own.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) log_warning("the limit of open files could not be raised");
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
  std::vector<Fd> passed = take_passed_sockets();
  TL_TRY_ASSIGN(Identity identity, find_identity(config));
  TL_TRY(fill_static_ids(config.users, identity));
  TL_TRY(check_static_users(config, config.users, identity));
  if (!config.agents.empty()) {
    TL_TRY_ASSIGN(parts.spawner, Spawner::start(config.agents, config.spawner));
  }
  raise_descriptor_limit();
  TL_TRY_ASSIGN(std::vector<Listener> listeners, open_listeners(config, std::move(passed)));
  TL_TRY_ASSIGN(std::shared_ptr<const TlsContext> tls, load_tls(config.tls));
  TL_TRY(drop_privileges(identity));
  TL_TRY_ASSIGN(parts.users, open_users(config.users));
  auto memory = std::make_shared<MemoryBudget>(config.limits.body_memory_total);
  DeliveryConfig delivery = config.delivery;
  delivery.hostname = config.hostname;
  delivery.external.memory = memory;
  TL_TRY_ASSIGN(parts.delivery, DeliveryService::create(std::move(delivery), parts.spawner.get(), parts.clock));
  if (Status spool = parts.delivery->check_spool(); !spool)
    log_warning("{}; until it is there, every delivery gets 451 4.3.0", spool.error().message);
  ServerConfig server = to_server_config(config);
  server.memory = std::move(memory);
  server.tls = std::move(tls);
  TL_TRY_ASSIGN(parts.server, Server::create(std::move(server), std::move(listeners), *parts.users, *parts.delivery,
                                             parts.clock, parts.random));
  return {};
}

// Threads that stand in the kernel cannot be waited for; the clients of their deliveries have got no 250.
[[noreturn]] void leave(const Parts& parts, const RunEnd& end) {
  log_error("limits.stop_timeout is over: leaving {} deliveries that have not ended, and {} connections; none of their "
            "clients got a 250 for them", end.deliveries_left, end.connections_left);
  if (parts.spawner) parts.spawner->give_up();
  std::_Exit(EX_TEMPFAIL);
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
  (void)::signal(SIGHUP, SIG_IGN);  // until the server takes it
  Parts parts;
  if (Status started = start(*config, parts); !started) {
    log_error("{}", started.error().message);
    return EX_CONFIG;
  }
  for (const ListenSettings& listen : config->listen) {
    const char* tls = listen.rules.tls == TlsPolicy::none ? "" : listen.rules.tls == TlsPolicy::offered ? ", TLS offered" : ", TLS required";
    log_info("listening on {}{}", listen.address, tls);
  }
  tell_service_manager(fmt::format("READY=1\nSTATUS=listening on {} address(es)", config->listen.size()));
  RunEnd end = parts.server->run();
  if (!end.in_order) leave(parts, end);
  log_info("stopped");
  return 0;
}

int run(std::span<const std::string> args) {
  if (!args.empty() && args.front() == "check-command")
    return check_command(args.subspan(1), std::cout, std::cerr);
  auto line = parse_command_line(args);
  if (!line) return usage_error(line.error().message);
  if (line->help) {
    std::cout << usage_text;
    return 0;
  }
  if (line->version) {
    std::cout << "lmtpd " TWINLOFT_VERSION "\n";
    return 0;
  }
  if (line->command.empty()) return usage_error("a command is missing");
  if (line->command == "serve") return serve(line->file);
  if (line->command == "check-config") return check_config(line->file, std::cout, std::cerr);
  return usage_error("unknown command " + line->command);
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
