#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>

#include "answer.h"
#include "twinloft/spool-repl/control/control.h"

namespace twinloft::repl::control {

namespace {

constexpr std::size_t sessions_max = 64;
constexpr int listen_backlog = 64;
constexpr Duration asking_time_max = std::chrono::seconds(10);

// The commands that only read.
bool only_reads(const std::string& command) {
  return command == "status" || command.starts_with("status ") || command.starts_with("events ");
}

// (uid_t)-1: an unknown user.
uid_t user_of(int fd) {
  ucred who{};
  socklen_t length = sizeof who;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 ? who.uid : static_cast<uid_t>(-1);
}

}  // namespace

Server::Server(ports::Loop& loop, std::string path, Handler handler, Access access)
    : loop_(loop), path_(std::move(path)), handler_(std::move(handler)), access_(access) {}

Server::~Server() {
  if (accept_timer_ != 0) loop_.cancel(accept_timer_);
  for (auto& [fd, session] : sessions_) {
    std::string last = encode_answer(
        session.asked
            ? fail(Errc::io,
                   "the volume is no longer served: it is unknown whether the command was carried out")
            : fail(Errc::unavailable, "the volume is no longer served"));
    if (!session.answered) (void)::send(fd, last.data(), last.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (session.timer != 0) loop_.cancel(session.timer);
    loop_.unwatch(fd);
  }
  if (!listener_) return;
  loop_.unwatch(listener_.get());
  file_.remove();
}

Status Server::start() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path)
    return fail(Errc::invalid, "{}: longer than the {} bytes that a socket's path can have", path_,
                sizeof address.sun_path - 1);
  std::memcpy(address.sun_path, path_.c_str(), path_.size());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "socket");
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  auto place = look_at_socket_place(path_);
  if (!place && place.error().code == Errc::unavailable)
    return fail(Errc::unavailable, "control: {}. Another spool-repl may serve this volume already",
                place.error().message);
  if (!place) return fail(place.error().code, "control: {}", place.error().message);
  if (*place == SocketPlace::stale) ::unlink(path_.c_str());
  ::fchmod(fd.get(), 0600);  // before bind(), so that the socket is never more open. umask(2) would affect
                             // all threads
  if (::bind(fd.get(), generic, sizeof address) < 0)
    return fail_errno(errno, "cannot make the control socket {}", path_);
  file_ = SocketFile(path_);
  TL_TRY(open_to(access_));
  if (::listen(fd.get(), listen_backlog) < 0) return fail_errno(errno, "{}", path_);
  listener_ = std::move(fd);
  loop_.watch(listener_.get(), ports::Loop::readable, [this](unsigned) { on_accept(); });
  return {};
}

Status Server::open_to(const Access& access) const {
  if (access.group && ::chown(path_.c_str(), static_cast<uid_t>(-1), *access.group) != 0)
    return fail_errno(errno, "{}: cannot be given to group {}", path_, *access.group);
  if (::chmod(path_.c_str(), access.everybody ? 0666 : 0660) != 0)
    return fail_errno(errno, "{}: its mode cannot be set", path_);
  return {};
}

void Server::on_accept() {
  Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  // Without descriptors, the client stays in the kernel's queue, and the listener stays ready: try again
  // after a while.
  if (!fd && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
    loop_.change(listener_.get(), 0);
    accept_timer_ = loop_.after(std::chrono::milliseconds(200), [this] {
      accept_timer_ = 0;
      loop_.change(listener_.get(), ports::Loop::readable);
    });
  }
  if (!fd) return;
  make_room();
  int n = fd.get();
  Session& s = sessions_
                   .emplace(n, Session{.fd = std::move(fd), .number = next_session_++, .in = {}, .out = {}})
                   .first->second;
  s.user = user_of(n);
  s.may_command = s.user == 0 || s.user == ::geteuid();
  s.timer = loop_.after(asking_time_max, [this, n] {
    sessions_.at(n).timer = 0;
    answer(n, fail(Errc::timeout, "no command came within {} s", asking_time_max / std::chrono::seconds(1)));
  });
  loop_.watch(n, ports::Loop::readable, [this, n](unsigned ready) { on_ready(n, ready); });
}

// Idle clients, and clients that do not read their answer, must not exclude others: of the user with most of
// them, the oldest connection is closed. A connection that waits for its answer is closed only if all of them
// wait.
void Server::make_room() {
  if (sessions_.size() < sessions_max) return;
  std::unordered_map<uid_t, std::size_t> idle;
  auto waits = [](const Session& s) { return s.asked && !s.answered; };
  for (const auto& [fd, s] : sessions_) idle[s.user] += waits(s) ? 0 : 1;
  auto rank = [&](const Session& s) { return std::tuple(waits(s), ~idle[s.user], s.number); };
  auto oldest = std::min_element(sessions_.begin(), sessions_.end(), [&](const auto& a, const auto& b) {
    return rank(a.second) < rank(b.second);
  });
  int fd = oldest->first;
  if (!oldest->second.answered)
    answer(fd, fail(Errc::exhausted, "too many connections at a time{}",
                    oldest->second.asked ? ": the command may still be carried out (see `spool-repl status`)"
                                         : ""));
  if (sessions_.contains(fd)) end(fd);
}

void Server::end(int fd) {
  Session& s = sessions_.at(fd);
  if (s.timer != 0) loop_.cancel(s.timer);
  loop_.unwatch(fd);
  sessions_.erase(fd);
}

void Server::on_ready(int fd, unsigned ready) {
  Session& s = sessions_.at(fd);
  if (ready & ports::Loop::readable) {
    char buffer[command_bytes_max];
    ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) return end(fd);
    if (n == 0 && !s.asked)
      return answer(fd, fail(Errc::invalid, "the command has no end: a line was expected"));
    if (n == 0)
      return loop_.change(fd, s.answered ? ports::Loop::writable : 0u);  // the client waits for the answer
    if (s.asked) return;
    s.in.append(buffer, static_cast<std::size_t>(n));
    std::size_t newline = s.in.find('\n');
    if (newline != std::string::npos) return ask(s, fd, s.in.substr(0, newline));
    if (s.in.size() > command_bytes_max)
      answer(fd, fail(Errc::invalid, "a command of more than {} bytes", command_bytes_max));
    return;
  }
  if (s.answered) send_rest(fd);
}

void Server::ask(Session& s, int fd, const std::string& command) {
  s.asked = true;
  if (s.timer != 0) loop_.cancel(std::exchange(s.timer, 0));
  if (!s.may_command && !only_reads(command)) return answer(fd, fail(Errc::denied, "only root may do that"));
  handler_(command, [server = std::weak_ptr(self_), fd, number = s.number](const Result<std::string>& reply) {
    auto self = server.lock();
    if (!self) return;
    auto found = (*self)->sessions_.find(fd);
    if (found != (*self)->sessions_.end() && found->second.number == number && !found->second.answered)
      (*self)->answer(fd, reply);
  });
}

void Server::answer(int fd, const Result<std::string>& reply) {
  Session& s = sessions_.at(fd);
  s.asked = s.answered = true;
  s.out = encode_answer(reply);
  send_rest(fd);
}

void Server::send_rest(int fd) {
  Session& s = sessions_.at(fd);
  while (s.sent < s.out.size()) {
    ssize_t n = ::send(fd, s.out.data() + s.sent, s.out.size() - s.sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return loop_.change(fd, ports::Loop::writable);
    if (n < 0) break;
    s.sent += static_cast<std::size_t>(n);
  }
  end(fd);
}

}  // namespace twinloft::repl::control
