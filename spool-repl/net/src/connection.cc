#include "connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "twinloft/base/check.h"
#include "twinloft/base/crc32c.h"

namespace twinloft::repl::net {

namespace {
constexpr std::size_t read_bytes = 256 * 1024;
constexpr std::size_t iov_max = 1024;
}  // namespace

Connection::Connection(ports::Loop& loop, Fd fd, bool connecting, std::string name, Handshake handshake,
                       Duration timeout, Events events)
    : loop_(loop), fd_(std::move(fd)), connecting_(connecting), name_(std::move(name)),
      handshake_(std::move(handshake)), timeout_(timeout), events_(std::move(events)) {
  int one = 1;
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  last_received_ = last_sent_ = loop_.now();
  loop_.watch(fd_.get(), connecting_ ? ports::Loop::writable : ports::Loop::readable,
              [this](unsigned ready) { on_ready(ready); });
  timer_ = loop_.after(timeout_ / 4, [this] { on_timer(); });
  if (!connecting_) send_handshake();
}

Connection::~Connection() {
  if (timer_) loop_.cancel(timer_);
  if (fd_) loop_.unwatch(fd_.get());
}

void Connection::close(const std::string& reason) {
  if (!fd_) return;
  loop_.cancel(timer_);
  timer_ = 0;
  loop_.unwatch(fd_.get());
  fd_.reset();
  batch_.clear();
  headers_.clear();
  events_.closed(*this, reason);
}

void Connection::on_ready(unsigned ready) {
  if (connecting_) {
    on_connected();
    return;
  }
  if (ready & ports::Loop::writable) flush();
  if (fd_ && (ready & ports::Loop::readable)) on_readable();
}

void Connection::on_connected() {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return close(fail_errno(error, "cannot connect to {}", name_).error().message);
  connecting_ = false;
  last_received_ = loop_.now();
  loop_.change(fd_.get(), ports::Loop::readable);
  send_handshake();
}

void Connection::send_handshake() {
  std::vector<Handshake::Message> messages = handshake_.take_output();
  for (const auto& m : messages) {
    ByteSpan payload = m.payload;
    send(m.type, {&payload, 1});
  }
  flush();
}

// Half the timeout without a word from us makes a ping due; a whole one without a word from them is the end.
void Connection::on_timer() {
  Instant now = loop_.now();
  timer_ = loop_.after(timeout_ / 4, [this] { on_timer(); });
  if (now - last_received_ > timeout_)
    return close(fmt::format("nothing from {} for {} ms", name_,
                             std::chrono::duration_cast<std::chrono::milliseconds>(timeout_).count()));
  if (established_ && now - last_sent_ >= timeout_ / 4) {
    send(static_cast<std::uint16_t>(WireType::ping), {});
    flush();
  }
}

// ---- sending -------------------------------------------------------------------------------------------------------

void Connection::send(std::uint16_t type, std::span<const ByteSpan> payload) {
  if (!fd_) return;
  WireHeader h{type, 0, 0};
  for (ByteSpan part : payload) {
    h.payload_bytes += static_cast<std::uint32_t>(part.size());
    h.payload_crc = crc32c(part, h.payload_crc);
  }
  TL_CHECK(h.payload_bytes <= wire_payload_max);
  encode_wire_header(h, headers_.emplace_back());
  batch_.push_back({headers_.size() - 1, {}});
  for (ByteSpan part : payload) batch_.push_back({SIZE_MAX, part});
}

void Connection::flush() {
  if (!fd_ || connecting_) return;
  std::vector<iovec> iov;
  iov.reserve(batch_.size() + 1);
  auto add = [&](ByteSpan b) {
    if (!b.empty()) iov.push_back({const_cast<std::byte*>(b.data()), b.size()});
  };
  add(ByteSpan(backlog_).subspan(backlog_begin_));
  for (const Part& p : batch_) add(p.header == SIZE_MAX ? p.bytes : ByteSpan(headers_[p.header]));
  if (!iov.empty()) last_sent_ = loop_.now();
  if (!write_now(iov)) return;
  // What is left refers partly to the old backlog and partly to memory that is only ours until now.
  std::vector<std::byte> rest;
  for (const iovec& v : iov) {
    auto* p = static_cast<std::byte*>(v.iov_base);
    rest.insert(rest.end(), p, p + v.iov_len);
  }
  backlog_ = std::move(rest);
  backlog_begin_ = 0;
  batch_.clear();
  headers_.clear();
  loop_.change(fd_.get(), backlog_.empty() ? ports::Loop::readable : ports::Loop::readable | ports::Loop::writable);
}

// Sends from the front of `iov` and removes what went out. False: the connection is closed.
bool Connection::write_now(std::vector<iovec>& iov) {
  std::size_t done = 0;
  while (done < iov.size()) {
    msghdr m{};
    m.msg_iov = iov.data() + done;
    m.msg_iovlen = std::min(iov.size() - done, iov_max);
    ssize_t n = ::sendmsg(fd_.get(), &m, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) break;
      close(fail_errno(errno, "sending to {}", name_).error().message);
      return false;
    }
    auto left = static_cast<std::size_t>(n);
    while (left > 0 && left >= iov[done].iov_len) left -= iov[done++].iov_len;
    if (left > 0) {
      iov[done].iov_base = static_cast<std::byte*>(iov[done].iov_base) + left;
      iov[done].iov_len -= left;
    }
  }
  iov.erase(iov.begin(), iov.begin() + static_cast<std::ptrdiff_t>(done));
  return true;
}

