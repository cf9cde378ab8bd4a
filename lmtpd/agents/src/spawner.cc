#include "twinloft/lmtpd/agents/spawner.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <thread>

#include "spawn_server.h"
#include "spawn_wire.h"
#include "twinloft/argv/result.h"
#include "twinloft/base/log.h"
#include "twinloft/base/passed_fds.h"

namespace twinloft::lmtpd {

namespace {

// Descriptors 0 to 2 must exist, so that no other file gets these numbers. All other descriptors except
// `control` are closed.
Status keep_only(Fd& control) {
  int null = ::open("/dev/null", O_RDWR);
  while (null >= 0 && null < 3) null = ::dup(null);
  if (null < 0) return fail_errno(errno, "/dev/null");
  ::close(null);
  constexpr int control_number = 3;
  if (control.get() != control_number) {
    if (::dup3(control.get(), control_number, O_CLOEXEC) < 0) return fail_errno(errno, "dup3");
    control.reset(control_number);
  }
  if (::close_range(control_number + 1, ~0u, 0) != 0) return fail_errno(errno, "close_range");
  return {};
}

// Every run has three descriptors, and a request has two. A request without free numbers would be lost.
constexpr rlim_t files_per_run = 4;
constexpr rlim_t own_files = 64;

// The spawner raises its own limit as far as allowed, and its caller knows the resulting number of runs.
std::uint32_t runs_that_fit(std::uint32_t runs_max) {
  struct rlimit now{};
  const rlim_t wanted = own_files + files_per_run * runs_max;
  if (::getrlimit(RLIMIT_NOFILE, &now) != 0 || now.rlim_max >= wanted)
    return runs_max;  // also without a limit
  const rlim_t fit = (now.rlim_max - std::min(now.rlim_max, own_files)) / files_per_run;
  log_warning("spawner: {} open files allow only {} agents at a time", now.rlim_max,
              std::max<rlim_t>(1, fit));
  return static_cast<std::uint32_t>(std::max<rlim_t>(1, fit));
}

void make_room_for_files(std::uint32_t runs_max) {
  struct rlimit now{};
  const rlim_t wanted = own_files + files_per_run * runs_max;
  if (::getrlimit(RLIMIT_NOFILE, &now) != 0 || now.rlim_cur >= wanted) return;
  now.rlim_cur = std::min(wanted, now.rlim_max);
  (void)::setrlimit(RLIMIT_NOFILE, &now);
}

[[noreturn]] void spawner_main(const std::vector<AgentSpec>& agents, std::vector<argv::Template> commands,
                               SpawnerOptions options, Fd control) {
  if (Status kept = keep_only(control); !kept) {
    log_error("spawner: {}", kept.error().message);
    ::_exit(71);
  }
  make_room_for_files(options.runs_max);
  SpawnServer(agents, std::move(commands), options, std::move(control)).serve();
}

using Steady = std::chrono::steady_clock;

// False: not within this time.
bool wait_until(int socket, short events, Steady::time_point deadline) {
  pollfd wait{socket, events, 0};
  for (;;) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Steady::now()).count();
    int ready = ::poll(&wait, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX)));
    if (ready >= 0) return ready > 0;
    if (errno != EINTR) return false;
  }
}

// False: it cannot be sent within this time, since the spawner does not read any more.
bool send_request(int socket, const std::vector<std::byte>& packet, int message, int reply,
                  Steady::time_point deadline) {
  const int both[2] = {message, reply};
  for (;;) {
    int error = send_packet(socket, packet, both, MSG_DONTWAIT);
    if (error == 0) return true;
    if (error != EAGAIN || !wait_until(socket, POLLOUT, deadline)) return false;
  }
}

// The longest time of a run: from its start to SIGTERM, to SIGKILL, to the end of the killed processes.
std::chrono::milliseconds longest_run(const AgentSpec& spec, const SpawnerOptions& options) {
  return spec.time_limit + spec.kill_grace + 2 * options.kill_wait + options.answer_wait;
}

}  // namespace

Result<std::unique_ptr<Spawner>> Spawner::start(std::vector<AgentSpec> agents, SpawnerOptions options) {
  std::vector<argv::Template> commands;
  for (const AgentSpec& spec : agents) {
    TL_TRY(check_agent_spec(spec, nullptr));
    TL_TRY_ASSIGN(argv::Template command,
                  argv::parse_template("agent." + spec.name + ".command", spec.command));
    commands.push_back(std::move(command));
  }
  TL_TRY_ASSIGN(SocketPair control, make_socket_pair());
  options.runs_max = runs_that_fit(options.runs_max);
  pid_t pid = ::fork();
  if (pid < 0) return fail_errno(errno, "fork of the spawner");
  if (pid == 0) {
    control.ours.reset();
    spawner_main(agents, std::move(commands), options, std::move(control.theirs));
  }
  return std::unique_ptr<Spawner>(new Spawner(std::move(agents), options, std::move(control.ours), pid));
}

