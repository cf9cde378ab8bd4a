#include "serve.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <optional>
#include <thread>

#include "check_config.h"
#include "twinloft/base/log.h"
#include "twinloft/lmtpd/config/ways.h"
#include "twinloft/lmtpd/connect/connector.h"
#include "twinloft/lmtpd/delivery/service.h"
#include "twinloft/lmtpd/delivery/spool_watch.h"
#include "twinloft/lmtpd/net/server.h"
#include "twinloft/lmtpd/process/confine.h"
#include "twinloft/lmtpd/process/control_channel.h"
#include "twinloft/lmtpd/process/privileges.h"
#include "twinloft/lmtpd/route/router.h"
#include "twinloft/lmtpd/users/users.h"
#include "users.h"

namespace twinloft::lmtpd {

namespace {

ServerConfig to_server_config(const Config& config) {
  const LimitSettings& l = config.limits;
  ServerConfig out;
  out.session.hostname = config.hostname;
  out.session.message_bytes_max = l.message_bytes_max;
  out.session.header_bytes_max = l.header_bytes_max;
  out.session.recipients_max = l.recipients_max;
  out.session.bad_commands_max = l.bad_commands_max;
  out.session.refused_max = l.refused_max;
  out.session.recipients.over_quota = config.delivery.maildir.quota.over;
  out.session.recipients.detail_delimiter = config.users.directory.detail_delimiter;
  auto ways = std::make_shared<const WaysOfDelivery>(config);
  out.session.agent_refusal = [ways](const Envelope& envelope, const Recipient& recipient) {
    return ways->refusal(envelope, recipient);
  };
  out.session.recipients.takes_utf8 = [ways](const User& user) { return ways->takes_utf8(user); };
  out.io_threads = l.io_threads;
  out.deliveries_max = l.deliveries;
  out.lookups_max = static_cast<std::uint32_t>(lookups_at_once(config.users));
  if (config.delivery.maildir.quota.driver == QuotaDriver::none) out.rooms_max = 1;
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
  out.body_disk_total = l.body_disk_total;
  return out;
}

// Connections and deliveries need several descriptors each. The usual soft limit of 1024 exists for
// select(2), which lmtpd does not use. Called after the fork of the spawner, whose agents have a limit of
// their own.
void raise_descriptor_limit(const Config& config) {
  rlimit limit{};
  if (auto few = compare_open_files(config)) log_warning("{}", *few);
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    log_warning("cannot raise the limit of open files to its hard limit");
}

// Members are destroyed in the reverse order: the server first, the spawner last.
struct Parts {
  std::optional<LogWriter> log;  // destroyed last
  OsClock clock;
  OsRandom random;
  std::unique_ptr<Spawner> spawner;
  std::unique_ptr<UserDb> users;
  UserProcess* user_process = nullptr;        // owned by `users`; null: no user process
  std::unique_ptr<ConnectProcess> connector;  // null: nothing to connect to
  std::unique_ptr<QuotaStatus> quota_status;  // null: Dovecot does not count
  std::unique_ptr<DeliveryService> delivery;  // null: no spool
  std::unique_ptr<SpoolWatch> watch;          // null: no spool
  std::unique_ptr<Router> router;             // null: no next hops
  std::unique_ptr<Server> server;
  std::atomic<bool> aborted{false};  // the end of helpers is expected and not logged
};

// For a helper process that makes connections. Its user's permissions limit it further.
Status become_helper(const Identity& identity, const std::string& user, const char* what) {
  TL_TRY(drop_privileges(identity));
  if (Status confined = confine_helper(); !confined)
    log_warning(
        "seccomp filter not installed ({}): the process that {} is unconfined, and has all permissions "
        "of {}",
        confined.error().message, what, user);
  return {};
}

bool asks_dovecot(const Config& config) {
  return config.delivers_here() && config.delivery.maildir.quota.driver == QuotaDriver::count;
}

// The targets are the next hops in their order, then Dovecot's quota-status.
Status start_connector(const Config& config, const Identity& identity, Parts& parts) {
  std::vector<ConnectTarget> targets;
  for (const NextHopSettings& hop : config.next_hops) targets.push_back(hop.spec.target);
  if (asks_dovecot(config)) targets.push_back(config.quota_status.target);
  if (targets.empty()) return {};
  TL_TRY_ASSIGN(parts.connector, ConnectProcess::start(std::move(targets), [&] {
                  return become_helper(identity, config.user, "makes connections");
                }));
  return {};
}

// For all messages: while they arrive, and as the input of agents.
struct Budgets {
  std::shared_ptr<MemoryBudget> memory, disk;
};

// A look that hangs may outlive all parts, so the clock does too.
Status watch_spool(const Config& config, Parts& parts) {
  static const OsClock clock;
  static OsFileOps ops;
  TL_TRY_ASSIGN(std::shared_ptr<Spool> spool, Spool::create(config.delivery.spool, ops));
  parts.watch = std::make_unique<SpoolWatch>(
      config.spool_watch, eyes_for(std::move(spool), config.delivery.spool, config.spool_watch.state_file),
      clock);
  return {};
}

std::function<std::optional<Reply>(const User&)> refusals_of(const Parts& parts, const SpoolRules& rules) {
  if (!parts.watch) return {};
  return [&parts, rules](const User& user) -> std::optional<Reply> {
    if (!user.next_hop.empty()) return std::nullopt;
    return refusal_of_spool(parts.watch->health(), rules, parts.clock.now(), false);
  };
}

// Opens local delivery if there is a spool, and the router if there are next hops.
Result<Deliverer*> open_delivery(const Config& config, RouterConfig routes, const Budgets& budgets,
                                 Parts& parts) {
  if (config.delivers_here()) {
    DeliveryConfig delivery = config.delivery;
    delivery.hostname = config.hostname;
    delivery.external.memory = budgets.memory;
    delivery.external.disk = budgets.disk;
    if (asks_dovecot(config))
      parts.quota_status = std::make_unique<QuotaStatus>(config.quota_status, *parts.connector,
                                                         config.next_hops.size(), parts.clock);
    delivery.maildir.quota_service = parts.quota_status.get();
    TL_TRY_ASSIGN(parts.delivery,
                  DeliveryService::create(std::move(delivery), parts.spawner.get(), parts.clock));
    if (Status spool = parts.delivery->check_spool(); !spool)
      log_warning("{}; until the spool is available, every delivery gets 451", spool.error().message);
  }
  if (config.delivers_here()) TL_TRY(watch_spool(config, parts));
  if (config.next_hops.empty()) return parts.delivery.get();
  parts.router = Router::create(std::move(routes), parts.delivery.get(), *parts.connector, parts.clock);
  return parts.router.get();
}

// The spawner, the user process and the connector are forked before any thread exists. Nothing is read from
// the network before this process has become the mail user.
Status start(Config& config, std::vector<Listener> listeners, Parts& parts) {
  TL_TRY_ASSIGN(Identity identity, find_identity(config.user, config.group));
  TL_TRY(fill_user_ids(config.users, identity));
  TL_TRY(check_static_users(config, config.users, identity));
  if (!config.agents.empty()) {
    TL_TRY_ASSIGN(parts.spawner,
                  Spawner::start(config.agents, spawner_options(config, config.users, identity)));
  }
  TL_TRY_ASSIGN(
      std::unique_ptr<UserProcess> users,
      start_users(
          config.users, [&] { return become_helper(identity, config.user, "asks the user database"); },
          parts.clock));
  parts.user_process = users.get();
  TL_TRY(start_connector(config, identity, parts));
  raise_descriptor_limit(config);
  TL_TRY_ASSIGN(std::shared_ptr<const TlsContext> tls, load_tls(config.tls));
  TL_TRY_ASSIGN(RouterConfig routes, load_routes(config));
  TL_TRY(drop_privileges(identity));
  if (Status confined = confine(); !confined)
    log_warning(
        "seccomp filter not installed ({}): the server process is unconfined, and has all permissions "
        "of {}",
        confined.error().message, config.user);
  parts.log.emplace();  // deliveries do not wait for the log's reader
  for (const std::string& problem : try_directories(config))
    log_warning("{}; until this is corrected, messages that need a file are deferred", problem);
  TL_TRY_ASSIGN(parts.users, open_users(config.users, parts.clock, std::move(users)));
  Budgets budgets{std::make_shared<MemoryBudget>(config.limits.body_memory_total),
                  std::make_shared<MemoryBudget>(config.limits.body_disk_total)};
  TL_TRY_ASSIGN(Deliverer * deliverer, open_delivery(config, std::move(routes), budgets, parts));
  ServerConfig server = to_server_config(config);
  server.memory = budgets.memory;
  server.disk = budgets.disk;
  server.session.recipients.spool_refusal = refusals_of(parts, config.spool_watch.rules);
  server.tls = std::move(tls);
  server.mailboxes = parts.delivery ? &parts.delivery->mailboxes() : nullptr;
  server.on_abort = [&parts] {
    parts.aborted = true;
    if (parts.spawner) parts.spawner->give_up();
    if (parts.router) parts.router->give_up();
  };
  TL_TRY_ASSIGN(parts.server, Server::create(std::move(server), std::move(listeners), *parts.users,
                                             *deliverer, parts.clock, parts.random));
  return {};
}

// This process's end of the control channel. An invalid message of the supervisor is logged and ignored.
class Control {
 public:
  Control(int channel, Generation generation) : channel_(channel), generation_(generation) {}

