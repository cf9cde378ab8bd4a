#include "twinloft/spool-repl/export/nbd_server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "connection.h"
#include "twinloft/base/check.h"
#include "twinloft/base/log.h"
#include "twinloft/spool-repl/stream/socket_stream.h"
#include "twinloft/spool-repl/stream/tls_stream.h"

namespace twinloft::repl::nbd {

struct Server::Listener {
  Fd fd;
  std::string name;  // for messages
  SocketFile file;   // of a Unix socket
  ports::Loop::TimerId paused = 0;
};

Server::Server(ports::Loop& loop, ports::BlockTarget& target, ServerOptions options)
    : loop_(loop), target_(target), options_(std::move(options)), pool_(options_.retained_buffer_bytes) {
  TL_CHECK(options_.accepts_name && options_.max_requests > 0 && options_.max_connections > 0);
  exports_.find = [this](std::string_view name) -> std::optional<std::uint64_t> {
    if (stopping_ || !options_.accepts_name(name)) return std::nullopt;
    return target_.size_bytes();
  };
  exports_.list = options_.list_names;
}

Server::~Server() {
  loop_.cancel(stop_timer_);
  for (auto& listener : listeners_) {
    loop_.cancel(listener->paused);
    loop_.unwatch(listener->fd.get());
    listener->file.remove();
  }
  connections_.clear();  // the destructors check that the target has no requests of them
  gone_.clear();
}

Result<std::uint16_t> Server::listen_tcp(const std::string& host, std::uint16_t port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  int rc = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (rc != 0)
    return fail(Errc::invalid, "nbd: \"{}\" is not a numeric IP address: {}", host, ::gai_strerror(rc));
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> address(found, &::freeaddrinfo);
  std::string name = fmt::format("{}{}{}:{}", host.contains(':') ? "[" : "", host,
                                 host.contains(':') ? "]" : "", port);
  Fd fd(::socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "nbd: socket for {}", name);
  int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->ai_family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (::bind(fd.get(), address->ai_addr, address->ai_addrlen) != 0)
    return fail_errno(errno, "nbd: cannot listen on {}", name);
  sockaddr_storage bound{};
  socklen_t bound_bytes = sizeof bound;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &bound_bytes) != 0)
    return fail_errno(errno, "nbd: address of {}", name);
  TL_TRY(add_listener(std::move(fd), name, SocketFile()));
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

Status Server::listen_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return fail(Errc::invalid, "nbd: socket path \"{}\" must have 1 to {} bytes", path,
                sizeof address.sun_path - 1);
  std::memcpy(address.sun_path, path.data(), path.size());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "nbd: socket for {}", path);
  ::fchmod(fd.get(), 0600);  // before bind(), so that the socket file never has more permissions
  auto place = look_at_socket_place(path);
  if (!place) return fail(place.error().code, "nbd: cannot listen on {}", place.error().message);
  if (*place == SocketPlace::stale) ::unlink(path.c_str());
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail_errno(errno, "nbd: cannot listen on {}", path);
  return add_listener(std::move(fd), path, SocketFile(path));
}

Status Server::add_listener(Fd fd, const std::string& name, SocketFile file) {
  if (::listen(fd.get(), 64) != 0) return fail_errno(errno, "nbd: cannot listen on {}", name);
  listeners_.push_back(std::make_unique<Listener>(Listener{std::move(fd), name, std::move(file)}));
  Listener* listener = listeners_.back().get();
  loop_.watch(listener->fd.get(), ports::Loop::readable,
              [this, listener](unsigned) { on_accept(*listener); });
  return {};
}

namespace {

// The address by which connections are counted: an IPv4 address, or the /64 network of an IPv6 address.
std::string client_address(const sockaddr_storage& from) {
  char text[INET6_ADDRSTRLEN] = "";
  if (from.ss_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(from).sin_addr, text, sizeof text);
  if (from.ss_family != AF_INET6) return text;
  in6_addr network = reinterpret_cast<const sockaddr_in6&>(from).sin6_addr;
  std::fill(network.s6_addr + 8, network.s6_addr + 16, std::uint8_t{0});
  ::inet_ntop(AF_INET6, &network, text, sizeof text);
  return std::string(text) + "/64";
}

// A client whose machine has lost its power sends no FIN.
void notice_silence(int fd, std::chrono::seconds silence) {
  auto whole = static_cast<int>(silence.count());
  int on = 1, idle = std::max(1, whole / 2), interval = std::max(1, whole / 6), probes = 3;
  auto limit = static_cast<unsigned>(whole) * 1000;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);  // for replies that are not
                                                                          // acknowledged
}

}  // namespace

