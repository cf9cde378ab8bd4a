#include "spawn_server.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <iterator>

#include "spawn_wire.h"
#include "twinloft/argv/result.h"
#include "twinloft/base/log.h"
#include "twinloft/base/passed_fds.h"

namespace twinloft::lmtpd {

namespace {

constexpr int drain_poll_ms = 5;               // while a killed process ends; SIGCHLD usually comes first
constexpr std::size_t passed_descriptors = 2;  // the message, and the socket for the result
constexpr std::string_view mark_name = "TWINLOFT_RUN=";

// The value of TWINLOFT_RUN in a process's environment. Empty: none, or the process has ended.
std::string mark_of(pid_t pid) {
  auto environment = read_file(fmt::format("/proc/{}/environ", pid), 4u << 20);
  if (!environment) return {};
  std::string_view rest = *environment;
  while (!rest.empty()) {
    std::string_view entry = rest.substr(0, rest.find('\0'));
    if (entry.starts_with(mark_name)) return std::string(entry.substr(mark_name.size()));
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
  }
  return {};
}

}  // namespace

SpawnServer::SpawnServer(const std::vector<AgentSpec>& agents, std::vector<argv::Template> commands,
                         SpawnerOptions options, Fd control)
    : agents_(agents), commands_(std::move(commands)), options_(options), control_(std::move(control)) {}
SpawnServer::~SpawnServer() = default;

Status SpawnServer::prepare() {
  is_root_ = ::geteuid() == 0;
  (void)::prctl(PR_SET_NAME, "lmtpd-spawner");
  // The server process may have the same user, and must not read the spawner's memory.
  (void)::prctl(PR_SET_DUMPABLE, 0);
  // The spawner ends with the server process. It ignores signals that a terminal or a service manager sends
  // to the whole group.
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2}) ::signal(number, SIG_IGN);
  ::signal(SIGALRM, SIG_DFL);  // it ends a hanging turn
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return fail_errno(errno, "prctl(PR_SET_CHILD_SUBREAPER)");
  mark_prefix_ = fmt::format("{}.{}.", ::getpid(), clock_.now().ns);
  children_path_ = fmt::format("/proc/self/task/{}/children", ::getpid());
  if (::access(children_path_.c_str(), R_OK) != 0)
    log_warning(
        "spawner: {} cannot be read; a daemon that an agent leaves in a session of its own is not found",
        children_path_);
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  ::signal(SIGCHLD, SIG_DFL);
  if (::sigprocmask(SIG_SETMASK, &child, nullptr) != 0) return fail_errno(errno, "sigprocmask");
  child_signal_.reset(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!child_signal_ || !epoll_) return fail_errno(errno, "signalfd or epoll");
  for (int fd : {control_.get(), child_signal_.get()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = -fd;  // runs have their pid, which is positive
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return fail_errno(errno, "epoll_ctl");
  }
  return {};
}

void SpawnServer::serve() {
  if (Status ready = prepare(); !ready) {
    log_error("spawner: {}", ready.error().message);
    ::_exit(71);
  }
  for (;;) turn();
}

