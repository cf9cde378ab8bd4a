#include "frame_writer.h"

#include <algorithm>
#include <new>

#include "twinloft/base/check.h"

namespace twinloft::repl::stream {

using compress::Codec;
using compress::encode_frame_header;
using compress::header_bytes;
using compress::Method;
using compress::raw_bytes_max;

namespace {

constexpr std::size_t worth_packing = 128;  // smaller frames go as they are
constexpr Duration meter_window = std::chrono::milliseconds(100);
constexpr Duration idle_after = std::chrono::milliseconds(20);

iovec slice(const iovec& v, std::size_t begin, std::size_t bytes) {
  return {static_cast<std::byte*>(v.iov_base) + begin, bytes};
}

iovec as_iovec(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

std::size_t size_of(std::span<const iovec> all) {
  std::size_t bytes = 0;
  for (const iovec& v : all) bytes += v.iov_len;
  return bytes;
}

compress::FrameHeader header_of(const OutFrame& frame) {
  auto raw = static_cast<std::uint32_t>(frame.raw.size());
  if (!frame.is_packed()) return {Codec::none, raw, raw};
  return {frame.method.codec, raw, static_cast<std::uint32_t>(frame.packed_bytes)};
}

std::span<const std::byte> body_of(const OutFrame& frame) {
  return frame.is_packed() ? std::span(frame.packed).first(frame.packed_bytes) : std::span(frame.raw);
}

}  // namespace

std::uint64_t unsent_bytes_max(std::uint64_t unsent_bytes, unsigned threads) {
  return std::max<std::uint64_t>(unsent_bytes, 2 * std::uint64_t{threads} * raw_bytes_max);
}

void OutFrame::run(compress::Coder& coder) {
  if (is_late) return;
  OsClock clock;
  Instant begin = clock.now();
  try {
    packed_bytes = coder.pack(method, raw, packed);
  } catch (const std::bad_alloc&) {
    packed_bytes = 0;
  }
  time = clock.now() - begin;
}

void LineMeter::note(std::size_t bytes, bool full, Instant now, compress::Chooser& chooser) {
  if (room_since_ && now - *room_since_ > idle_after) measures_ = false;
  if (measures_) since_bytes_ += bytes;
  room_since_ = full ? std::nullopt : std::optional(now);
  if (!full) return;
  if (measures_) {
    bytes_ += since_bytes_;
    time_ += now - since_;
  }
  measures_ = true;
  since_ = now;
  since_bytes_ = 0;
  if (time_ < meter_window) return;
  chooser.note_line(bytes_, time_, now);
  bytes_ = 0;
  time_ = Duration(0);
}

void LineMeter::note_room(Instant now) {
  if (!room_since_) room_since_ = now;
}

FrameWriter::FrameWriter(ports::Loop& loop, Stream& below, std::shared_ptr<WorkPool> pool,
                         std::shared_ptr<DoneWork> done, compress::CodecSet allowed, std::size_t unsent_bytes,
                         ByteSpan before)
    : loop_(loop),
      below_(below),
      pool_(std::move(pool)),
      done_(std::move(done)),
      allowed_(pool_ ? allowed : compress::CodecSet()),
      unsent_max_(unsent_bytes_max(unsent_bytes, pool_ ? pool_->threads() : 0)),
      chooser_(pool_ ? pool_->threads() : 1, allowed_),
      waits_for_(before.empty() ? WaitsFor::nothing : WaitsFor::line),
      rest_(before.begin(), before.end()) {}

void FrameWriter::set_packing(const Packing& packing) {
  packing_ = packing;
  next_.reset();
}

void FrameWriter::set_shaping(const Shaping& shaping) {
  bucket_.set_rate(shaping.rate, loop_.now());
  shared_ = shaping.all;
  least_.set_rate(shared_ ? Rate(rate_min) : Rate(), loop_.now());
}

Method FrameWriter::choose(std::size_t raw) {
  if (raw < worth_packing) return {};
  if (!next_) {
    const auto* fixed = std::get_if<Method>(&packing_.setting);
    next_ = fixed ? *fixed : Method{chooser_.next(raw, loop_.now()), 0};
    if (!allowed_.has(next_->codec)) next_ = Method{};
  }
  return *next_;
}

Result<std::size_t> FrameWriter::write(std::span<iovec> from) {
  std::size_t bytes = size_of(from);
  if (waits_for_bandwidth().value_or(Duration(0)) > Duration(0)) return 0;
  if (is_empty() && choose(std::min(bytes, raw_bytes_max)).codec == Codec::none) {
    if (bytes >= worth_packing) next_.reset();
    return write_at_once(from, bytes);
  }
  std::size_t accepted = 0;
  for (const iovec& each : from) {
    std::size_t before = accepted;
    collect(each, accepted);
    if (accepted - before < each.iov_len) break;
  }
  TL_TRY(pump());
  return accepted;
}

// Without a copy of the content, except the rest of a frame that the stream below accepts a part of.
Result<std::size_t> FrameWriter::write_at_once(std::span<const iovec> from, std::size_t bytes) {
  line_.clear();
  headers_.clear();
  headers_.reserve(bytes / raw_bytes_max + 1);  // line_ points into it
  std::size_t left_in_frame = 0, left = bytes;
  for (const iovec& each : from) {
    for (std::size_t at = 0; at < each.iov_len;) {
      if (left_in_frame == 0) {
        left_in_frame = std::min(left, raw_bytes_max);
        auto raw = static_cast<std::uint32_t>(left_in_frame);
        line_.push_back(as_iovec(headers_.emplace_back(encode_frame_header({Codec::none, raw, raw}))));
      }
      std::size_t n = std::min(each.iov_len - at, left_in_frame);
      line_.push_back(slice(each, at, n));
      at += n;
      left -= n;
      left_in_frame -= n;
    }
  }
  TL_TRY_ASSIGN(std::size_t sent, send());
  std::size_t accepted = bytes;
  if (constexpr std::size_t frame = header_bytes + raw_bytes_max; is_blocked()) {
    std::size_t whole = sent / frame, all = size_of(line_);
    accepted = whole * raw_bytes_max;
    if (sent > whole * frame) {
      keep(sent, std::min((whole + 1) * frame, all));
      accepted = std::min((whole + 1) * raw_bytes_max, bytes);
    }
  }
  raw_bytes_ += accepted;
  return accepted;
}

void FrameWriter::collect(const iovec& from, std::size_t& accepted) {
  for (std::size_t at = 0; at < from.iov_len;) {
    if (out_raw_ + open_.size() >= unsent_max_) return;
    std::size_t n = std::min(from.iov_len - at, raw_bytes_max - open_.size());
    const auto* begin = static_cast<const std::byte*>(from.iov_base) + at;
    open_.insert(open_.end(), begin, begin + n);
    at += n;
    accepted += n;
    if (open_.size() == raw_bytes_max) close_frame();
  }
}

// While the line is full, or the pool has enough, more content makes a larger frame.
bool FrameWriter::may_close() const {
  return !open_.empty() && rest_.empty() && !is_blocked() &&
         (!pool_ || in_pool_ < 2 * std::size_t{pool_->threads()});
}

std::size_t FrameWriter::in_pool_max() const {
  return pool_ ? unsent_max_ / raw_bytes_max + 2 * std::size_t{pool_->threads()} : 0;
}

void FrameWriter::close_frame() {
  auto frame = std::make_shared<OutFrame>();
  // The pool may still have frames that were sent meanwhile.
  if (in_pool_ >= in_pool_max()) next_ = Method{};
  frame->method = choose(open_.size());
  if (open_.size() >= worth_packing) next_.reset();
  frame->raw = std::move(open_);
  open_ = {};
  out_raw_ += frame->raw.size();
  raw_bytes_ += frame->raw.size();
  out_.push_back(frame);
  frame->done = frame->method.codec == Codec::none;
  if (frame->done) return;
  ++in_pool_;
  frame->packed.resize(frame->raw.size() - 1);  // here: a thread of the pool takes no lock of the allocator
  pool_->submit(packing_.link, std::move(frame), done_);
}

void FrameWriter::take(OutFrame& frame) {
  frame.done = true;
  --in_pool_;
  if (frame.time == Duration(0)) return;
  chooser_.note_frame(frame.method.codec, frame.raw.size(),
                      frame.packed_bytes == 0 ? frame.raw.size() : frame.packed_bytes, frame.time);
}

Status FrameWriter::hurry() {
  if (is_blocked()) return {};
  if (out_.empty() && !open_.empty()) {
    next_ = Method{};
    close_frame();
  }
  if (out_.empty()) return {};
  out_.front()->hurried = !out_.front()->done;
  out_.front()->is_late = true;
  return send_front();
}

// ---- the stream below

// Other links never wait for bulk. Their bytes count, so that bulk gets what they leave, and a little at
// least.
std::uint64_t FrameWriter::allowed(Instant now) {
  if (ends_) return UINT64_MAX;
  std::uint64_t bytes = bucket_.available(now);
  if (!shared_ || packing_.link != LinkClass::bulk) return bytes;
  return std::min(bytes, std::max(shared_->available(now), least_.available(now)));
}

std::optional<Duration> FrameWriter::waits_for_bandwidth() {
  if (waits_for_ != WaitsFor::bandwidth) return std::nullopt;
  Instant now = loop_.now();
  Duration all = bucket_.wait(now);
  if (shared_ && packing_.link == LinkClass::bulk)
    all = std::max(all, std::min(shared_->wait(now), least_.wait(now)));
  return all;
}

Result<std::size_t> FrameWriter::send() {
  Instant now = loop_.now();
  std::size_t all = size_of(line_), may = std::min<std::uint64_t>(allowed(now), all);
  given_.clear();
  std::size_t left = may;
  for (const iovec& v : line_) {
    if (left == 0) break;
    given_.push_back(slice(v, 0, std::min(v.iov_len, left)));
    left -= given_.back().iov_len;
  }
  std::size_t sent = 0;
  if (may > 0) {
    TL_TRY_ASSIGN(sent, below_.write(given_));
  }
  line_bytes_ += sent;
  bucket_.take(sent, now);
  least_.take(std::min<std::uint64_t>(sent, least_.available(now)), now);
  if (shared_) shared_->take(sent, now);
  waits_for_ = sent == all ? WaitsFor::nothing : sent == may ? WaitsFor::bandwidth : WaitsFor::line;
  meter_.note(sent, is_blocked(), now, chooser_);
  return sent;
}

void FrameWriter::keep(std::size_t begin, std::size_t end) {
  std::size_t at = 0;
  for (const iovec& v : line_) {
    std::size_t from = std::clamp(begin, at, at + v.iov_len), to = std::clamp(end, at, at + v.iov_len);
    const auto* bytes = static_cast<const std::byte*>(v.iov_base) - at;
    rest_.insert(rest_.end(), bytes + from, bytes + to);
    at += v.iov_len;
  }
}

Status FrameWriter::send_rest() {
  line_.assign(1, as_iovec(rest_));
  TL_TRY_ASSIGN(std::size_t sent, send());
  rest_.erase(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(sent));
  return {};
}

Status FrameWriter::send_front() {
  std::shared_ptr<OutFrame> frame = out_.front();
  auto header = encode_frame_header(header_of(*frame));
  line_.assign({as_iovec(header), as_iovec(body_of(*frame))});
  TL_TRY_ASSIGN(std::size_t sent, send());
  if (sent == 0) return {};
  keep(sent, size_of(line_));
  out_raw_ -= frame->raw.size();
  out_.pop_front();
  return {};
}

Status FrameWriter::pump() {
  if (waits_for_bandwidth().value_or(Duration(0)) > Duration(0)) return {};
  waits_for_ = WaitsFor::nothing;
  if (!rest_.empty()) TL_TRY(send_rest());
  while (!is_blocked()) {
    if (!out_.empty() && (out_.front()->done || out_.front()->hurried))
      TL_TRY(send_front());
    else if (may_close())
      close_frame();
    else
      break;
  }
  if (!is_blocked()) meter_.note_room(loop_.now());
  return {};
}

void FrameWriter::send_uncompressed() {
  ends_ = true;
  if (!rest_.empty() && !send_rest()) return;
  if (!open_.empty()) {
    next_ = Method{};
    close_frame();
  }
  while (rest_.empty() && !out_.empty()) {
    OutFrame& frame = *out_.front();
    auto header = encode_frame_header(header_of(frame));
    line_.assign({as_iovec(header), as_iovec(body_of(frame))});
    auto sent = send();
    if (!sent || *sent < size_of(line_)) return;
    out_.pop_front();
  }
}

void FrameWriter::tell(PackingStatus& status) const {
  const auto* fixed = std::get_if<Method>(&packing_.setting);
  status.peer_lacks_codec = fixed && !allowed_.has(fixed->codec);
  status.codec = !fixed ? chooser_.best() : status.peer_lacks_codec ? Codec::none : fixed->codec;
  status.out_raw = raw_bytes_;
  status.out_line = line_bytes_;
  status.line_rate = chooser_.line_rate(loop_.now());
}

}  // namespace twinloft::repl::stream