void Server::on_accept(Listener& listener) {
  for (int i = 0; i < 16; ++i) {
    sockaddr_storage from{};
    socklen_t from_bytes = sizeof from;
    Fd fd(::accept4(listener.fd.get(), reinterpret_cast<sockaddr*>(&from), &from_bytes,
                    SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      add_connection(std::move(fd), client_address(from));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) pause_accepting(listener);
    return;
  }
}

// The process lacks descriptors or memory. The listener stays ready, so a pause avoids a busy loop.
void Server::pause_accepting(Listener& listener) {
  log_warning("nbd: {}: cannot accept connections for now: {}", listener.name, std::strerror(errno));
  loop_.change(listener.fd.get(), 0);
  listener.paused = loop_.after(std::chrono::seconds(1), [this, &listener] {
    listener.paused = 0;
    loop_.change(listener.fd.get(), ports::Loop::readable);
  });
}

bool Server::has_room(const std::string& address) {
  auto same = std::count_if(connections_.begin(), connections_.end(),
                            [&](const auto& c) { return c.first->address == address; });
  bool too_many = !address.empty() &&
                  same >= static_cast<std::ptrdiff_t>(options_.max_connections_per_address);
  if (!too_many && connections_.size() < options_.max_connections) return true;
  if (loop_.now() < next_refusal_told_) return false;
  next_refusal_told_ = loop_.now() + std::chrono::seconds(10);
  if (too_many)
    log_warning("nbd: a connection from {} refused: {} of it are open already", address, same);
  else
    log_warning("nbd: a connection refused: {} are open already", connections_.size());
  return false;
}

void Server::add_connection(Fd fd, std::string address) {
  ++counters_.connections;
  if (!has_room(address)) return;
  int on = 1;
  if (!address.empty()) {
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    notice_silence(fd.get(), options_.silence);
  }
  using stream::SocketStream;
  auto client = std::make_unique<SocketStream>(loop_, std::move(fd), SocketStream::Begin::open,
                                               SocketStream::AtClose::cut);
  auto connection = options_.tls && !address.empty()
                        ? std::make_unique<Connection>(*this, std::make_unique<stream::TlsStream>(
                                                                  loop_, std::move(client), options_.tls))
                        : std::make_unique<Connection>(*this, std::move(client));
  Connection* c = connection.get();
  c->address = std::move(address);
  connections_.emplace(c, std::move(connection));
  c->start();
}

void Server::set_tls(std::shared_ptr<const stream::TlsContext> tls) {
  if (options_.tls && tls) options_.tls = std::move(tls);
}

void Server::wants_flush(Connection& c) {
  if (!c.dirty) {
    c.dirty = true;
    dirty_.push_back(&c);
  }
  if (options_.owner_flushes || flush_posted_) return;
  flush_posted_ = true;
  loop_.post([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    flush_posted_ = false;
    flush();
  });
}

void Server::flush() {
  flushing_.swap(dirty_);
  for (Connection* c : flushing_) {
    c->dirty = false;
    c->flush();
  }
  flushing_.clear();
}

void Server::finished(Connection& c) {
  auto node = connections_.extract(&c);
  if (!node) return;
  gone_.push_back(std::move(node.mapped()));
  if (std::exchange(reap_posted_, true)) return;
  loop_.post([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    reap_posted_ = false;
    for (auto& connection : gone_) std::erase(dirty_, connection.get());
    gone_.clear();
    check_stopped();
  });
}

void Server::stop(std::function<void()> stopped) {
  TL_CHECK_MSG(!stopping_, "stop() was called before");
  stopping_ = true;
  stopped_ = std::move(stopped);
  for (auto& listener : listeners_) {
    loop_.cancel(std::exchange(listener->paused, 0));
    loop_.unwatch(listener->fd.get());
    listener->file.remove();
  }
  listeners_.clear();
  std::vector<Connection*> all;
  for (auto& entry : connections_) all.push_back(entry.first);
  for (Connection* c : all) c->stop();  // connections are destroyed in a later turn
  stop_timer_ = loop_.after(options_.stop_timeout, [this] {
    stop_timer_ = 0;
    std::vector<Connection*> late;
    for (auto& entry : connections_) late.push_back(entry.first);
    for (Connection* c : late) c->close();
  });
  loop_.post([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) check_stopped();
  });
}

void Server::check_stopped() {
  if (!stopping_ || !stopped_ || !connections_.empty() || !gone_.empty()) return;
  loop_.cancel(std::exchange(stop_timer_, 0));
  std::exchange(stopped_, nullptr)();
}

}  // namespace twinloft::repl::nbd
