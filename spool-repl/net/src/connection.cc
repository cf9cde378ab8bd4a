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
constexpr std::size_t backlog_kept_max = 4u << 20;  // memory of an empty backlog
constexpr std::size_t trial_bytes = 128 * 1024;     // more than the largest packet of any network
}  // namespace

Connection::Connection(ports::Loop& loop, Fd fd, bool connecting, std::string name, Handshake handshake,
                       Limits limits, Events events)
    : loop_(loop),
      fd_(std::move(fd)),
      phase_(connecting ? Phase::connecting : Phase::handshake),
      name_(std::move(name)),
      handshake_(std::move(handshake)),
      limits_(limits),
      events_(std::move(events)) {
  int one = 1;
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  // What the peer's machine does not take for so long will not get there.
  auto ms = static_cast<unsigned>(
      std::chrono::duration_cast<std::chrono::milliseconds>(limits_.timeout).count());
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
  last_received_ = last_sent_ = loop_.now();
  loop_.watch(fd_.get(), connecting ? ports::Loop::writable : ports::Loop::readable,
              [this](unsigned ready) { on_ready(ready); });
  arm_timer();
  if (!connecting) send_handshake();
}

Connection::~Connection() {
  if (timer_) loop_.cancel(timer_);
  if (fd_) loop_.unwatch(fd_.get());
}

void Connection::close(const std::string& reason) {
  if (!fd_) return;
  if (timer_) loop_.cancel(timer_);
  timer_ = 0;
  stuck_ = stuck_ || path_is_stuck();
  loop_.unwatch(fd_.get());
  fd_.reset();
  batch_.clear();
  headers_.clear();
  events_.closed(*this, reason);
}

void Connection::on_ready(unsigned ready) {
  if (phase_ == Phase::connecting) {
    on_connected();
    return;
  }
  if (ready & ports::Loop::writable) {
    full_ = false;
    flush();
  }
  if (fd_ && (ready & ports::Loop::readable)) on_readable();
}

void Connection::on_connected() {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return close(fail_errno(error, "cannot connect to {}", name_).error().message);
  phase_ = Phase::handshake;
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

// In the kernel's view: it sends the same again and again, and nobody takes it.
bool Connection::path_is_stuck() const {
  tcp_info info{};
  socklen_t length = sizeof info;
  return is_established() && ::getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
         info.tcpi_unacked > 0 && info.tcpi_retransmits >= 2;
}

Instant Connection::deadline() const {
  return last_received_ + (is_established() ? limits_.timeout : limits_.handshake);
}

// A quarter of the timeout without a word from us makes a ping due; a whole one without a word from them is
// the end. Both are met to the millisecond: the time until a lost primary can be replaced is hardly anything
// else.
void Connection::arm_timer() {
  Instant next = deadline();
  if (phase_ == Phase::ready) next = std::min(next, last_sent_ + limits_.timeout / 4);
  if (timer_) loop_.cancel(timer_);
  timer_ = loop_.after(std::max<Duration>(next - loop_.now(), std::chrono::milliseconds(1)),
                       [this] { on_timer(); });
}

void Connection::on_timer() {
  timer_ = 0;
  Instant now = loop_.now();
  if (now >= deadline()) {
    auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(deadline() - last_received_).count();
    stuck_ = is_established();
    if (phase_ == Phase::trial)
      return close(fmt::format(
          "{} can be connected, and {} KiB of data did not get through within {} ms: packets of full size "
          "may "
          "be dropped on the way (compare the MTU of both machines and of the network between them)",
          name_, trial_bytes >> 10, ms));
    return close(fmt::format("nothing from {} for {} ms", name_, ms));
  }
  if (phase_ == Phase::ready && now - last_sent_ >= limits_.timeout / 4) {
    send(static_cast<std::uint16_t>(WireType::ping), {});
    flush();
  }
  if (fd_) arm_timer();
}

// ---- sending
// -------------------------------------------------------------------------------------------------------

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
  if (!fd_ || phase_ == Phase::connecting || (batch_.empty() && unsent_bytes() == 0)) return;
  last_sent_ = loop_.now();
  std::size_t out = 0;
  if (!full_) {
    iov_.clear();
    auto add = [&](ByteSpan b) {
      if (!b.empty()) iov_.push_back({const_cast<std::byte*>(b.data()), b.size()});
    };
    add(ByteSpan(backlog_).subspan(backlog_begin_));
    for (const Part& p : batch_) add(p.header == SIZE_MAX ? p.bytes : ByteSpan(headers_[p.header]));
    auto written = write_now(iov_);
    if (!written) return close(written.error().message);
    out = *written;
  }
  keep(out);
  batch_.clear();
  headers_.clear();
  // Whatever the peer's core asks for is bounded by its windows; beyond that somebody is broken.
  if (unsent_bytes() > limits_.unsent_bytes_max)
    return close(fmt::format("{} takes nothing: {} MiB wait for it", name_, unsent_bytes() >> 20));
  bool waits = unsent_bytes() > 0;
  full_ = waits;
  if (waits == waits_for_room_) return;
  waits_for_room_ = waits;
  loop_.change(fd_.get(), waits ? ports::Loop::readable | ports::Loop::writable : ports::Loop::readable);
}

