#include "twinloft/lmtpd/service/supervise.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <variant>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/daemon_signals.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/log.h"
#include "twinloft/base/service_manager.h"
#include "twinloft/lmtpd/process/control_channel.h"
#include "twinloft/lmtpd/process/privileges.h"
#include "twinloft/lmtpd/process/server_messages.h"
#include "twinloft/lmtpd/process/supervisor.h"

namespace twinloft::lmtpd {

namespace {

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

std::string_view tls_text(const ListenSettings& listen) {
  return listen.rules.tls == TlsPolicy::none      ? ""
         : listen.rules.tls == TlsPolicy::offered ? ", TLS offered"
                                                  : ", TLS required";
}

void log_lines(LogLevel level, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) log_line(level, line);
}

// A configuration and its open sockets. Settings with the same address share the socket.
struct Setting {
  Config config;
  Generation generation = 0;
  std::vector<std::shared_ptr<Listener>> listeners;  // in the order of config.listen

  std::shared_ptr<Listener> find(const ListenSettings& listen) const {
    for (std::size_t i = 0; i < listeners.size(); ++i)
      if (config.listen[i].is_at(listen)) return listeners[i];
    return nullptr;
  }
};

// If the path of a Unix socket was removed, a new socket replaces it. Only the service manager can replace a
// socket that it has made.
bool is_usable(const Listener& listener) {
  if (!listener.has_lost_path()) return true;
  if (!listener.is_adopted()) {
    log_warning("{}: the socket's path was removed: creating a new socket", listener.name());
    return false;
  }
  log_warning(
      "{}: the socket's path was removed, so clients cannot connect: restart the service manager's socket "
      "unit",
      listener.name());
  return true;
}

// The address may be in use by this service itself, for example if a reload changes 0.0.0.0 to 127.0.0.1.
Error reason_of(const Error& error, const ListenSettings& wanted, const Setting* before,
                const std::string& program) {
  if (error.code != Errc::unavailable || !before || wanted.host.empty()) return error;
  for (const ListenSettings& now : before->config.listen)
    if (now.port == wanted.port)
      return {Errc::unavailable,
              fmt::format("cannot listen on {} while this {} listens on {}: restart it, or remove that "
                          "address with one reload and add the other with the next",
                          wanted.address, program, now.address)};
  return error;
}

// Reuses open sockets, then adopts sockets of the service manager, and opens the others.
Status open_listeners(Setting& setting, const Setting* before, std::vector<Fd> passed,
                      const Service& service) {
  for (const ListenSettings& settings : setting.config.listen) {
    TL_TRY_ASSIGN(ListenAddress address, to_listen_address(settings));
    std::shared_ptr<Listener> listener = before ? before->find(settings) : nullptr;
    if (listener && !is_usable(*listener)) listener = nullptr;
    if (!listener) {
      TL_TRY_ASSIGN(std::optional<Listener> adopted, Listener::adopt(address, passed));
      if (adopted) listener = std::make_shared<Listener>(std::move(*adopted));
    }
    if (!listener) {
      auto bound = Listener::bind(address);
      if (!bound) return std::unexpected(reason_of(bound.error(), settings, before, service.name));
      listener = std::make_shared<Listener>(std::move(*bound));
    }
    setting.listeners.push_back(std::move(listener));
  }
  if (!passed.empty())
    return fail(Errc::invalid,
                "the service manager has passed {} socket(s) that no {} names: each ListenStream= "
                "needs a {} with the same address",
                passed.size(), service.section, service.section);
  return {};
}

// A write beyond RLIMIT_FSIZE then fails with EFBIG and its delivery is deferred; SIGXFSZ would end the
// process.
std::vector<int> supervisor_signals() {
  std::vector<int> out = daemon_signals();
  out.push_back(SIGQUIT);
  return out;
}

bool means_stop(int number) {
  return number == SIGTERM || number == SIGINT || number == SIGQUIT;
}

// A spawner gives its agents 30 s to end (SpawnerOptions::kill_wait).
constexpr Duration orphan_time = std::chrono::seconds(45);
constexpr Duration orphan_pause = std::chrono::seconds(5);

class SupervisorProcess {
 public:
  SupervisorProcess(std::string path, Service service)
      : path_(std::move(path)), service_(std::move(service)), supervisor_(std::string(service_.lost)) {}