int SpawnServer::wait_ms() const {
  Instant now = clock_.now();
  std::int64_t ms = -1;
  for (const auto& [pid, run] : runs_) {
    std::int64_t left = std::max<std::int64_t>(0, (run->deadline - now).count() / 1'000'000 + 1);
    if (run->phase == Phase::draining) left = std::min<std::int64_t>(left, drain_poll_ms);
    if (ms < 0 || left < ms) ms = left;
  }
  return static_cast<int>(std::min<std::int64_t>(ms, 60'000));
}

// If a turn does not end, the kernel ends the process, and another spawner takes over. Otherwise every
// delivery by an agent would wait.
void SpawnServer::turn() {
  constexpr unsigned turn_seconds_max = 60;
  epoll_event events[64];
  int count = ::epoll_wait(epoll_.get(), events, std::size(events), wait_ms());
  (void)::alarm(turn_seconds_max);
  look_at(std::span(events).first(static_cast<std::size_t>(std::max(count, 0))));
  (void)::alarm(0);
}

void SpawnServer::look_at(std::span<const epoll_event> events) {
  bool children = false;
  bool control = false;
  for (const epoll_event& event : events) {
    int key = event.data.fd;
    if (key == -control_.get())
      control = true;
    else if (key == -child_signal_.get())
      children = true;
    else if (auto found = runs_.find(key); found != runs_.end())
      read_output(*found->second, false);
  }
  if (children) on_child_signal();
  Instant now = clock_.now();
  for (auto& [pid, run] : runs_)
    if (run->deadline <= now) on_deadline(*run);
  bool draining = std::any_of(runs_.begin(), runs_.end(),
                              [](auto& r) { return r.second->phase == Phase::draining; });
  if (draining) {
    kill_strays();
    for (auto at = runs_.begin(); at != runs_.end();) {
      Run& run = *at->second;
      bool over = run.phase == Phase::draining && ((!run.strays_left && is_gone(run)) || run.deadline <= now);
      if (over) finish(run);
      at = over ? runs_.erase(at) : std::next(at);
    }
  }
  if (control) on_control();
}

void SpawnServer::on_control() {
  // A few at a time, so that ends of runs are handled in between.
  for (int i = 0; i < 16; ++i) {
    std::vector<std::byte> packet(spawn_packet_bytes_max);
    auto got = receive_packet(control_.get(), packet, passed_descriptors, MSG_DONTWAIT);
    if (!got && got.error() == EAGAIN) return;
    if (!got || got->bytes == 0) stop();
    if (!got->fds[1]) {
      log_error("spawner: a request came without its descriptors; its delivery is answered 451");
      continue;
    }
    if (got->cut) {
      send_result(got->fds[1], {RunResult::End::refused, 0, "the request is too large"});
      continue;
    }
    packet.resize(got->bytes);
    accept_request(packet, std::move(got->fds[0]), std::move(got->fds[1]));
  }
}

void SpawnServer::accept_request(ByteSpan packet, Fd message, Fd reply) {
  if (is_ping(packet)) return send_result(reply, {RunResult::End::exited, 0, {}});
  auto refuse = [&](RunResult::End end, int value, std::string why) {
    log_warning("spawner: request refused: {}", why);
    send_result(reply, {end, value, std::move(why)});
  };
  auto request = decode_request(packet);
  if (!request) return refuse(RunResult::End::refused, 0, request.error().message);
  if (request->agent >= agents_.size()) return refuse(RunResult::End::refused, 0, "there is no such agent");
  auto ask = check_identity(*request, message.get());
  if (!ask) return refuse(RunResult::End::refused, 0, ask.error().message);
  if (runs_.size() >= options_.runs_max)
    return refuse(RunResult::End::busy, 0, fmt::format("{} agents are running", runs_.size()));
  std::string mark = mark_prefix_ + fmt::format("{}", ++runs_started_);
  auto planned = plan(*request, message.get(), mark);
  if (!planned) return refuse(RunResult::End::refused, 0, planned.error().message);
  planned->ask = *ask;
  auto child = start_child(*planned);
  if (!child) return refuse(RunResult::End::not_started, child.error().sys, child.error().message);
  auto run = std::make_unique<Run>();
  run->spec = &agents_[request->agent];
  run->id = request->id;
  run->mark = std::move(mark);
  run->pid = child->pid;
  run->output = std::move(child->output);
  run->failure = std::move(child->failure);
  run->reply = std::move(reply);
  run->deadline = clock_.now() + run->spec->time_limit;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = run->pid;
  // Without this, the output is still read at the end, but much output would block the agent until its time
  // limit.
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, run->output.get(), &event) != 0)
    log_warning("spawner: {}: {}", run->id,
                fail_errno(errno, "output is not watched: epoll_ctl").error().message);
  runs_.emplace(run->pid, std::move(run));
}