  int channel() const { return channel_; }
  bool say(const FromServer& message, WhenFull when_full = WhenFull::wait) const {
    return write_packet(channel_, encode_message(message), when_full);
  }
  bool say_ready() const { return say(ServerReady{generation_}); }
  // False: the supervisor is gone.
  bool obey_next(Server& server) const {
    std::vector<std::byte> packet;
    switch (read_packet(channel_, packet)) {
      case Heard::nothing:
        return true;
      case Heard::end:
        return false;
      case Heard::packet:
        break;
    }
    auto message = decode_to_server(packet);
    if (!message)
      log_error("from the supervisor: {}", message.error().message);
    else if (*message)
      std::visit([&](const auto& order) { obey(order, server); }, **message);
    return true;
  }

 private:
  void obey(const DrainServer& order, Server& server) const {
    log_info("generation {} serves: generation {} of the configuration drains", order.successor, generation_);
    server.drain();
  }
  void obey(const StopServer&, Server& server) const { server.stop(); }
  void obey(const AbortServer&, Server& server) const {
    log_warning("asked again to stop: deliveries in flight are aborted");
    server.abort();
  }

  const int channel_;
  const Generation generation_;
};

// A helper process of this server process.
struct Helper {
  int lifeline = -1;  // poll(2) reports POLLHUP once the helper has ended
  std::function<Status()> beat;
  std::string_view gone;  // the log line for this
  bool for_all = false;   // no recipient is accepted without this helper
};

std::vector<Helper> helpers_of(Parts& parts) {
  std::vector<Helper> out;
  if (parts.spawner)
    out.push_back({parts.spawner->lifeline(), [&parts] { return parts.spawner->beat(); },
                   "the spawner is gone: agents cannot run"});
  if (parts.user_process)
    out.push_back({parts.user_process->lifeline(), [&parts] { return parts.user_process->beat(); },
                   "the process that asks the user database is gone", true});
  if (parts.connector)
    out.push_back({parts.connector->lifeline(), [&parts] { return parts.connector->beat(); },
                   "the process that makes connections is gone"});
  return out;
}

// Notifies the supervisor, once for each helper that has ended or gives no sign of life. Without the user
// process, a client that stays here would only get 451.
void tell_crippled(const Control& control, Server& server, Helper& helper, std::string_view what) {
  helper.lifeline = -1;
  helper.beat = nullptr;
  log_error("{}: another server process will take over", what);
  if (helper.for_all) server.hurry();
  (void)control.say(ServerCrippled{});
}

void look_after(const Control& control, Server& server, Helper& helper, const pollfd& waited) {
  if (!helper.beat) return;
  if (waited.revents != 0) return tell_crippled(control, server, helper, helper.gone);
  if (Status alive = helper.beat(); !alive) tell_crippled(control, server, helper, alive.error().message);
}

// A process whose event loops hang sends no sign of life, so the supervisor kills it.
class SignsOfLife {
 public:
  SignsOfLife(const Control& control, Server& server, const Clock& clock)
      : control_(control), server_(server), clock_(clock), due_(clock.now()) {}

