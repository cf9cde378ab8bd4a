#include "acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>

#include <fmt/format.h>

#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

Acceptor::Acceptor(Loop& loop, Listener listener, HandOver hand_over)
    : loop_(loop),
      listener_(std::move(listener)),
      hand_over_(std::move(hand_over)),
      descriptor_(loop.io()),
      retry_(loop.io()) {}

Status Acceptor::start() {
  boost::system::error_code error;
  descriptor_.assign(listener_.fd(), error);
  if (error) return fail(Errc::io, "{}: {}", listener_.name(), error.message());
  wait();
  return {};
}

// The listener owns the descriptor and closes it.
Acceptor::~Acceptor() {
  if (descriptor_.is_open()) descriptor_.release();
}

void Acceptor::stop() {
  stopped_ = true;
  retry_.cancel();
  if (descriptor_.is_open()) descriptor_.release();
  // New connections are refused. If another process holds the socket too, they wait for this process.
  listener_.close();
}

void Acceptor::wait() {
  descriptor_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                         [this](const boost::system::error_code& error) {
                           if (!error && !stopped_) accept_ready();
                         });
}

void Acceptor::accept_ready() {
  try {
    accept_all();
  } catch (const std::exception& e) {
    log_error("{}: accepting pauses after an internal error: {}", listener_.name(), e.what());
    retry_in(AcceptPauses::most);
  }
}

void Acceptor::accept_all() {
  for (;;) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    Fd socket(
        ::accept4(listener_.fd(), reinterpret_cast<sockaddr*>(&peer), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EINVAL) return log_info("{}: listener closed: the socket was shut down", listener_.name());
      if (errno != EAGAIN) return pause(errno);
      return wait();
    }
    resumed();
    if (loop_.hub().connections.load(std::memory_order_relaxed) >= loop_.hub().config.connections_max) {
      refuse(socket);
      continue;
    }
    if (!listener_.is_unix()) {
      int on = 1;
      (void)::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    take(std::move(socket), peer);
  }
}

void Acceptor::take(Fd socket, const sockaddr_storage& peer) {
  Hub& hub = loop_.hub();
  hub.connections.fetch_add(1, std::memory_order_relaxed);
  try {
    hand_over_({std::move(socket), unmapped(peer), listener_.shared_rules()});
  } catch (const std::exception& e) {
    hub.connections.fetch_sub(1, std::memory_order_relaxed);
    hub.failures.put(LogLevel::error, hub.clock.now(),
                     fmt::format("{}: connection dropped: {}", listener_.name(), e.what()));
  }
}

// The buffer of a new socket has room for one line. An error means that the client has disconnected.
void Acceptor::refuse(const Fd& socket) const {
  std::string line = "421 4.3.2 " + loop_.hub().config.session.hostname +
                     " Too many connections, try again later\r\n";
  (void)::send(socket.get(), line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Acceptor::pause(int error) {
  AcceptPauses::Pause pause = pauses_.failed(loop_.hub().clock.now());
  if (pause.say)
    log_error(
        "{}: cannot accept connections: {}; {} failures since the last success; new connections wait in the "
        "backlog",
        listener_.name(), std::strerror(error), pause.failures);
  retry_in(pause.time);
}

void Acceptor::retry_in(Duration time) {
  retry_.expires_after(time);
  retry_.async_wait([this](const boost::system::error_code& failed) {
    if (!failed && !stopped_) accept_ready();
  });
}

void Acceptor::resumed() {
  if (auto over = pauses_.succeeded(loop_.hub().clock.now()))
    log_info("{}: accepting connections again after {} ms", listener_.name(),
             std::chrono::duration_cast<std::chrono::milliseconds>(*over).count());
}

}  // namespace twinloft::lmtpd
