#include "connection.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "twinloft/base/check.h"
#include "twinloft/base/crc32c.h"

namespace twinloft::repl::net {

using stream::Stream;

namespace {
constexpr std::size_t read_bytes = 256 * 1024;
constexpr std::size_t trial_bytes = 128 * 1024;  // more than the largest packet of any network
}  // namespace

Connection::Connection(ports::Loop& loop, std::unique_ptr<Stream> line,
                       std::shared_ptr<stream::WorkPool> pool, std::string name, Handshake handshake,
                       Limits limits, Events events, unsigned number)
    : loop_(loop),
      number_(number),
      name_(std::move(name)),
      handshake_(std::move(handshake)),
      limits_(limits),
      events_(std::move(events)) {
  last_received_ = last_sent_ = loop_.now();
  auto paths = std::make_unique<stream::PathsStream>(loop_, std::move(line));
  paths_ = paths.get();
  stream_ = std::make_unique<stream::PackedStream>(loop_, std::move(paths), std::move(pool));
  stream_->start(Stream::readable, {[this](Status opened) { on_opened(std::move(opened)); },
                                    [this](unsigned ready) { on_ready(ready); }});
  arm_timer();
  if (stream_->state() == Stream::State::open) begin_handshake();
}

Connection::~Connection() {
  if (timer_) loop_.cancel(timer_);
}

void Connection::close(const std::string& reason) {
  if (!is_open()) return;
  if (timer_) loop_.cancel(timer_);
  timer_ = 0;
  stuck_ = stuck_ || (is_established() && stream_->is_stuck());
  stream_->close();
  batch_.clear();
  headers_.clear();
  events_.closed(*this, reason);
}

void Connection::on_ready(unsigned ready) {
  if (phase_ == Phase::path && !(ready & Stream::writable)) return;
  if (ready & Stream::writable) {
    full_ = false;
    flush();
  }
  if (is_open() && phase_ != Phase::path && (ready & Stream::readable)) on_readable();
}

void Connection::on_opened(Status opened) {
  if (opened) return begin_handshake();
  const Error& e = opened.error();
  close(e.code == Errc::denied ? fmt::format("{}: {}", name_, e.message)
                               : fmt::format("cannot connect to {}: {}", name_, e.message));
}

void Connection::begin_handshake() {
  phase_ = Phase::handshake;
  if (Status may = handshake_.check_dialed(); !may)
    return close(fmt::format("{}: {}", name_, may.error().message));
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

Instant Connection::deadline() const {
  return last_received_ + (is_established() ? limits_.timeout : limits_.handshake);
}

// A ping is due after a quarter of the timeout without output. The connection is closed after a whole
// timeout without input. Both times are exact to the millisecond, since they are most of the time until a
// lost primary can be replaced.
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
  // What has arrived waits for a processor here.
  if (phase_ == Phase::ready && stream_->is_decoding()) last_received_ = now;
  if (now >= deadline()) {
    auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(deadline() - last_received_).count();
    stuck_ = is_established();
    if (phase_ == Phase::trial)
      return close(fmt::format(
          "{} can be connected, but {} KiB of data did not get through within {} ms: packets of full size "
          "may be dropped on the way (compare the MTU of both machines and of the network between them)",
          name_, trial_bytes >> 10, ms));
    return close(fmt::format("nothing from {} for {} ms", name_, ms));
  }
  keep_alive();
  if (!is_open()) return;
  if (phase_ == Phase::ready && now - last_sent_ >= limits_.timeout / 4) {
    send(static_cast<std::uint16_t>(WireType::ping), {});
    flush();
  }
  if (is_open()) arm_timer();
}

// Called at least four times in a timeout. The peer must hear something, also if the pool does not come to
// its work.
void Connection::keep_alive() {
  std::uint64_t sent = stream_->line_bytes_sent();
  Instant now = loop_.now();
  if (sent != std::exchange(line_sent_, sent)) line_sent_at_ = now;
  if (phase_ == Phase::ready && now - line_sent_at_ >= limits_.timeout / 5) stream_->hurry();
}

// ---- sending

void Connection::send(std::uint16_t type, std::span<const ByteSpan> payload) {
  if (!is_open()) return;
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
  if (!is_open() || phase_ == Phase::opening || (batch_.empty() && unsent_bytes() == 0)) return;
  last_sent_ = loop_.now();
  std::size_t out = 0;
  if (!full_) {
    iov_.clear();
    auto add = [&](ByteSpan b) {
      if (!b.empty()) iov_.push_back({const_cast<std::byte*>(b.data()), b.size()});
    };
    backlog_.for_each(add);
    for (const Part& p : batch_) add(p.header == SIZE_MAX ? p.bytes : ByteSpan(headers_[p.header]));
    auto written = stream_->write(iov_);
    if (!written) return close(fmt::format("sending to {}: {}", name_, written.error().message));
    out = *written;
  }
  keep(out);
  batch_.clear();
  headers_.clear();
  // The windows of the peer's core limit its requests. More unsent bytes show an error of the peer.
  if (unsent_bytes() > limits_.unsent_bytes_max)
    return close(fmt::format("{} does not receive: {} MiB wait for it", name_, unsent_bytes() >> 20));
  full_ = unsent_bytes() > 0;
  unsigned reads = phase_ == Phase::path ? 0u : unsigned{Stream::readable};
  stream_->want(full_ ? reads | Stream::writable : reads);
}

// `out` bytes of backlog and batch were written. The rest of the batch is copied, since its memory is valid
// only until now.
void Connection::keep(std::size_t out) {
  std::size_t of_backlog = std::min(out, unsent_bytes());
  backlog_.drop(of_backlog);
  out -= of_backlog;
  for (const Part& p : batch_) {
    ByteSpan bytes = p.header == SIZE_MAX ? p.bytes : ByteSpan(headers_[p.header]);
    std::size_t skip = std::min(out, bytes.size());
    out -= skip;
    backlog_.append(bytes.subspan(skip));
  }
}

// ---- receiving

void Connection::on_readable() {
  // One read in each turn, so that other descriptors get their turn.
  if (in_begin_ > 0) {
    std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  if (in_.size() - in_end_ < read_bytes) in_.resize(in_end_ + read_bytes);
  iovec room{in_.data() + in_end_, in_.size() - in_end_};
  std::uint64_t line_before = stream_->line_bytes_received();
  auto got = stream_->read({&room, 1});
  if (!got) return close(fmt::format("receiving from {}: {}", name_, got.error().message));
  if (got->ended) return close(why_it_ended());
  // A part of a frame has no content yet.
  if (phase_ == Phase::ready && stream_->line_bytes_received() > line_before) last_received_ = loop_.now();
  if (got->bytes == 0) return;
  // A caller without a proof has one timeout for the whole handshake, also if its bytes come slowly. The
  // same holds for the trial.
  if (phase_ == Phase::ready) last_received_ = loop_.now();
  in_end_ += got->bytes;
  while (is_open() && phase_ != Phase::path && take_messages()) {
  }
}

std::string Connection::why_it_ended() const {
  if (is_established()) return fmt::format("{} closed the connection", name_);
  if (!handshake_.waits_for_proof())
    return fmt::format("{} closed the connection during the handshake (see its log)", name_);
  return fmt::format(
      "{} closed the connection during the handshake: its shared secret differs, or its log has the reason",
      name_);
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
    // A long message is read directly into its buffer, which grows once, to the bound of the checked header.
    if (in_.size() < in_begin_ + whole) in_.resize(in_begin_ + whole);
    return false;
  }
  ByteSpan payload = ByteSpan(in_).subspan(in_begin_ + wire_header_bytes, header->payload_bytes);
  if (crc32c(payload) != header->payload_crc)
    return close(fmt::format("{}: a message with a wrong CRC", name_)), false;
  in_begin_ += whole;
  take(*header, payload);
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
  // Pending messages are sent before the end, so that the other side can log the reason too.
  send_handshake();
  if (!done)
    return close(handshake_.disagrees() ? done.error().message
                                        : fmt::format("{}: {}", name_, done.error().message));
  if (!*done || !is_open()) return;
  if (joined()) return events_.established(*this);
  phase_ = Phase::trial;
  name_ = fmt::format("replica {}", peer());
  if (handshake_.has_paths()) begin_paths(in_begin_);
  if (handshake_.has_frames())
    if (Status begun = begin_frames(in_begin_); !begun)
      return close(fmt::format("{}: {}", name_, begun.error().message));
  events_.established(*this);
  if (is_open()) begin_trial();
}

std::vector<std::byte> Connection::take_unsent() {
  std::vector<std::byte> unsent;
  backlog_.for_each([&](ByteSpan part) { unsent.insert(unsent.end(), part.begin(), part.end()); });
  backlog_.clear();
  full_ = false;
  return unsent;
}

// What was read behind the hello belongs to chunks or frames, and what is left of the own hello does not.
void Connection::begin_paths(std::size_t end_of_hello) {
  ByteSpan received = ByteSpan(in_).subspan(end_of_hello, in_end_ - end_of_hello);
  std::vector<std::byte> unsent = take_unsent();
  in_end_ = end_of_hello;
  stream::PathsStream::PathEvents events{[this](unsigned number) {
                                           if (events_.path_usable) events_.path_usable(*this, number);
                                         },
                                         [this](const stream::PathsStream::LostPath& path) {
                                           if (events_.path_lost) events_.path_lost(*this, path);
                                         }};
  paths_->begin(number_, limits_.paths, limits_.path_patience, std::move(events), received, unsent);
}

Status Connection::begin_frames(std::size_t end_of_hello) {
  ByteSpan received = ByteSpan(in_).subspan(end_of_hello, in_end_ - end_of_hello);
  std::vector<std::byte> unsent = take_unsent();
  in_end_ = end_of_hello;
  return stream_->begin_frames(handshake_.own_codecs(), handshake_.peer_codecs(), received, unsent);
}

void Connection::accept_path() {
  phase_ = Phase::path;
  if (timer_) loop_.cancel(timer_);
  timer_ = 0;
  stream_->want(0);
  if (handshake_.direction() == Handshake::Direction::dialed) return;
  handshake_.accept_join();
  send_handshake();
}

Connection::TakenPath Connection::take_path() {
  TakenPath out;
  out.received.assign(in_.begin() + static_cast<std::ptrdiff_t>(in_begin_),
                      in_.begin() + static_cast<std::ptrdiff_t>(in_end_));
  out.unsent = take_unsent();
  out.stream = paths_->release();
  return out;
}

// Without compression, which would leave nothing of the filler.
void Connection::begin_trial() {
  static const std::vector<std::byte> filler(trial_bytes);
  last_received_ = last_sent_ = loop_.now();
  arm_timer();
  ByteSpan payload = filler;
  send(static_cast<std::uint16_t>(WireType::trial), {&payload, 1});
  flush();
}

// A peer that is ready has already answered this side's trial. So this side is ready before the peer's other
// messages arrive.
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
  if (!is_open() || !trial_taken_ || !trial_seen_) return;
  phase_ = Phase::ready;
  last_received_ = last_sent_ = loop_.now();
  arm_timer();
  events_.ready(*this);
}

}  // namespace twinloft::repl::net