Result<AskAccount> SpawnServer::check_identity(const RunRequest& request, int message) const {
  TL_TRY_ASSIGN(AskAccount ask, check_run_as(options_.run_as, request.uid, request.gid, request.home));
  if (!is_root_ && (request.uid != ::geteuid() || request.gid != ::getegid()))
    return fail(Errc::denied,
                "the spawner does not run as root: it can run agents only as {2}:{3}, not as {0}:{1}",
                request.uid, request.gid, ::geteuid(), ::getegid());
  struct stat about{};
  if (message < 0 || ::fstat(message, &about) != 0 || !S_ISREG(about.st_mode))
    return fail(Errc::invalid, "the message is not a file");
  return ask;
}

Result<ChildPlan> SpawnServer::plan(const RunRequest& request, int message, const std::string& mark) const {
  const AgentSpec& spec = agents_[request.agent];
  argv::Values values;
  for (const auto& [name, value] : request.values) values[name] = value;
  ChildPlan out;
  TL_TRY_ASSIGN(out.arguments, argv::to_result(commands_[request.agent].expand(values)));
  out.environment = agent_environment(spec, request.home, request.user);
  std::erase_if(out.environment, [](const std::string& entry) { return entry.starts_with(mark_name); });
  out.environment.push_back(std::string(mark_name) + mark);
  out.home = request.home;
  out.uid = request.uid;
  out.gid = request.gid;
  out.limits = spec.limits;
  out.no_new_privs = spec.no_new_privs;
  out.switch_user = is_root_;
  out.message = message;
  return out;
}

// Keeps the end of the agent's output. Reading continues beyond the limit, so that the agent does not block.
void SpawnServer::read_output(Run& run, bool to_the_end) {
  char buffer[16384];
  // The last read is bounded too, since a process outside of the group may still write. A pipe has at most
  // this size.
  constexpr int at_once = 4, at_the_end = (1 << 20) / sizeof buffer + 1;
  for (int i = 0; i < (to_the_end ? at_the_end : at_once); ++i) {
    ssize_t n = ::read(run.output.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, run.output.get(), nullptr);
    if (n <= 0) return;
    run.tail.append(buffer, static_cast<std::size_t>(n));
    if (run.tail.size() > run.spec->output_bytes_max)
      run.tail.erase(0, run.tail.size() - run.spec->output_bytes_max);
  }
}

// Handles every ended child: the main process of a run, or a process that a run has left.
void SpawnServer::on_child_signal() {
  signalfd_siginfo ignored[8];
  while (::read(child_signal_.get(), ignored, sizeof ignored) > 0) {
  }
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    auto found = runs_.find(info.si_pid);
    if (found != runs_.end()) {
      found->second->status = info.si_status;
      found->second->signalled = info.si_code != CLD_EXITED;
      on_main_exit(*found->second);
    }
    strays_.erase(info.si_pid);
    (void)::waitid(P_PID, static_cast<id_t>(info.si_pid), &info, WEXITED | WNOHANG);
  }
}

// The main process is still a zombie, so its number is not reused. This is the time to kill the rest of the
// group.
void SpawnServer::on_main_exit(Run& run) {
  (void)::kill(-run.pid, SIGKILL);
  run.ended = true;
  run.phase = Phase::draining;
  run.deadline = clock_.now() + options_.kill_wait;
}

void SpawnServer::on_deadline(Run& run) {
  switch (run.phase) {
    case Phase::running:
      run.timed_out = true;
      (void)::kill(-run.pid, SIGTERM);
      run.phase = Phase::terminating;
      run.deadline = clock_.now() + run.spec->kill_grace;
      return;
    case Phase::terminating:
      (void)::kill(-run.pid, SIGKILL);
      run.phase = Phase::killed;
      run.deadline = clock_.now() + options_.kill_wait;
      return;
    case Phase::killed:
      // It may hang in the kernel, for example on an unreachable network file system. turn() reports it as
      // unkillable.
      run.phase = Phase::draining;
      return;
    case Phase::draining:
      return;
  }
}