  int run() {
    // Called first, so that signals wait while the configuration is read.
    if (Status ready = take_signals(); !ready) {
      log_error("{}", ready.error().message);
      return EX_OSERR;
    }
    auto first = load(nullptr, take_passed_sockets());
    if (!first) {
      std::cerr << first.error().message << "\n";
      return exit_code_of(first.error());
    }
    setting_ = std::move(*first);
    log_set_level(setting_->config.log_level);
    obey(supervisor_.begin());
    while (!exit_code_) turn();
    if (*exit_code_ == 0 || *exit_code_ == EX_TEMPFAIL) log_info("stopped");
    return *exit_code_;
  }

 private:
  struct Server {
    pid_t pid;
    Fd control;
    std::shared_ptr<Setting> setting;
    bool said_nonsense = false;  // an invalid message of this process was logged
  };

  Result<std::shared_ptr<Setting>> load(const Setting* before, std::vector<Fd> passed) {
    auto setting = std::make_shared<Setting>();
    TL_TRY_ASSIGN(setting->config, service_.load(path_));
    for (const std::string& warning : setting->config.warnings) log_lines(LogLevel::warning, warning);
    if (setting->config.hostname.empty()) setting->config.hostname = machine_name();
    TL_TRY(open_listeners(*setting, before, std::move(passed), service_));
    setting->generation = ++generations_;
    return setting;
  }

  Status take_signals() {
    sigset_t taken;
    sigemptyset(&taken);
    sigaddset(&taken, SIGCHLD);
    for (int number : supervisor_signals()) sigaddset(&taken, number);
    (void)::signal(SIGPIPE, SIG_IGN);
    // If all processes have the same user, the server process must not read the memory of this process or of
    // the spawner by /proc.
    (void)::prctl(PR_SET_DUMPABLE, 0);
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return fail_errno(errno, "prctl(PR_SET_CHILD_SUBREAPER)");
    if (::sigprocmask(SIG_BLOCK, &taken, &mask_before_) != 0) return fail_errno(errno, "sigprocmask");
    signals_.reset(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) return fail_errno(errno, "signalfd");
    return {};
  }

  void turn() {
    std::vector<pollfd> waits{{signals_.get(), POLLIN, 0}};
    std::vector<ServerId> ids;
    for (const auto& [id, server] : servers_)
      if (server.control) waits.push_back({server.control.get(), POLLIN, 0}), ids.push_back(id);
    std::optional<Instant> wake = supervisor_.next_tick();
    for (std::optional<Instant> at : {supervisor_.next_look(), orphans_due_})
      if (at && (!wake || *at < *wake)) wake = at;
    int timeout = -1;
    if (wake)
      timeout = static_cast<int>(
          std::clamp<std::int64_t>((*wake - clock_.now()).count() / 1'000'000 + 1, 0, INT_MAX));
    (void)::poll(waits.data(), waits.size(), timeout);
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (waits[i + 1].revents != 0) hear(ids[i]);
    if (waits[0].revents != 0) take_signal();
    obey(supervisor_.tick(clock_.now()));
    if (orphans_due_ && *orphans_due_ <= clock_.now()) end_orphans();
  }

  // Helpers of an ended server process become children of this process. They end by themselves, but a hanging
  // helper and its children must be killed.
  void end_orphans() {
    orphans_due_.reset();
    std::set<pid_t> ours, there;
    for (const auto& [id, server] : servers_) ours.insert(server.pid);
    std::istringstream listed(
        read_file(fmt::format("/proc/self/task/{}/children", ::getpid()), 1u << 20).value_or(""));
    for (pid_t pid; listed >> pid;)
      if (!ours.contains(pid)) there.insert(pid);
    std::erase_if(orphans_, [&](const auto& orphan) { return !there.contains(orphan.first); });
    for (pid_t pid : there) {
      Instant since = orphans_.try_emplace(pid, clock_.now()).first->second;
      if (clock_.now() - since < orphan_time) continue;
      log_error("killing process {}, which an ended server process has left", pid);
      (void)::kill(pid, SIGKILL);  // the PID cannot be reused before this process has waited for the child
    }
    if (!orphans_.empty()) orphans_due_ = clock_.now() + orphan_pause;
  }