// `out` bytes of backlog and batch have left. What is left of the batch lies in memory that is only ours
// until now.
void Connection::keep(std::size_t out) {
  std::size_t of_backlog = std::min(out, unsent_bytes());
  backlog_begin_ += of_backlog;
  out -= of_backlog;
  if (backlog_begin_ * 2 >= backlog_.size()) {
    backlog_.erase(backlog_.begin(), backlog_.begin() + static_cast<std::ptrdiff_t>(backlog_begin_));
    backlog_begin_ = 0;
    if (backlog_.empty() && backlog_.capacity() > backlog_kept_max) backlog_ = {};
  }
  for (const Part& p : batch_) {
    ByteSpan bytes = p.header == SIZE_MAX ? p.bytes : ByteSpan(headers_[p.header]);
    std::size_t skip = std::min(out, bytes.size());
    out -= skip;
    backlog_.insert(backlog_.end(), bytes.begin() + static_cast<std::ptrdiff_t>(skip), bytes.end());
  }
}

// How many bytes the socket took.
Result<std::size_t> Connection::write_now(std::span<iovec> iov) {
  std::size_t done = 0;
  while (!iov.empty()) {
    msghdr m{};
    m.msg_iov = iov.data();
    m.msg_iovlen = std::min(iov.size(), iov_max);
    ssize_t n = ::sendmsg(fd_.get(), &m, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) break;
      return fail_errno(errno, "sending to {}", name_);
    }
    auto left = static_cast<std::size_t>(n);
    done += left;
    while (!iov.empty() && left >= iov.front().iov_len) {
      left -= iov.front().iov_len;
      iov = iov.subspan(1);
    }
    if (iov.empty() || left == 0) continue;
    iov.front().iov_base = static_cast<std::byte*>(iov.front().iov_base) + left;
    iov.front().iov_len -= left;
  }
  return done;
}

// ---- receiving
// -----------------------------------------------------------------------------------------------------

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
    return close(is_established() ? fmt::format("{} closed the connection", name_)
                 : handshake_.waits_for_proof()
                     ? fmt::format("{} closed the connection during the handshake: its shared secret is "
                                   "another one, or it says "
                                   "why in its log",
                                   name_)
                     : fmt::format("{} closed the connection during the handshake (see its log)", name_));
  // A caller that has not proved itself gets one timeout for all of the handshake, however it trickles.
  // The same goes for the trial.
  if (phase_ == Phase::ready) last_received_ = loop_.now();
  in_end_ += static_cast<std::size_t>(n);
  while (fd_ && take_messages()) {
  }
}

bool Connection::take_messages() {
  std::size_t have = in_end_ - in_begin_;
  if (have < wire_header_bytes) return false;
  auto header = decode_wire_header(ByteSpan(in_).subspan(in_begin_, wire_header_bytes));
  if (!header) return close(fmt::format("{}: {}", name_, header.error().message)), false;
  if (!is_established() && header->payload_bytes > handshake_payload_max)
    return close(fmt::format("{}: {} bytes in the handshake", name_, header->payload_bytes)), false;
  std::size_t whole = wire_header_bytes + header->payload_bytes;
  if (have < whole) {
    // A long message is read into place: the buffer grows once, to the bound that the header was checked
    // against.
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
  if (phase_ == Phase::handshake) return take_handshake(header, payload);
  if (header.type == static_cast<std::uint16_t>(WireType::ping)) return;
  if (phase_ == Phase::trial) return take_trial(header.type, payload);
  auto message = decode_peer_message(header.type, payload);
  if (!message) return close(fmt::format("{}: {}", name_, message.error().message));
  events_.message(*this, std::move(*message));
}

void Connection::take_handshake(const WireHeader& header, ByteSpan payload) {
  auto done = handshake_.receive(header.type, payload);
  // What there is to say is said before the end, so that the other side can name the reason too.
  send_handshake();
  if (!done)
    return close(handshake_.disagrees() ? done.error().message
                                        : fmt::format("{}: {}", name_, done.error().message));
  if (!*done || !fd_) return;
  phase_ = Phase::trial;
  name_ = fmt::format("replica {}", peer());
  events_.established(*this);
  if (fd_) begin_trial();
}

void Connection::begin_trial() {
  static const std::vector<std::byte> filler(trial_bytes);
  last_received_ = last_sent_ = loop_.now();
  arm_timer();
  ByteSpan payload = filler;
  send(static_cast<std::uint16_t>(WireType::trial), {&payload, 1});
  flush();
}

// What the peer says once it is ready comes behind its answer to our trial, so this side is ready by then.
void Connection::take_trial(std::uint16_t type, ByteSpan payload) {
  bool trial = type == static_cast<std::uint16_t>(WireType::trial),
       taken = type == static_cast<std::uint16_t>(WireType::trial_taken);
  if ((trial && (trial_seen_ || payload.size() != trial_bytes)) ||
      (taken && (trial_taken_ || !payload.empty())) || !(trial || taken))
    return close(
        fmt::format("{}: a message of type {} with {} bytes in the trial", name_, type, payload.size()));
  if (taken) trial_taken_ = true;
  if (trial) {
    trial_seen_ = true;
    send(static_cast<std::uint16_t>(WireType::trial_taken), {});
    flush();
  }
  if (!fd_ || !trial_taken_ || !trial_seen_) return;
  phase_ = Phase::ready;
  last_received_ = last_sent_ = loop_.now();
  arm_timer();
  events_.ready(*this);
}

}  // namespace twinloft::repl::net