bool SpawnServer::is_gone(const Run& run) const {
  return run.ended && ::kill(-run.pid, 0) != 0 && errno == ESRCH;
}

// The run of an orphan: by its session, or by its mark. Null: its run has ended, or is unknown.
SpawnServer::Run* SpawnServer::run_of(pid_t stray) {
  if (auto found = runs_.find(::getsid(stray)); found != runs_.end()) return found->second.get();
  auto [at, is_new] = strays_.try_emplace(stray);
  if (is_new) at->second.mark = mark_of(stray);
  const std::string& mark = at->second.mark;
  auto named = std::find_if(runs_.begin(), runs_.end(),
                            [&](const auto& r) { return r.second->mark == mark; });
  return named == runs_.end() ? nullptr : named->second.get();
}

// Kills orphans of ended runs, and finds the runs that still have orphans. An orphan that was killed more
// than kill_wait ago hangs in the kernel, and must not delay later deliveries. An orphan without a mark has
// changed its environment, and may be a helper of any run in flight. So it is killed once no run is in
// flight, and the reply of its run does not wait for it.
void SpawnServer::kill_strays() {
  bool quiet = std::all_of(runs_.begin(), runs_.end(),
                           [](auto& r) { return r.second->phase == Phase::draining; });
  for (auto& [pid, run] : runs_) run->strays_left = false;
  auto listed = read_file(children_path_, 1u << 20);
  if (!listed) return;
  const char* at = listed->data();
  const char* end = at + listed->size();
  for (pid_t pid = 0; at < end;) {
    auto parsed = std::from_chars(at, end, pid);
    if (parsed.ec != std::errc{}) break;
    at = parsed.ptr + 1;
    if (runs_.contains(pid)) continue;
    Run* owner = run_of(pid);
    if (owner && owner->phase != Phase::draining) continue;
    Stray& stray = strays_[pid];
    bool unknown = !owner && stray.mark.empty();
    if (unknown && !quiet) continue;
    if (!stray.killed) stray.killed = clock_.now();
    (void)::kill(pid, SIGKILL);
    if (clock_.now() - *stray.killed >= options_.kill_wait) continue;
    for (auto& [leader, run] : runs_)
      if (run.get() == owner || unknown) run->strays_left = true;
  }
}

RunResult SpawnServer::result_of(Run& run) const {
  ChildFailure failure;
  if (::read(run.failure.get(), &failure, sizeof failure) == sizeof failure)
    return {RunResult::End::not_started, failure.sys, step_name(failure.step)};
  if (!run.ended || !is_gone(run)) return {RunResult::End::unkillable, 0, run.tail};
  if (run.timed_out) return {RunResult::End::timed_out, 0, run.tail};
  return {run.signalled ? RunResult::End::signalled : RunResult::End::exited, run.status, run.tail};
}

void SpawnServer::finish(Run& run) {
  read_output(run, true);
  RunResult result = result_of(run);
  if (result.end == RunResult::End::unkillable)
    log_error("spawner: {}: agent {} (process group {}) was killed, but still runs", run.id, run.spec->name,
              run.pid);
  send_result(run.reply, result);
}

void SpawnServer::send_result(const Fd& reply, const RunResult& result) const {
  std::vector<std::byte> packet = encode_result(result);
  // The socket pair is new and empty, so this cannot block. A reader that has ended needs no result.
  (void)::send(reply.get(), packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void SpawnServer::stop() {
  for (auto& [pid, run] : runs_) {
    (void)::kill(-pid, SIGKILL);
    run->phase = Phase::draining;
  }
  Instant until = clock_.now() + options_.kill_wait;
  while (!runs_.empty() && clock_.now() < until) {
    on_child_signal();
    kill_strays();
    std::erase_if(runs_, [&](auto& r) { return !r.second->strays_left && is_gone(*r.second); });
    epoll_event ignored;
    if (!runs_.empty()) (void)::epoll_wait(epoll_.get(), &ignored, 1, drain_poll_ms);
  }
  ::_exit(0);
}

}  // namespace twinloft::lmtpd