  // Reads one message. The end of the channel does not tell how the process ended; reap() learns that.
  void hear(ServerId id) {
    Server& server = servers_.at(id);
    std::vector<std::byte> packet;
    switch (read_packet(server.control.get(), packet)) {
      case Heard::nothing:
        return;
      case Heard::end:
        server.control.reset();
        return supervisor_.deaf(id, clock_.now());
      case Heard::packet:
        break;
    }
    auto message = decode_from_server(packet);
    if (!message) return tell_nonsense(server, message.error());
    supervisor_.heard(id, clock_.now());
    if (*message) std::visit([&](const auto& what) { hear(id, what); }, **message);
  }

  // An invalid message is not a sign of life: a process that sends nothing else is killed.
  static void tell_nonsense(Server& server, const Error& error) {
    if (!std::exchange(server.said_nonsense, true))
      log_error("server process {} sends an invalid message: {}", server.pid, error.message);
  }

  void hear(ServerId id, const ServerReady& ready) {
    const Server& server = servers_.at(id);
    if (ready.generation == server.setting->generation) return obey(supervisor_.ready(id, clock_.now()));
    log_error("server process {} is ready with generation {} of the configuration, but was started with {}",
              server.pid, ready.generation, server.setting->generation);
  }
  void hear(ServerId id, const ServerCrippled&) { supervisor_.needs_replacement(id, clock_.now()); }
  void hear(ServerId id, const ServerLeaving&) { supervisor_.leaves(id); }
  void hear(ServerId, const ServerLives&) {}