// ---- receiving -----------------------------------------------------------------------------------------------------

void Connection::on_readable() {
  // One read a turn: other descriptors get theirs.
  if (in_begin_ > 0) {
    std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  if (in_.size() - in_end_ < read_bytes) in_.resize(in_end_ + read_bytes);
  ssize_t n = ::recv(fd_.get(), in_.data() + in_end_, in_.size() - in_end_, 0);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n < 0) return close(fail_errno(errno, "receiving from {}", name_).error().message);
  if (n == 0)
    return close(established_ ? fmt::format("{} closed the connection", name_)
                              : fmt::format("{} closed the connection during the handshake (see its log)", name_));
  // A caller that has not proved itself gets one timeout for all of the handshake, however it trickles.
  if (established_) last_received_ = loop_.now();
  in_end_ += static_cast<std::size_t>(n);
  while (fd_ && take_messages()) {
  }
}

bool Connection::take_messages() {
  std::size_t have = in_end_ - in_begin_;
  if (have < wire_header_bytes) return false;
  auto header = decode_wire_header(ByteSpan(in_).subspan(in_begin_, wire_header_bytes));
  if (!header) return close(fmt::format("{}: {}", name_, header.error().message)), false;
  if (!established_ && header->payload_bytes > handshake_payload_max)
    return close(fmt::format("{}: {} bytes in the handshake", name_, header->payload_bytes)), false;
  std::size_t whole = wire_header_bytes + header->payload_bytes;
  if (have < whole) {
    // A long message is read into place: the buffer grows once, to the bound that the header was checked against.
    if (in_.size() < in_begin_ + whole) in_.resize(in_begin_ + whole);
    return false;
  }
  ByteSpan payload = ByteSpan(in_).subspan(in_begin_ + wire_header_bytes, header->payload_bytes);
  if (crc32c(payload) != header->payload_crc)
    return close(fmt::format("{}: a message with a wrong CRC", name_)), false;
  take(*header, payload);
  in_begin_ += whole;
  return true;
}

void Connection::take(const WireHeader& header, ByteSpan payload) {
  if (!established_) {
    auto done = handshake_.receive(header.type, payload);
    // What there is to say is said before the end, so that the other side can name the reason too.
    if (done) send_handshake();
    if (!done) return close(fmt::format("{}: {}", name_, done.error().message));
    if (*done && fd_) {
      established_ = true;
      last_received_ = loop_.now();
      name_ = fmt::format("replica {}", peer());
      events_.established(*this);
    }
    return;
  }
  if (header.type == static_cast<std::uint16_t>(WireType::ping)) return;
  auto message = decode_peer_message(header.type, payload);
  if (!message) return close(fmt::format("{}: {}", name_, message.error().message));
  events_.message(*this, std::move(*message));
}

}  // namespace twinloft::repl::net
