#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "twinloft/spool-repl/control/control.h"

namespace twinloft::repl::control {

namespace {
constexpr std::size_t sessions_max = 32;
}

Server::Server(ports::Loop& loop, std::string path, Handler handler)
    : loop_(loop), path_(std::move(path)), handler_(std::move(handler)) {}

Server::~Server() {
  if (accept_timer_ != 0) loop_.cancel(accept_timer_);
  for (auto& [fd, session] : sessions_) loop_.unwatch(fd);
  if (!listener_) return;
  loop_.unwatch(listener_.get());
  ::unlink(path_.c_str());
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
  Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(probe.get(), generic, sizeof address) == 0)
    return fail(Errc::unavailable, "{}: another spool-repl serves this volume already", path_);
  // connect() also refuses what is no socket at all: that is somebody's file, and stays.
  struct stat st{};
  if (errno == ECONNREFUSED && ::lstat(path_.c_str(), &st) == 0 && S_ISSOCK(st.st_mode)) ::unlink(path_.c_str());
  mode_t before = ::umask(0117);
  int rc = ::bind(fd.get(), generic, sizeof address);
  int error = errno;
  ::umask(before);
  if (rc < 0) return fail_errno(error, "cannot make the control socket {}", path_);
  if (::listen(fd.get(), 16) < 0) return fail_errno(errno, "{}", path_);
  listener_ = std::move(fd);
  loop_.watch(listener_.get(), ports::Loop::readable, [this](unsigned) { on_accept(); });
  return {};
}

void Server::on_accept() {
  Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  // Without descriptors the caller stays in the kernel's queue, and the listener ready: look again after a while.
  if (!fd && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
    loop_.change(listener_.get(), 0);
    accept_timer_ = loop_.after(std::chrono::milliseconds(200), [this] {
      accept_timer_ = 0;
      loop_.change(listener_.get(), ports::Loop::readable);
    });
  }
  if (!fd || sessions_.size() >= sessions_max) return;
  int n = fd.get();
  sessions_.emplace(n, Session{std::move(fd), next_session_++, {}, {}, 0, false, false});
  loop_.watch(n, ports::Loop::readable, [this, n](unsigned ready) { on_ready(n, ready); });
}

void Server::end(int fd) {
  loop_.unwatch(fd);
  sessions_.erase(fd);
}

void Server::on_ready(int fd, unsigned ready) {
  Session& s = sessions_.at(fd);
  if (ready & ports::Loop::readable) {
    char buffer[command_bytes_max];
    ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0 || (n == 0 && !s.asked)) return end(fd);
    if (n == 0) return loop_.change(fd, s.answered ? ports::Loop::writable : 0u);  // it waits for the answer
    if (s.asked) return;
    s.in.append(buffer, static_cast<std::size_t>(n));
    std::size_t newline = s.in.find('\n');
    if (newline == std::string::npos) {
      if (s.in.size() > command_bytes_max) end(fd);
      return;
    }
    s.asked = true;
    handler_(s.in.substr(0, newline), [server = std::weak_ptr(self_), fd, number = s.number](Result<std::string> reply) {
      auto self = server.lock();
      if (!self) return;
      auto found = (*self)->sessions_.find(fd);
      if (found == (*self)->sessions_.end() || found->second.number != number || found->second.answered) return;
      found->second.out = reply ? *reply : "error: " + reply.error().message + "\n";
      found->second.answered = true;
      (*self)->send_rest(fd);
    });
    return;
  }
  if (s.answered) send_rest(fd);
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
