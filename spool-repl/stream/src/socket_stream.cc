#include "twinloft/spool-repl/stream/socket_stream.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "twinloft/base/check.h"
#include "twinloft/base/errno_text.h"
#include "twinloft/spool-repl/stream/kernel_tls.h"

namespace twinloft::repl::stream {

namespace {

constexpr std::size_t iov_max = 1024;

static_assert(Stream::readable == static_cast<unsigned>(ports::Loop::readable) &&
              Stream::writable == static_cast<unsigned>(ports::Loop::writable));

std::unexpected<Error> failed(int error) {
  return fail(Errc::io, "{}", errno_text(error));
}

}  // namespace

SocketStream::SocketStream(ports::Loop& loop, Fd socket, Begin begin, AtClose at_close)
    : loop_(loop),
      fd_(std::move(socket)),
      state_(begin == Begin::connecting ? State::opening : State::open),
      at_close_(at_close) {}

SocketStream::~SocketStream() {
  if (events_.ready && fd_) loop_.unwatch(fd_.get());
}

void SocketStream::start(unsigned interest, Events events) {
  TL_CHECK(fd_ && !events_.ready);
  events_ = std::move(events);
  wanted_ = interest;
  watched_ = state_ == State::opening ? writable : interest;
  loop_.watch(fd_.get(), watched_, [this](unsigned ready) { on_ready(ready); });
}

void SocketStream::watch(unsigned interest) {
  if (interest == watched_) return;
  watched_ = interest;
  loop_.change(fd_.get(), interest);
}

void SocketStream::want(unsigned interest) {
  wanted_ = interest;
  if (state_ == State::open) watch(interest);
}

void SocketStream::on_ready(unsigned ready) {
  if (state_ == State::opening) return on_connected();
  events_.ready(ready);
}

void SocketStream::on_connected() {
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return events_.opened(failed(error));
  state_ = State::open;
  watch(wanted_);
  events_.opened({});
}

Result<Stream::Got> SocketStream::read(std::span<const iovec> into) {
  ssize_t n;
  do {
    if (into.size() == 1) {
      n = ::recv(fd_.get(), into[0].iov_base, into[0].iov_len, MSG_DONTWAIT);
    } else {
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(into.data());
      message.msg_iovlen = into.size();
      n = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    }
  } while (n < 0 && errno == EINTR);
  if (n > 0) return Got{static_cast<std::size_t>(n), false};
  if (n == 0) return Got{0, true};
  if (errno == EAGAIN || errno == EWOULDBLOCK) return Got{};
  return failed(errno);
}

Result<std::size_t> SocketStream::write(std::span<iovec> from) {
  std::size_t done = 0;
  while (!from.empty()) {
    msghdr message{};
    message.msg_iov = from.data();
    message.msg_iovlen = std::min(from.size(), iov_max);
    ssize_t n = ::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      return failed(errno);
    }
    auto left = static_cast<std::size_t>(n);
    done += left;
    while (!from.empty() && left >= from.front().iov_len) {
      left -= from.front().iov_len;
      from = from.subspan(1);
    }
    if (from.empty() || left == 0) continue;
    from.front().iov_base = static_cast<std::byte*>(from.front().iov_base) + left;
    from.front().iov_len -= left;
  }
  return done;
}

bool SocketStream::seal_output(const RecordKey& key) {
  return state_ == State::open && kernel_has_tls(key.cipher) && give_key_to_kernel(fd_.get(), key);
}

Result<bool> SocketStream::write_record(std::uint8_t type, std::span<const std::byte> content) {
  return send_record(fd_.get(), type, content);
}

void SocketStream::end_output() {
  if (fd_) ::shutdown(fd_.get(), SHUT_WR);
}

void SocketStream::close() {
  if (!fd_) return;
  state_ = State::closed;
  if (events_.ready) loop_.unwatch(fd_.get());
  if (at_close_ == AtClose::cut) ::shutdown(fd_.get(), SHUT_RDWR);
  fd_.reset();
}

namespace {
std::optional<tcp_info> info_of(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (fd < 0 || ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0) return std::nullopt;
  return info;
}
}  // namespace

bool SocketStream::is_stuck() const {
  auto info = info_of(fd_.get());
  return info && info->tcpi_unacked > 0 && info->tcpi_retransmits >= 2;
}

std::optional<Stream::LineState> SocketStream::line() const {
  auto info = info_of(fd_.get());
  int queued = 0;
  if (!info || ::ioctl(fd_.get(), SIOCOUTQ, &queued) < 0) return std::nullopt;
  return LineState{std::chrono::microseconds(info->tcpi_rtt), static_cast<std::uint64_t>(queued),
                   std::uint64_t{info->tcpi_snd_cwnd} * info->tcpi_snd_mss};
}

}  // namespace twinloft::repl::stream
