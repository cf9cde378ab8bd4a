#include "serve.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "ending.h"
#include "filter.h"
#include "judge.h"
#include "twinloft/base/log.h"
#include "twinloft/base/process.h"
#include "twinloft/lmtpd/connect/connector.h"
#include "twinloft/lmtpd/delivery/spool_mailboxes.h"
#include "twinloft/lmtpd/delivery/spool_watch.h"
#include "twinloft/lmtpd/process/confine.h"
#include "twinloft/lmtpd/process/privileges.h"
#include "twinloft/lmtpd/quota_status/quota_status.h"
#include "twinloft/lmtpd/service/control.h"
#include "twinloft/lmtpd/service/supervise.h"
#include "twinloft/lmtpd/users/users.h"

namespace twinloft::spool_milter {

using namespace lmtpd;

namespace {

// Never destroyed: threads that are blocked in the kernel use it until the process ends.
struct Parts {
  explicit Parts(Config c) : config(std::move(c)) {}
  Config config;
  OsClock clock;
  std::optional<LogWriter> log;
  UserProcess* user_process = nullptr;        // owned by the user database; null: none
  std::unique_ptr<ConnectProcess> connector;  // null: Dovecot does not count
  std::unique_ptr<QuotaStatus> quota_status;
  std::vector<Listener> listeners;
  std::unique_ptr<Judge> judge;
  Filter* filter = nullptr;
};

Result<int> family_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return fail_errno(errno, "getsockname");
  return address.ss_family;
}

Result<std::shared_ptr<Mailboxes>> mailboxes_of(Parts& parts) {
  const Config& config = parts.config;
  if (!config.delivers_here() || config.delivery.maildir.quota.driver == QuotaDriver::none) return nullptr;
  DeliveryConfig delivery = config.delivery;
  if (config.asks_dovecot())
    parts.quota_status = std::make_unique<QuotaStatus>(config.quota_status, *parts.connector, 0, parts.clock);
  delivery.maildir.quota_service = parts.quota_status.get();
  TL_TRY_ASSIGN(std::shared_ptr<Mailboxes> out, open_mailboxes(delivery, parts.clock));
  return out;
}

Result<Sources> open_sources(Parts& parts, std::unique_ptr<UserProcess> process) {
  const Config& config = parts.config;
  Sources out;
  TL_TRY_ASSIGN(out.users, open_users(config.users, parts.clock, std::move(process)));
  TL_TRY_ASSIGN(out.mailboxes, mailboxes_of(parts));
  if (config.delivers_here()) {
    TL_TRY_ASSIGN(out.watch, watch_spool(config.delivery.spool, config.spool_watch));
  }
  return out;
}

// Helpers are forked before any thread exists. Nothing is read from an MTA before this process has become the
// mail user, and libmilter opens its socket before this process may open no sockets.
Status start(Parts& parts) {
  Config& config = parts.config;
  TL_TRY_ASSIGN(Identity identity, find_identity(config.user, config.group));
  TL_TRY(fill_user_ids(config.users, identity));
  TL_TRY_ASSIGN(
      std::unique_ptr<UserProcess> users,
      start_users(
          config.users, [&] { return become_helper(identity, config.user, "asks the user database"); },
          parts.clock));
  parts.user_process = users.get();
  if (config.asks_dovecot()) {
    TL_TRY_ASSIGN(parts.connector, ConnectProcess::start({config.quota_status.target}, [&] {
                    return become_helper(identity, config.user, "makes connections");
                  }));
  }
  if (Status raised = raise_descriptor_limit(); !raised) log_warning("{}", raised.error().message);
  TL_TRY_ASSIGN(int family, family_of(parts.listeners.front().fd()));
  TL_TRY_ASSIGN(parts.filter, Filter::open(family, parts.clock));
  TL_TRY(become_server(identity, config.user));
  parts.log.emplace();  // no MTA waits for the log's reader
  TL_TRY_ASSIGN(Sources sources, open_sources(parts, std::move(users)));
  parts.judge = std::make_unique<Judge>(config, std::move(sources), parts.clock);
  return {};
}

std::vector<Helper> helpers_of(Parts& parts) {
  std::vector<Helper> out;
  if (parts.user_process) out.push_back(helper_of(*parts.user_process, user_process_gone, true));
  if (parts.connector) out.push_back(helper_of(*parts.connector, connector_gone));
  return out;
}

// Waits for the end of this process, and for what is under way.
class Run {
 public:
  explicit Run(Parts& parts)
      : parts_(parts), ending_(parts.config.spool_milter->timeout + std::chrono::seconds(2)) {}

  Status begin() {
    FilterConfig filter{parts_.config.spool_milter->connections_max,
                        [this](const Sender& sender, const AskedRecipient& recipient) {
                          return parts_.judge->answer(sender, recipient);
                        }};
    return parts_.filter->serve(parts_.listeners.front().fd(), std::move(filter), [this] {
      change([](Ending& ending, Instant now) { ending.lost_libmilter(now); });
    });
  }

  // On the main thread (filter.h). Returns the exit code.
  int obey(const Control& control) {
    std::optional<int> code;
    std::thread waiting([&] {
      code = wait();
      (void)::shutdown(control.channel(), SHUT_RD);
    });
    obey_supervisor(control, orders(), helpers_of(parts_), aborted_, parts_.clock);
    waiting.join();
    return *code;
  }

 private:
  template <class Change>
  void change(Change change) {
    std::lock_guard lock(mutex_);
    change(ending_, parts_.clock.now());
    changed_.notify_one();
  }

  Ordered orders() {
    return {[this] {
              parts_.filter->release();
              change([](Ending& ending, Instant now) { ending.drain(now); });
            },
            [this] {
              parts_.filter->release();
              change([](Ending& ending, Instant now) { ending.stop(now); });
            },
            [this] {
              aborted_ = true;
              change([](Ending& ending, Instant) { ending.abort(); });
            },
            [this] { change([](Ending& ending, Instant) { ending.hurry(); }); },
            [this] { return parts_.filter->takes_turns(); }};
  }

  int wait() {
    constexpr std::chrono::milliseconds pause(100);
    std::unique_lock lock(mutex_);
    for (;;) {
      const std::size_t connections = ending_.asks_for_connections() ? parts_.filter->connections() : 0;
      UnderWay work{connections, parts_.filter->questions()};
      if (auto code = ending_.exit_code(work, parts_.clock.now())) return *code;
      changed_.wait_for(lock, pause);
    }
  }

  Parts& parts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Ending ending_;
  std::atomic<bool> aborted_{false};
};

}  // namespace

int serve(Config config, std::vector<Listener> listeners, int control_channel, Generation generation) {
  const Control control(control_channel, generation);
  (void)::prctl(PR_SET_NAME, "milter-server");
  Parts& parts = *new Parts(std::move(config));
  parts.listeners = std::move(listeners);
  Status started = start(parts);
  Run& run = *new Run(parts);
  if (started) started = run.begin();
  if (!started) {
    log_error("{}", started.error().message);
    log_settle();
    return exit_code_of(started.error());
  }
  if (!control.say_ready()) return EX_SOFTWARE;  // the supervisor is gone
  const int code = run.obey(control);
  if (code == EX_SOFTWARE) log_error("libmilter has stopped by itself");
  (void)control.say(ServerLeaving{}, WhenFull::drop);
  log_settle();
  ::_exit(code);
}

}  // namespace twinloft::spool_milter