  void take_signal() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGCHLD)
        reap();
      else if (info.ssi_signo == SIGHUP)
        reload();
      else if (means_stop(static_cast<int>(info.ssi_signo)))
        stop(static_cast<int>(info.ssi_signo));
      else
        tell_unused(info);
    }
  }

  static void tell_unused(const signalfd_siginfo& info) {
    log_info("{} from process {} ignored: SIGHUP reads the configuration again, SIGTERM stops",
             signal_name(static_cast<int>(info.ssi_signo)), info.ssi_pid);
  }

  void reload() {
    if (supervisor_.stopping()) return log_info("SIGHUP ignored: {} is being stopped", service_.name);
    log_info("SIGHUP: reading the configuration again");
    reloading_ = true;
    tell_service_manager("RELOADING=1");
    obey(supervisor_.reload(clock_.now()));
  }

  void stop(int number) {
    const std::string finishing = fmt::format("finishing {} that have begun", service_.work);
    log_info("signal {}: {}", number,
             supervisor_.stopping() ? fmt::format("aborting {}", service_.work) : finishing);
    tell_service_manager("STOPPING=1\nSTATUS=" + finishing);
    // New connections are refused from now on. The server processes close their copies of the sockets when
    // they get the message.
    if (setting_) close_listeners(*setting_, nullptr);
    obey(supervisor_.stop(clock_.now()));
  }

  void reap() {
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      auto found = std::find_if(servers_.begin(), servers_.end(),
                                [&](const auto& s) { return s.second.pid == pid; });
      if (found == servers_.end()) continue;
      ServerId id = found->first;
      Ending ending{WIFEXITED(status) ? WEXITSTATUS(status) : 0, WIFSIGNALED(status) ? WTERMSIG(status) : 0};
      // A message sent before the end may still be unread.
      if (found->second.control) hear(id);
      servers_.erase(id);
      orphans_due_ = clock_.now() + orphan_pause;
      end(id, ending);
    }
  }

  // If the reload was refused, the reload has ended too.
  void end(ServerId id, Ending ending) {
    obey(supervisor_.ended(id, ending, clock_.now()));
    if (reloading_ && !supervisor_.stopping() && !supervisor_.starting()) tell_ready();
  }

  // Closes the listeners that the new setting does not have. Server processes with the old setting have been
  // asked to drain before.
  static void close_listeners(const Setting& old, const Setting* next) {
    for (std::size_t i = 0; i < old.listeners.size(); ++i) {
      const ListenSettings& listen = old.config.listen[i];
      if (next && next->find(listen) == old.listeners[i]) continue;
      if (next && !next->find(listen)) log_info("stopped listening on {}", listen.address);
      old.listeners[i]->close();
    }
  }

  // Updates mode and group of existing Unix sockets.
  static void update_access(const Setting& old, const Setting& next) {
    for (std::size_t i = 0; i < next.listeners.size(); ++i) {
      const ListenSettings& now = next.config.listen[i];
      auto was = std::find_if(old.config.listen.begin(), old.config.listen.end(),
                              [&](const ListenSettings& l) { return l.is_at(now); });
      if (was == old.config.listen.end() || (was->mode == now.mode && was->group == now.group)) continue;
      auto address = to_listen_address(now);
      Status changed = address ? next.listeners[i]->set_access(now.mode, address->gid.value_or(::getegid()))
                               : Status(std::unexpected(address.error()));
      if (!changed) log_error("{}", changed.error().message);
    }
  }

  void adopt(ServerId id) {
    std::shared_ptr<Setting> next = servers_.at(id).setting;
    for (std::size_t i = 0; i < next->listeners.size(); ++i) {
      const ListenSettings& listen = next->config.listen[i];
      if (!said_listening_ || !setting_->find(listen))
        log_info("listening on {}{}", listen.address, tls_text(listen));
    }
    if (next != setting_) update_access(*setting_, *next);
    before_ = std::exchange(setting_, std::move(next));
    log_set_level(setting_->config.log_level);
    if (said_listening_ && setting_ != before_)
      log_info("serving with the configuration in {}: generation {}", path_, setting_->generation);
    else if (said_listening_)
      log_info("another server process serves");
    said_listening_ = true;
    tell_ready();
  }

  void tell_ready() {
    reloading_ = false;
    tell_service_manager("READY=1\nSTATUS=listening on " + std::to_string(setting_->config.listen.size()) +
                         " address(es)");
  }

  ToServer message_of(ServerCommand command) const {
    switch (command) {
      case ServerCommand::drain:
        return DrainServer{setting_->generation};
      case ServerCommand::stop:
        return StopServer{};
      case ServerCommand::abort:
        break;
    }
    return AbortServer{};
  }

  void obey(const Orders& orders) {
    for (const std::string& line : orders.errors) log_error("{}", line);
    if (orders.adopt) adopt(*orders.adopt);
    for (const Orders::Tell& t : orders.tell)  // a failed write means that the process has ended
      (void)write_packet(servers_.at(t.id).control.get(), encode_message(message_of(t.command)),
                         WhenFull::drop);
    if (before_ && before_ != setting_) close_listeners(*before_, setting_.get());
    before_.reset();
    for (ServerId id : orders.kill)
      (void)::kill(servers_.at(id).pid, SIGKILL);  // not waited for yet, so the PID is not reused
    if (orders.exit) exit_code_ = orders.exit;
    if (orders.start) start(*orders.start);
  }

  // All server processes share each socket. A compromised process may have shut the socket down for its
  // successors.
  static Status mend_listeners(Setting& setting) {
    for (std::size_t i = 0; i < setting.listeners.size(); ++i) {
      if (setting.listeners[i]->is_listening()) continue;
      log_error("{}: a server process has shut down the socket, which is an error: opening it again",
                setting.config.listen[i].address);
      setting.listeners[i]->close();
      TL_TRY_ASSIGN(ListenAddress address, to_listen_address(setting.config.listen[i]));
      TL_TRY_ASSIGN(Listener bound, Listener::bind(address));
      setting.listeners[i] = std::make_shared<Listener>(std::move(bound));
    }
    return {};
  }

  void start(const Orders::Start& order) {
    if (said_listening_)
      if (Status mended = mend_listeners(*setting_); !mended) log_error("{}", mended.error().message);
    std::shared_ptr<Setting> setting = setting_;
    if (order.reread) {
      auto loaded = load(setting_.get(), {});
      if (!loaded) {
        log_lines(LogLevel::error, loaded.error().message);
        return end(order.id, {EX_CONFIG, 0});
      }
      setting = std::move(*loaded);
    }
    if (Status forked = fork_server(order.id, std::move(setting)); !forked) {
      log_error("{}", forked.error().message);
      end(order.id, {EX_OSERR, 0});
    }
  }

  Status fork_server(ServerId id, std::shared_ptr<Setting> setting) {
    TL_TRY_ASSIGN(SocketPair control, make_socket_pair());
    pid_t pid = ::fork();
    if (pid < 0) return fail_errno(errno, "fork of the server process");
    if (pid == 0) {
      control.ours.reset();
      ::_exit(serve_safely(*setting, control.theirs.get()));
    }
    servers_.emplace(id, Server{pid, std::move(control.ours), std::move(setting)});
    return {};
  }

  // An exception must not unwind the supervisor's stack in the new process: destructors would remove the
  // supervisor's socket paths.
  int serve_safely(const Setting& setting, int control) noexcept {
    try {
      return serve_here(setting, control);
    } catch (const std::exception& e) {
      log_error("{}", e.what());
      return EX_SOFTWARE;
    }
  }

  // Runs in the new process. It ignores signals: the supervisor handles them and sends messages.
  int serve_here(const Setting& setting, int control) {
    signals_.reset();
    for (int number : supervisor_signals()) (void)::signal(number, SIG_IGN);
    (void)::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
    ::unsetenv("NOTIFY_SOCKET");
    log_set_level(setting.config.log_level);
    std::vector<Listener> listeners;
    for (std::size_t i = 0; i < setting.listeners.size(); ++i)
      listeners.push_back(setting.listeners[i]->inherit(setting.config.listen[i].rules));
    let_go_of_sockets(setting);
    servers_.clear();
    return service_.serve(setting.config, std::move(listeners), control, setting.generation);
  }

  // Closes the supervisor's copies of the sockets in this process. Otherwise they would stay open as long as
  // this process lives, and its destructors would remove the paths.
  void let_go_of_sockets(const Setting& setting) {
    std::vector<const Setting*> all{&setting, setting_.get(), before_.get()};
    for (const auto& [id, server] : servers_) all.push_back(server.setting.get());
    for (const Setting* s : all)
      for (std::size_t i = 0; s && i < s->listeners.size(); ++i) s->listeners[i]->let_go();
  }

  const std::string path_;
  const Service service_;
  Generation generations_ = 0;  // number of configurations read
  OsClock clock_;
  Supervisor supervisor_;
  Fd signals_;
  sigset_t mask_before_{};
  std::shared_ptr<Setting> setting_;  // in use
  std::shared_ptr<Setting> before_;   // until processes with this setting were asked to drain
  std::map<ServerId, Server> servers_;
  std::map<pid_t, Instant> orphans_;    // PID and time of the first sighting
  std::optional<Instant> orphans_due_;  // time of the next check
  std::optional<int> exit_code_;
  bool said_listening_ = false;
  bool reloading_ = false;  // RELOADING=1 was sent to the service manager
};

}  // namespace

int supervise(const std::string& path, Service service) {
  log_set_program(service.name);
  log_never_wait();  // this process and its helpers must not block if the log is not read
  return SupervisorProcess(path, std::move(service)).run();
}

int exit_code_of(const Error& error) {
  bool passes = error.code == Errc::unavailable || error.code == Errc::timeout ||
                error.code == Errc::exhausted;
  return passes ? EX_UNAVAILABLE : EX_CONFIG;
}

}  // namespace twinloft::lmtpd
