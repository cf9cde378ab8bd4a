#include "twinloft/lmtpd/delivery/spawner.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "spawn_server.h"
#include "spawn_wire.h"
#include "twinloft/argv/result.h"
#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

// Descriptors 0 to 2 must exist, so that no other one ever gets these numbers; all others but `control` are
// closed.
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

[[noreturn]] void spawner_main(const std::vector<AgentSpec>& agents, std::vector<argv::Template> commands,
                               SpawnerOptions options, Fd control) {
  if (Status kept = keep_only(control); !kept) {
    log_error("spawner: {}", kept.error().message);
    ::_exit(71);
  }
  SpawnServer(agents, std::move(commands), options, std::move(control)).serve();
}

bool send_packet(int socket, const std::vector<std::byte>& packet, int message, int reply) {
  iovec piece{const_cast<std::byte*>(packet.data()), packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 2)] = {};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int) * 2);
  int both[2] = {message, reply};
  std::memcpy(CMSG_DATA(rights), both, sizeof both);
  ssize_t sent;
  do {
    sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(packet.size());
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
  pid_t pid = ::fork();
  if (pid < 0) return fail_errno(errno, "fork of the spawner");
  if (pid == 0) {
    control.ours.reset();
    spawner_main(agents, std::move(commands), options, std::move(control.theirs));
  }
  return std::unique_ptr<Spawner>(new Spawner(std::move(agents), std::move(control.ours), pid));
}

// Its end is told, and not only closed: whoever has got a copy of the descriptor must not keep the spawner alive.
Spawner::~Spawner() {
  give_up();
  control_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Spawner::give_up() const { (void)::shutdown(control_.get(), SHUT_RDWR); }

std::optional<std::uint32_t> Spawner::find(std::string_view name) const {
  for (std::uint32_t i = 0; i < agents_.size(); ++i)
    if (agents_[i].name == name) return i;
  return std::nullopt;
}

// A run without a result. Dead is what says nothing and has closed its end of the control socket; where the
// kernel is still at closing, the next run finds out.
RunResult Spawner::report_lost(const char* where) const {
  pollfd control{control_.get(), 0, 0};
  bool gone = ::poll(&control, 1, 0) == 1 && (control.revents & (POLLHUP | POLLERR)) != 0;
  if (!gone)
    log_error("the spawner process {} gave no answer to a run ({}); its delivery gets 451", pid_, where);
  else if (!dead_.exchange(true))
    log_error(
        "the spawner process {} is gone ({}): every external delivery of this process gets 451",
        pid_, where);
  return {RunResult::End::lost, 0, {}};
}

RunResult Spawner::run(const RunRequest& request, int message) const {
  if (!alive()) return {RunResult::End::lost, 0, {}};
  auto packet = encode_request(request);
  if (!packet) return {RunResult::End::refused, 0, packet.error().message};
  auto reply = make_socket_pair();
  if (!reply) return {RunResult::End::not_started, reply.error().sys, reply.error().message};
  if (!send_packet(control_.get(), *packet, message, reply->theirs.get()))
    return report_lost("request not sent");
  reply->theirs.reset();  // now only the spawner holds it: if it dies, the read below ends
  std::vector<std::byte> answer(spawn_packet_bytes_max);
  ssize_t n;
  do {
    n = ::recv(reply->ours.get(), answer.data(), answer.size(), 0);
  } while (n < 0 && errno == EINTR);
  if (n <= 0) return report_lost("no result");
  answer.resize(static_cast<std::size_t>(n));
  auto result = decode_result(answer);
  if (!result) return report_lost("a result that cannot be read");
  return *result;
}

}  // namespace twinloft::lmtpd
