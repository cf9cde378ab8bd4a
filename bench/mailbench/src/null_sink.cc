#include "twinloft/mailbench/null_sink.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>

namespace twinloft::mailbench {

namespace {

constexpr std::string_view
    kOffer = "250-mailbench\r\n250-PIPELINING\r\n250-SIZE\r\n250-8BITMIME\r\n250 CHUNKING\r\n";
constexpr std::string_view kEndOfData = "\r\n.\r\n";

}  // namespace

void SinkSession::feed(std::string_view bytes) {
  while (!bytes.empty() && state_ != State::ended) {
    if (state_ == State::data) {
      take_data(bytes);
    } else if (state_ == State::chunk) {
      take_chunk(bytes);
    } else {
      std::size_t lf = bytes.find('\n');
      line_.append(bytes.substr(0, lf));
      if (lf == bytes.npos) return;
      bytes.remove_prefix(lf + 1);
      on_command(line_);
      line_.clear();
    }
  }
}

void SinkSession::on_command(std::string_view line) {
  if (line.starts_with("RCPT")) {
    ++recipients_;
    output_ += "250 2.1.5 ok\r\n";
  } else if (line.starts_with("DATA")) {
    output_ += "354 go on\r\n";
    state_ = State::data;
    end_ = "\r\n";
  } else if (line.starts_with("BDAT ")) {
    line.remove_prefix(5);
    std::from_chars(line.data(), line.data() + line.size(), chunk_left_);
    last_chunk_ = line.find("LAST") != line.npos;
    state_ = State::chunk;
  } else if (line.starts_with("LHLO") || line.starts_with("EHLO")) {
    lmtp_ = line.starts_with('L');
    output_ += kOffer;
  } else if (line.starts_with("QUIT")) {
    output_ += "221 bye\r\n";
    state_ = State::ended;
  } else {
    if (line.starts_with("MAIL") || line.starts_with("RSET")) recipients_ = 0;
    output_ += "250 2.0.0 ok\r\n";
  }
}

// Searches the end of the data in this piece, and where it may lie across the last one.
void SinkSession::take_data(std::string_view& bytes) {
  std::string seam = end_ + std::string(bytes.substr(0, kEndOfData.size() - 1));
  std::size_t at = seam.find(kEndOfData), used = 0;
  if (at != seam.npos) {
    used = at + kEndOfData.size() - end_.size();
  } else if (at = bytes.find(kEndOfData); at != bytes.npos) {
    used = at + kEndOfData.size();
  } else {
    std::string_view last = bytes.substr(bytes.size() - std::min(bytes.size(), kEndOfData.size() - 1));
    end_ = (end_ + std::string(last));
    end_ = end_.substr(end_.size() - std::min(end_.size(), kEndOfData.size() - 1));
    bytes = {};
    return;
  }
  bytes.remove_prefix(used);
  end_message();
}

void SinkSession::take_chunk(std::string_view& bytes) {
  std::uint64_t taken = std::min<std::uint64_t>(chunk_left_, bytes.size());
  bytes.remove_prefix(taken);
  chunk_left_ -= taken;
  if (chunk_left_ > 0) return;
  if (last_chunk_) return end_message();
  output_ += "250 2.0.0 ok\r\n";
  state_ = State::command;
}

void SinkSession::end_message() {
  for (std::uint64_t i = 0; i < (lmtp_ ? recipients_ : 1); ++i) output_ += "250 2.0.0 thrown away\r\n";
  recipients_ = 0;
  state_ = State::command;
}

Result<std::unique_ptr<NullSink>> NullSink::start(const std::string& directory, unsigned threads) {
  std::unique_ptr<NullSink> sink(new NullSink);
  TL_TRY(sink->listen(directory));
  sink->wakeup_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!sink->wakeup_) return fail_errno(errno, "eventfd");
  for (unsigned i = 0; i < std::max(1u, threads); ++i)
    sink->threads_.emplace_back([s = sink.get()] { s->serve(); });
  return sink;
}

Status NullSink::listen(const std::string& directory) {
  bool local = !directory.empty();
  listener_.reset(::socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_) return fail_errno(errno, "socket");
  sockaddr_un path{};
  sockaddr_in port{};
  sockaddr* address = local ? reinterpret_cast<sockaddr*>(&path) : reinterpret_cast<sockaddr*>(&port);
  socklen_t length = local ? sizeof path : sizeof port;
  if (local) {
    address_ = directory + "/sink";
    if (address_.size() >= sizeof path.sun_path)
      return fail(Errc::invalid, "{}: too long for a socket", address_);
    path.sun_family = AF_UNIX;
    std::memcpy(path.sun_path, address_.data(), address_.size());
  } else {
    port.sin_family = AF_INET;
    port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  if (::bind(listener_.get(), address, length) != 0 || ::listen(listener_.get(), SOMAXCONN) != 0)
    return fail_errno(errno, "the server of calibrate");
  if (local) {
    socket_path_ = address_;
    return {};
  }
  if (::getsockname(listener_.get(), address, &length) != 0) return fail_errno(errno, "getsockname");
  address_ = fmt::format("127.0.0.1:{}", ntohs(port.sin_port));
  return {};
}

NullSink::~NullSink() {
  stop_ = true;
  std::uint64_t one = 1;
  if (wakeup_) (void)!::write(wakeup_.get(), &one, sizeof one);
  for (std::thread& thread : threads_) thread.join();
  if (!socket_path_.empty()) ::unlink(socket_path_.c_str());
}

namespace {

struct Connection {
  Fd fd;
  SinkSession session;
};

// False: the connection has ended. A reply that does not fit waits: mailbench has at most one message in
// flight.
bool exchange(Connection& c, std::string& buffer) {
  for (;;) {
    ssize_t n = ::recv(c.fd.get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    c.session.feed(std::string_view(buffer).substr(0, static_cast<std::size_t>(n)));
    std::string& out = c.session.output();
    while (!out.empty()) {
      ssize_t sent = ::send(c.fd.get(), out.data(), out.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return false;
      out.erase(0, static_cast<std::size_t>(sent));
    }
    if (c.session.ended()) return false;
    if (static_cast<std::size_t>(n) < buffer.size()) return true;
  }
}

}  // namespace

void NullSink::serve() {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  auto watch = [&](int fd, std::uint32_t events) {
    epoll_event event{.events = events, .data = {.fd = fd}};
    return ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  };
  if (!epoll || !watch(listener_.get(), EPOLLIN | EPOLLEXCLUSIVE) || !watch(wakeup_.get(), EPOLLIN)) return;
  std::map<int, Connection> connections;
  std::string buffer(1 << 18, '\0');
  epoll_event events[64];
  while (!stop_) {
    int count = ::epoll_wait(epoll.get(), events, 64, -1);
    for (int i = 0; i < count; ++i) {
      int fd = events[i].data.fd;
      if (fd == listener_.get()) {
        Fd client(::accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!client) continue;
        int on = 1;
        ::setsockopt(client.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        int number = client.get();
        Connection& c = connections[number];
        c.fd = std::move(client);
        (void)!::send(number, c.session.output().data(), c.session.output().size(), MSG_NOSIGNAL);
        c.session.output().clear();
        watch(number, EPOLLIN);
      } else if (auto found = connections.find(fd); found != connections.end()) {
        if (!exchange(found->second, buffer)) connections.erase(found);
      }
    }
  }
}

}  // namespace twinloft::mailbench
