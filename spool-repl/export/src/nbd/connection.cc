#include "connection.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "twinloft/base/check.h"
#include "twinloft/base/log.h"

namespace twinloft::repl::nbd {

using stream::Stream;

namespace {
constexpr std::size_t input_bytes = 64 << 10;
constexpr int reads_per_turn = 16;                        // of a connection, before others get their turn
constexpr std::uint32_t direct_payload_bytes = 16 << 10;  // from this size, payload is received directly into
                                                          // its buffers
constexpr std::size_t max_iovecs = 256;
}  // namespace

Connection::Connection(Server& server, std::unique_ptr<Stream> stream)
    : server_(server), stream_(std::move(stream)), handshake_(server.exports_) {
  input_.resize(input_bytes);
}

Connection::Connection(Server& server, std::unique_ptr<stream::TlsStream> stream)
    : server_(server),
      stream_(std::move(stream)),
      tls_(static_cast<stream::TlsStream*>(stream_.get())),
      handshake_(server.exports_, Handshake::Tls::required) {
  input_.resize(input_bytes);
}

Connection::~Connection() {
  TL_CHECK_MSG(in_target_ == 0, "an NBD connection is destroyed with requests at the target");
  server_.loop_.cancel(handshake_timer_);
}

void Connection::start() {
  handshake_.greet(control_out_);
  stream_->start(Stream::readable, {[this](Status opened) { on_opened(std::move(opened)); },
                                    [this](unsigned ready) { on_ready(ready); }});
  handshake_timer_ = server_.loop_.after(server_.options_.handshake_timeout, [this] {
    handshake_timer_ = 0;
    protocol_error("no export chosen in time");
  });
  if (stream_->state() == Stream::State::open) flush();
}

void Connection::on_opened(Status opened) {
  if (!opened) return protocol_error(opened.error().message);
  flush();
}

void Connection::close() {
  if (phase_ == Phase::closed) return;
  phase_ = Phase::closed;
  server_.loop_.cancel(handshake_timer_);
  stream_->close();
  for (Slot* slot : replies_) release(*slot);
  replies_.clear();
  // A write with incomplete payload never reaches the target.
  if (receiving_ != nullptr) release(*std::exchange(receiving_, nullptr));
  if (in_target_ == 0) server_.finished(*this);
}

void Connection::protocol_error(std::string_view why) {
  ++server_.counters_.protocol_errors;
  log_debug("nbd: connection closed: {}", why);
  close();
}

void Connection::on_ready(unsigned ready) {
  if (ready & Stream::writable) {
    output_blocked_ = false;
    flush();
  }
  if (phase_ != Phase::closed && (ready & Stream::readable)) on_readable();
  if (phase_ != Phase::closed) update_interest();
}

void Connection::on_readable() {
  if (stream_->state() != Stream::State::open) return;  // TLS begins
  for (int i = 0; i < reads_per_turn && phase_ != Phase::closed && !paused_ && !input_ended_; ++i)
    if (!read_some()) return;
}

// Receives large payload directly into its buffers, and the bytes after it into the input buffer.
bool Connection::read_some() {
  iovec iov[max_parts + 1];
  std::size_t count = 0;
  std::uint32_t direct = add_payload_buffers(iov, count);
  iov[count++] = {input_.data(), input_.size()};
  auto read = stream_->read({iov, count});
  if (!read) return close(), false;
  if (read->ended) return on_end_of_input(), false;
  std::size_t got = read->bytes;
  if (got == 0) return false;
  std::size_t room = 0;
  for (const iovec& v : std::span(iov, count)) room += v.iov_len;
  std::size_t placed = std::min<std::size_t>(got, direct);
  if (placed > 0) {
    reader_.payload_received(static_cast<std::uint32_t>(placed));
    on_payload({});
  }
  if (phase_ != Phase::closed && got > placed) on_input(ByteSpan(input_).first(got - placed));
  // After a short read, the loop reports further bytes. But the rest of an incomplete write usually follows
  // at once, so the next read does not wait for the loop.
  return got == room || receiving_ != nullptr;
}

// Returns the number of payload bytes that are received in place.
std::uint32_t Connection::add_payload_buffers(iovec* iov, std::size_t& count) const {
  if (receiving_ == nullptr || receiving_->part_count == 0 || reader_.payload_left() < direct_payload_bytes)
    return 0;
  std::uint32_t at = receiving_->request.length - reader_.payload_left();
  for (unsigned i = at / ports::io_max_length; i < receiving_->part_count; ++i) {
    const Part& part = receiving_->parts[i];
    std::uint32_t skip = i == at / ports::io_max_length ? at % ports::io_max_length : 0;
    iov[count++] = {part.buffer.data() + skip, part.io.length - skip};
  }
  return reader_.payload_left();
}

void Connection::on_end_of_input() {
  input_ended_ = true;
  if (receiving_ != nullptr) release(*std::exchange(receiving_, nullptr));
  if (phase_ == Phase::negotiating) return close();
  phase_ = Phase::draining;
  after_output();
}

void Connection::on_input(ByteSpan in) {
  if (phase_ == Phase::negotiating) negotiate(in);
  if (phase_ == Phase::serving) serve(in);
}

void Connection::negotiate(ByteSpan& in) {
  handshake_.consume(in, control_out_);
  // Limits the memory of a client that does not read the replies.
  if (control_out_.size() > (1u << 20)) return protocol_error("replies are not read");
  switch (handshake_.state()) {
    case Handshake::State::negotiating:
      break;
    case Handshake::State::starting_tls:
      // Such bytes could be of somebody on the way, and would be executed as the client's (CVE-2021-3716).
      if (!in.empty()) return protocol_error("clear text behind STARTTLS");
      break;
    case Handshake::State::transmission:
      begin_serving();
      break;
    case Handshake::State::finished:
      phase_ = Phase::draining;
      break;
    case Handshake::State::broken:
      return protocol_error(handshake_.why());
  }
  if (output_pending()) server_.wants_flush(*this);
}

void Connection::begin_serving() {
  server_.loop_.cancel(std::exchange(handshake_timer_, 0));
  slots_ = std::vector<Slot>(server_.options_.max_requests);
  free_slots_.reserve(slots_.size());
  for (Slot& slot : slots_) {
    slot.connection = this;
    free_slots_.push_back(&slot);
  }
  phase_ = Phase::serving;
}

void Connection::serve(ByteSpan in) {
  ByteSpan piece;
  while (phase_ == Phase::serving) {
    switch (reader_.next(in, piece)) {
      case RequestReader::Event::need_input:
        return;
      case RequestReader::Event::bad_magic:
        return protocol_error("a request without its magic number");
      case RequestReader::Event::payload:
        on_payload(piece);
        break;
      case RequestReader::Event::request:
        if (admit()) break;
        paused_ = true;
        unread_.assign(in.begin(), in.end());
        return;
    }
  }
}

// There is room again: takes the waiting request, and the input after it.
void Connection::resume() {
  while (paused_ && phase_ == Phase::serving) {
    if (!admit()) return;
    paused_ = false;
    auto rest = std::move(unread_);
    unread_.clear();
    serve(rest);
  }
}

bool Connection::admit() {
  const Request& request = reader_.request();
  WireError refused = check_request(request, server_.target_.size_bytes());
  if (request.is(Command::disconnect) && refused == WireError::none) {
    phase_ = Phase::draining;
    after_output();
    return true;
  }
  if (refused == WireError::none && server_.stopping_) refused = WireError::eshutdown;
  bool carries_data = request.is(Command::read) || request.is(Command::write);
  std::uint32_t bytes = carries_data && refused == WireError::none ? request.length : 0;
  if (free_slots_.empty()) return false;
  if (data_bytes_ > 0 && data_bytes_ + bytes > server_.options_.max_bytes) return false;

  Slot& slot = *free_slots_.back();
  free_slots_.pop_back();
  slot.request = request;
  slot.refused = refused;
  slot.error = 0;
  slot.part_count = 0;
  slot.flush_after = false;
  slot.data_bytes = bytes;
  data_bytes_ += bytes;
  if (bytes > 0 && !take_buffers(slot)) slot.refused = WireError::enomem;
  if (request.is(Command::write) && request.length > 0)
    receiving_ = &slot;
  else
    submit(slot);
  return true;
}

bool Connection::take_buffers(Slot& slot) {
  std::uint32_t left = slot.request.length;
  while (left > 0) {
    std::uint32_t length = std::min(left, ports::io_max_length);
    Part& part = slot.parts[slot.part_count++];
    part.buffer = server_.pool_.take(length);
    part.io.length = length;
    left -= length;
    if (part.buffer) continue;
    for (unsigned i = 0; i < slot.part_count; ++i) slot.parts[i].buffer.reset();
    slot.part_count = 0;
    return false;
  }
  return true;
}

// piece: was removed from the input. Empty: the payload was received in place.
void Connection::on_payload(ByteSpan piece) {
  Slot& slot = *receiving_;
  if (slot.part_count > 0 && !piece.empty()) {
    auto at = slot.request.length - reader_.payload_left() - static_cast<std::uint32_t>(piece.size());
    copy_payload(slot, at, piece);
  }
  if (reader_.payload_left() > 0) return;
  receiving_ = nullptr;
  submit(slot);
}

void Connection::copy_payload(Slot& slot, std::uint32_t at, ByteSpan piece) {
  while (!piece.empty()) {
    Part& part = slot.parts[at / ports::io_max_length];
    std::uint32_t skip = at % ports::io_max_length;
    std::size_t n = std::min<std::size_t>(piece.size(), part.io.length - skip);
    std::memcpy(part.buffer.data() + skip, piece.data(), n);
    piece = piece.subspan(n);
    at += static_cast<std::uint32_t>(n);
  }
}

void Connection::submit(Slot& slot) {
  const Request& r = slot.request;
  if (slot.refused == WireError::none && server_.stopping_) slot.refused = WireError::eshutdown;
  if (slot.refused != WireError::none) return complete(slot, slot.refused);
  if (r.is(Command::cache)) return complete(slot, WireError::none);
  ports::IoOp op = ports::IoOp::read;
  bool writes = true;
  switch (static_cast<Command>(r.command)) {
    case Command::write:
      op = ports::IoOp::write;
      break;
    case Command::trim:
      op = ports::IoOp::trim;
      break;
    case Command::write_zeroes:
      op = ports::IoOp::write_zeroes;
      break;
    case Command::flush:
      op = ports::IoOp::flush;
      writes = false;
      break;
    default:
      writes = false;
      break;
  }
  if (slot.part_count == 0) {
    slot.part_count = 1;
    slot.parts[0].io.length = r.length;
  }
  // One flush after all parts is cheaper than FUA for each part. A trim has no FUA.
  bool one_piece = slot.part_count == 1 && op != ports::IoOp::trim;
  slot.flush_after = writes && r.fua() && !one_piece;
  slot.parts_left = slot.part_count;
  in_target_ += slot.part_count;
  std::uint64_t offset = r.offset;
  for (unsigned i = 0, count = slot.part_count; i < count; ++i) {
    ports::IoRequest& io = slot.parts[i].io;
    io.op = op;
    io.fua = writes && r.fua() && one_piece;
    io.offset = offset;
    io.data = slot.parts[i].buffer.data();
    offset += io.length;
    submit_part(slot, slot.parts[i]);
  }
}

void Connection::submit_part(Slot& slot, Part& part) {
  part.io.error = 0;
  part.io.owner = &slot;
  part.io.done = &Connection::on_io_done;
  server_.target_.submit(part.io);
}

void Connection::on_io_done(ports::IoRequest& io) {
  Slot& slot = *static_cast<Slot*>(io.owner);
  Connection& c = *slot.connection;
  if (io.error != 0 && slot.error == 0) slot.error = io.error;
  --c.in_target_;
  if (--slot.parts_left == 0) c.on_parts_done(slot);
}

void Connection::on_parts_done(Slot& slot) {
  if (slot.flush_after && slot.error == 0) {
    slot.flush_after = false;
    slot.parts_left = 1;
    ++in_target_;
    ports::IoRequest& io = slot.parts[0].io;
    io.op = ports::IoOp::flush;
    io.offset = 0;
    io.length = 0;
    return submit_part(slot, slot.parts[0]);
  }
  complete(slot, to_wire_error(slot.error));
}

void Connection::complete(Slot& slot, WireError error) {
  if (phase_ == Phase::closed) {
    release(slot);
    if (in_target_ == 0) server_.finished(*this);
    return;
  }
  bool sends_data = slot.request.is(Command::read) && error == WireError::none;
  if (!sends_data) {
    for (unsigned i = 0; i < slot.part_count; ++i) slot.parts[i].buffer.reset();
    slot.part_count = 0;
    data_bytes_ -= std::exchange(slot.data_bytes, 0);
  }
  ++server_.counters_.requests;
  if (error != WireError::none) ++server_.counters_.errors;
  slot.header = encode_reply(slot.request, error, handshake_.structured_replies());
  replies_.push_back(&slot);
  server_.wants_flush(*this);
}

void Connection::release(Slot& slot) {
  for (unsigned i = 0; i < slot.part_count; ++i) slot.parts[i].buffer.reset();
  slot.part_count = 0;
  data_bytes_ -= std::exchange(slot.data_bytes, 0);
  free_slots_.push_back(&slot);
}

std::size_t Connection::gather_output(std::span<iovec> out) const {
  std::size_t n = 0, skip = out_sent_;
  auto add = [&](const std::byte* data, std::size_t size) {
    std::size_t cut = std::min(skip, size);
    skip -= cut;
    if (size > cut) out[n++] = {const_cast<std::byte*>(data) + cut, size - cut};
  };
  if (!control_out_.empty()) add(control_out_.data(), control_out_.size());
  for (const Slot* slot : replies_) {
    if (n + 1 + slot->part_count > out.size()) break;
    add(slot->header.bytes.data(), slot->header.size);
    for (unsigned i = 0; i < slot->part_count; ++i)
      add(slot->parts[i].buffer.data(), slot->parts[i].io.length);
  }
  return n;
}

void Connection::sent(std::size_t bytes) {
  out_sent_ += bytes;
  if (!control_out_.empty()) {
    if (out_sent_ < control_out_.size()) return;
    out_sent_ -= control_out_.size();
    control_out_.clear();
  }
  while (!replies_.empty()) {
    Slot& slot = *replies_.front();
    std::size_t size = slot.header.size;
    for (unsigned i = 0; i < slot.part_count; ++i) size += slot.parts[i].io.length;
    if (out_sent_ < size) return;
    out_sent_ -= size;
    replies_.pop_front();
    release(slot);
  }
}

void Connection::flush() {
  if (stream_->state() == Stream::State::opening) return;
  while (phase_ != Phase::closed && !output_blocked_) {
    while (output_pending() && !output_blocked_) {
      iovec iov[max_iovecs];
      std::size_t count = gather_output(iov), all = 0;
      for (const iovec& v : std::span(iov, count)) all += v.iov_len;
      auto written = stream_->write({iov, count});
      if (!written) return close();
      output_blocked_ = *written < all;
      sent(*written);
    }
    if (!paused_) break;
    resume();
    if (!output_pending()) break;
  }
  if (phase_ == Phase::closed) return;
  if (handshake_.state() == Handshake::State::starting_tls && !output_pending()) return begin_tls();
  after_output();
  if (phase_ != Phase::closed) update_interest();
}

// The client's input stays unread until TLS has begun.
void Connection::begin_tls() {
  handshake_.secured();
  tls_->secure();
}

// Closes a draining connection once everything is answered. If the server stops, the client can read its last
// replies first: closing a socket with unread input would discard them.
void Connection::after_output() {
  if (phase_ != Phase::draining || in_target_ > 0 || output_pending()) return;
  if (stream_->has_unsent()) {
    stream_->end_output();
    if (stream_->has_unsent()) return;  // `writable` is reported once all is sent
  }
  if (!server_.stopping_ || input_ended_) return close();
  if (!std::exchange(write_side_shut_, true)) stream_->end_output();
}

void Connection::stop() {
  if (phase_ == Phase::closed) return;
  if (phase_ == Phase::negotiating) return close();
  // Received requests are answered, with ESHUTDOWN since the server is stopping.
  if (phase_ == Phase::serving) on_readable();
  if (phase_ == Phase::serving) flush();
  if (phase_ == Phase::closed) return;
  if (receiving_ != nullptr) release(*std::exchange(receiving_, nullptr));
  paused_ = false;
  phase_ = Phase::draining;
  flush();
}

void Connection::update_interest() {
  unsigned wanted = 0;
  // While draining, it reads only to detect the end of the input; see after_output().
  if (!input_ended_ && !paused_ && (phase_ != Phase::draining || write_side_shut_))
    wanted |= Stream::readable;
  if ((output_blocked_ && output_pending()) || (phase_ == Phase::draining && stream_->has_unsent()))
    wanted |= Stream::writable;
  stream_->want(wanted);
}

}  // namespace twinloft::repl::nbd