// The channel is shut down, and not only closed, so that a process with a copy of the descriptor does not
// keep the spawner alive.
Spawner::~Spawner() {
  give_up();
  control_.reset();
  wait_for_end();
}

// The spawner ends within kill_wait. A hanging spawner is left to the supervisor, which may kill it.
void Spawner::wait_for_end() const {
  constexpr auto look_again = std::chrono::milliseconds(2);
  const auto deadline = Steady::now() + (alive() ? options_.kill_wait + options_.answer_wait
                                                 : std::chrono::milliseconds(100));
  for (;;) {
    pid_t ended = ::waitpid(pid_, nullptr, WNOHANG);
    if (ended == pid_ || (ended < 0 && errno != EINTR)) return;
    if (Steady::now() >= deadline) break;
    std::this_thread::sleep_for(look_again);
  }
  log_error("the spawner process {} does not end", pid_);
}

void Spawner::give_up() const {
  (void)::shutdown(control_.get(), SHUT_RDWR);
}

std::optional<std::uint32_t> Spawner::find(std::string_view name) const {
  for (std::uint32_t i = 0; i < agents_.size(); ++i)
    if (agents_[i].name == name) return i;
  return std::nullopt;
}

Status Spawner::beat() {
  constexpr auto pause = std::chrono::seconds(5);
  if (!alive()) return {};  // reported already
  const auto now = Steady::now();
  if (asked_ && wait_until(asked_.get(), POLLIN, now))
    asked_.reset();  // also if it has ended, which its lifeline shows
  if (asked_ && now - asked_at_ > options_.answer_wait) {
    dead_.store(true);
    return fail(Errc::timeout, "the spawner process {} has given no sign of life for {} s", pid_,
                std::chrono::floor<std::chrono::seconds>(now - asked_at_).count());
  }
  if (asked_ || now - asked_at_ < std::min<Steady::duration>(pause, options_.answer_wait)) return {};
  TL_TRY_ASSIGN(SocketPair answer, make_socket_pair());
  (void)send_request(control_.get(), encode_ping(), answer.theirs.get(), answer.theirs.get(), now);
  asked_ = std::move(answer.ours);
  asked_at_ = now;
  return {};
}

// A run without a result. The spawner has ended if it has closed its end of the control socket. If the
// kernel has not closed it yet, the next run detects this.
RunResult Spawner::report_lost(const char* where) const {
  pollfd control{control_.get(), 0, 0};
  bool gone = ::poll(&control, 1, 0) == 1 && (control.revents & (POLLHUP | POLLERR)) != 0;
  if (!gone)
    log_error("the spawner process {} gave no answer to a run ({}); its delivery gets 451", pid_, where);
  else if (!dead_.exchange(true))
    log_error("the spawner process {} is gone ({}): every external delivery of this process gets 451", pid_,
              where);
  return {RunResult::End::lost, 0, {}};
}

// A spawner that hangs gives no result.
Status Spawner::wait_for_result(int reply, Steady::time_point deadline) const {
  constexpr auto look_again = std::chrono::seconds(1);
  for (;;) {
    const auto now = Steady::now();
    if (wait_until(reply, POLLIN, std::min(deadline, now + look_again))) return {};
    if (!alive()) return fail(Errc::timeout, "it hangs");
    if (now >= deadline) return fail(Errc::timeout, "no result in time");
  }
}

RunResult Spawner::run(const RunRequest& request, int message) const {
  if (!alive()) return {RunResult::End::lost, 0, {}};
  auto packet = encode_request(request);
  if (!packet) return {RunResult::End::refused, 0, packet.error().message};
  auto reply = make_socket_pair();
  if (!reply) return {RunResult::End::not_started, reply.error().sys, reply.error().message};
  if (!send_request(control_.get(), *packet, message, reply->theirs.get(),
                    Steady::now() + options_.answer_wait))
    return report_lost("request not sent");
  reply->theirs.reset();  // now only the spawner has it: if the spawner ends, the read below ends
  const AgentSpec* spec = request.agent < agents_.size() ? &agents_[request.agent] : nullptr;
  const auto longest = spec ? longest_run(*spec, options_) : options_.answer_wait;
  if (Status there = wait_for_result(reply->ours.get(), Steady::now() + longest); !there)
    return report_lost(there.error().message.c_str());
  std::vector<std::byte> answer(spawn_packet_bytes_max);
  ssize_t n;
  do {
    n = ::recv(reply->ours.get(), answer.data(), answer.size(), 0);
  } while (n < 0 && errno == EINTR);
  if (n <= 0) return report_lost("no result");
  answer.resize(static_cast<std::size_t>(n));
  auto result = decode_result(answer);
  if (!result) return report_lost("an invalid result");
  return *result;
}

}  // namespace twinloft::lmtpd