  void give() {
    constexpr Duration pause = std::chrono::seconds(5);
    Instant now = clock_.now();
    if (now < due_ || !server_.takes_turns()) return;
    (void)control_.say(ServerLives{}, WhenFull::drop);
    due_ = now + pause;
  }

 private:
  const Control& control_;
  Server& server_;
  const Clock& clock_;
  Instant due_;
};

// If the supervisor is gone, the server stops, because no other process can stop it.
void listen_to_supervisor(const Control& control, Parts& parts) {
  constexpr int beat_ms = 1000;
  Server& server = *parts.server;
  SignsOfLife signs(control, server, parts.clock);
  std::vector<Helper> helpers = helpers_of(parts);
  std::vector<pollfd> waits(helpers.size() + 1, pollfd{control.channel(), POLLIN, 0});
  for (;;) {
    for (std::size_t i = 0; i < helpers.size(); ++i) waits[i + 1] = {helpers[i].lifeline, 0, 0};
    if (::poll(waits.data(), waits.size(), beat_ms) < 0) continue;
    signs.give();
    for (std::size_t i = 0; i < helpers.size() && !parts.aborted; ++i)
      look_after(control, server, helpers[i], waits[i + 1]);
    if (parts.aborted) helpers.clear(), waits.resize(1);  // their end is expected
    if (waits[0].revents == 0) continue;
    if (!control.obey_next(server)) return server.stop();
  }
}

RunEnd run(Parts& parts, const Control& control) {
  std::thread listening(listen_to_supervisor, std::cref(control), std::ref(parts));
  RunEnd end = parts.server->run();
  (void)::shutdown(control.channel(), SHUT_RD);
  listening.join();
  (void)control.say(ServerLeaving{}, WhenFull::drop);
  return end;
}

// Threads blocked in the kernel cannot be awaited. The clients of their deliveries got no 250.
int leave(const Parts& parts, const RunEnd& end) {
  if (end.deliveries_left > 0 || end.connections_left > 0)
    log_error("exiting with {} unfinished deliveries and {} open connections; their clients got no 250",
              end.deliveries_left, end.connections_left);
  if (parts.spawner) parts.spawner->give_up();
  log_settle();
  ::_exit(EX_TEMPFAIL);
}

}  // namespace

int exit_code_of(const Error& error) {
  bool passes = error.code == Errc::unavailable || error.code == Errc::timeout ||
                error.code == Errc::exhausted;
  return passes ? EX_UNAVAILABLE : EX_CONFIG;
}

int serve(Config config, std::vector<Listener> listeners, int control_channel, Generation generation) {
  const Control control(control_channel, generation);
  (void)::prctl(PR_SET_NAME, "lmtpd-server");
  Parts parts;
  if (Status started = start(config, std::move(listeners), parts); !started) {
    log_error("{}", started.error().message);
    return exit_code_of(started.error());
  }
  if (!control.say_ready()) return EX_SOFTWARE;  // the supervisor is gone
  RunEnd end = run(parts, control);
  return end.in_order() ? 0 : leave(parts, end);
}

}  // namespace twinloft::lmtpd
