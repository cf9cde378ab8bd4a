#include "serve.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <optional>
#include <thread>

#include "check_config.h"
#include "dovecot_sieve.h"
#include "twinloft/base/log.h"
#include "twinloft/base/process.h"
#include "twinloft/lmtpd/config/ways.h"
#include "twinloft/lmtpd/connect/connector.h"
#include "twinloft/lmtpd/delivery/service.h"
#include "twinloft/lmtpd/delivery/spool_watch.h"
#include "twinloft/lmtpd/filters/filters.h"
#include "twinloft/lmtpd/net/server.h"
#include "twinloft/lmtpd/process/confine.h"
#include "twinloft/lmtpd/process/privileges.h"
#include "twinloft/lmtpd/route/router.h"
#include "twinloft/lmtpd/service/control.h"
#include "twinloft/lmtpd/service/supervise.h"
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
  auto ways = std::make_shared<const WaysOfDelivery>(config);
  out.session.recipients = recipient_rules(config, ways);
  out.session.agent_refusal = [ways](const Envelope& envelope, const Recipient& recipient) {
    return ways->refusal(envelope, recipient);
  };
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
  std::unique_ptr<Filters> filters;           // null: none
  std::unique_ptr<Server> server;
  std::atomic<bool> aborted{false};  // the end of helpers is expected and not logged
};

// The targets are the next hops in their order, Dovecot's quota-status, and the filters in their order.
std::size_t first_filter_target(const Config& config) {
  return config.next_hops.size() + (config.asks_dovecot() ? 1 : 0);
}

Status start_connector(const Config& config, const Identity& identity, Parts& parts) {
  std::vector<ConnectTarget> targets;
  for (const NextHopSettings& hop : config.next_hops) targets.push_back(hop.spec.target);
  if (config.asks_dovecot()) targets.push_back(config.quota_status.target);
  for (const FilterSettings& filter : config.filters.order) targets.push_back(filter.target);
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

// Opens local delivery if there is a spool, and the router if there are next hops.
Result<Deliverer*> open_delivery(const Config& config, RouterConfig routes, const Budgets& budgets,
                                 Parts& parts) {
  if (config.delivers_here()) {
    DeliveryConfig delivery = config.delivery;
    delivery.hostname = config.hostname;
    delivery.external.memory = budgets.memory;
    delivery.external.disk = budgets.disk;
    if (config.asks_dovecot())
      parts.quota_status = std::make_unique<QuotaStatus>(config.quota_status, *parts.connector,
                                                         config.next_hops.size(), parts.clock);
    delivery.maildir.quota_service = parts.quota_status.get();
    TL_TRY_ASSIGN(parts.delivery,
                  DeliveryService::create(std::move(delivery), parts.spawner.get(), parts.clock));
    if (Status spool = parts.delivery->check_spool(); !spool)
      log_warning("{}; until the spool is available, every delivery gets 451", spool.error().message);
  }
  if (config.delivers_here()) {
    TL_TRY_ASSIGN(parts.watch, watch_spool(config.delivery.spool, config.spool_watch));
  }
  if (config.next_hops.empty()) return parts.delivery.get();
  parts.router = Router::create(std::move(routes), parts.delivery.get(), *parts.connector, parts.clock,
                                parts.delivery ? &parts.delivery->foreign_writes() : nullptr);
  return parts.router.get();
}

void open_filters(const Config& config, Parts& parts) {
  if (config.filters.order.empty()) return;
  FiltersConfig filters;
  for (const FilterSettings& filter : config.filters.order) {
    filters.order.push_back(filter.spec);
    filters.order.back().target = first_filter_target(config) + filters.order.size() - 1;
  }
  filters.quarantine = config.filters.quarantine;
  filters.hostname = config.hostname;
  filters.message_bytes_max = config.limits.message_bytes_max;
  filters.header_bytes_max = config.limits.header_bytes_max;
  filters.recipients_max = config.limits.recipients_max;
  parts.filters = make_filters(std::move(filters), *parts.connector, parts.clock);
}

// The spawner, the user process and the connector are forked before any thread exists. Nothing is read from
// the network before this process has become the mail user.
Status start(Config& config, std::vector<Listener> listeners, Parts& parts) {
  TL_TRY_ASSIGN(Identity identity, find_identity(config.user, config.group));
  TL_TRY(fill_user_ids(config.users, identity));
  TL_TRY(check_static_users(config, config.users, identity));
  config.delivery.sieve.scripts = find_scripts(config);
  config.delivery.sieve.delimiters = find_delimiters(config);
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
  // After the fork of the spawner, whose agents have a limit of their own.
  if (auto few = compare_open_files(config)) log_warning("{}", *few);
  if (Status raised = raise_descriptor_limit(); !raised) log_warning("{}", raised.error().message);
  TL_TRY_ASSIGN(std::shared_ptr<const TlsContext> tls, load_tls(config.tls));
  TL_TRY_ASSIGN(RouterConfig routes, load_routes(config));
  TL_TRY(become_server(identity, config.user));
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
  if (parts.watch)
    server.session.recipients.spool_refusal = [&watch = *parts.watch](const User& user) {
      return watch.refusal(user, false);
    };
  server.tls = std::move(tls);
  open_filters(config, parts);
  server.filters = parts.filters.get();
  server.filter_threads = config.filters.threads;
  server.mailboxes = parts.delivery ? &parts.delivery->mailboxes() : nullptr;
  server.on_abort = [&parts] {
    parts.aborted = true;
    if (parts.spawner) parts.spawner->give_up();
    if (parts.router) parts.router->give_up();
    if (parts.filters) parts.filters->give_up();
  };
  TL_TRY_ASSIGN(parts.server, Server::create(std::move(server), std::move(listeners), *parts.users,
                                             *deliverer, parts.clock, parts.random));
  return {};
}

std::vector<Helper> helpers_of(Parts& parts) {
  std::vector<Helper> out;
  if (parts.spawner) out.push_back(helper_of(*parts.spawner, "the spawner is gone: agents cannot run"));
  if (parts.user_process) out.push_back(helper_of(*parts.user_process, user_process_gone, true));
  if (parts.connector) out.push_back(helper_of(*parts.connector, connector_gone));
  return out;
}

// The intake log is for the process that takes over, or empty after the last one.
void leave_log(Parts& parts) {
  if (parts.delivery) parts.delivery->leave_intake_log();
}

Ordered orders_of(Parts& parts) {
  Server& server = *parts.server;
  return {[&parts, &server] { leave_log(parts), server.drain(); },
          [&parts, &server] { leave_log(parts), server.stop(); },
          [&server] {
            log_warning("asked again to stop: deliveries in flight are aborted");
            server.abort();
          },
          [&server] { server.hurry(); }, [&server] { return server.takes_turns(); }};
}

RunEnd run(Parts& parts, const Control& control) {
  std::thread listening([&parts, &control] {
    obey_supervisor(control, orders_of(parts), helpers_of(parts), parts.aborted, parts.clock);
  });
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
  if (parts.delivery) parts.delivery->settle_lines();
  if (parts.router) parts.router->settle_lines();
  log_settle();
  ::_exit(EX_TEMPFAIL);
}

}  // namespace

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
