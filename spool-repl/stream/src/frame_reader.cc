#include "frame_reader.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace twinloft::repl::stream {

using compress::Codec;
using compress::header_bytes;

namespace {
constexpr std::size_t guess_bytes = 256 << 10, in_bytes = guess_bytes + header_bytes;
}

void InFrame::run(compress::Coder& coder) {
  try {
    unpacked = coder.unpack(header.codec, packed, raw);
  } catch (const std::bad_alloc&) {
    unpacked = fail(Errc::exhausted, "no memory to decompress a frame");
  }
}

FrameReader::FrameReader(Stream& below, std::shared_ptr<WorkPool> pool, std::shared_ptr<DoneWork> done,
                         compress::CodecSet accepted, std::size_t undecoded_bytes, ByteSpan received)
    : below_(below),
      pool_(std::move(pool)),
      done_(std::move(done)),
      accepted_(pool_ ? accepted : compress::CodecSet()),
      undecoded_max_(undecoded_bytes),
      in_(std::max(in_bytes, received.size())),
      in_end_(received.size()),
      line_bytes_(received.size()) {
  std::copy(received.begin(), received.end(), in_.begin());
}

// Out of in_.
std::size_t FrameReader::move(std::byte* to, std::size_t bytes_max) {
  std::size_t n = std::min(bytes_max, waiting());
  if (n > 0) std::memcpy(to, in_.data() + in_begin_, n);
  in_begin_ += n;
  return n;
}

void FrameReader::close_frame() {
  std::shared_ptr<InFrame> frame = std::move(filling_);
  filling_.reset();
  frames_.push_back(frame);
  waiting_bytes_ += frame->memory();
  if (frame->header.codec != Codec::none) {
    frame->raw.resize(frame->header.raw_bytes);  // here: a thread of the pool takes no lock of the allocator
    return pool_->submit(link_, std::move(frame), done_);
  }
  frame->raw = std::move(frame->packed);
  frame->done = true;
}

// Returns false if in_ has no more to parse at present, or a frame is passed on as it comes.
bool FrameReader::parse_step() {
  if (filling_) {
    filling_->arrived += move(filling_->packed.data() + filling_->arrived,
                              filling_->packed.size() - filling_->arrived);
    if (filling_->arrived < filling_->packed.size()) return false;
    close_frame();
    return true;
  }
  if (wrong_ || plain_left_ > 0 || waiting() < header_bytes) return false;
  auto header = decode_frame_header(ByteSpan(in_).subspan(in_begin_, header_bytes), accepted_);
  if (!header) {
    wrong_ = header.error();
    return false;
  }
  in_begin_ += header_bytes;
  if (header->codec == Codec::none && frames_.empty()) {
    plain_left_ = header->raw_bytes;
    return false;
  }
  filling_ = std::make_shared<InFrame>();
  filling_->header = *header;
  filling_->packed.resize(header->packed_bytes);
  return true;
}

Status FrameReader::give_to(const iovec& into, std::size_t& given) {
  auto* to = static_cast<std::byte*>(into.iov_base);
  std::size_t all = 0;
  while (all < into.iov_len) {
    std::size_t n = 0;
    if (plain_left_ > 0) {
      n = move(to + all, std::min(into.iov_len - all, plain_left_));
      plain_left_ -= n;
    } else if (!frames_.empty() && frames_.front()->done) {
      InFrame& frame = *frames_.front();
      if (!frame.unpacked && given + all > 0) break;  // what came before it is given first
      TL_TRY(frame.unpacked);
      n = std::min(into.iov_len - all, frame.raw.size() - frame.given);
      std::memcpy(to + all, frame.raw.data() + frame.given, n);
      frame.given += n;
      if (frame.given == frame.raw.size()) {
        waiting_bytes_ -= frame.memory();
        frames_.pop_front();
      }
    }
    all += n;
    while (has_room() && parse_step()) {
    }
    if (n == 0 && (plain_left_ == 0 || waiting() == 0)) break;
  }
  given += all;
  return {};
}

Status FrameReader::give(Place into, std::size_t& given) {
  for (const iovec& each : into) {
    std::size_t before = given;
    TL_TRY(give_to(each, given));
    if (given - before < each.iov_len) break;
  }
  return {};
}

// The next frames are probably passed on as they come: the first header goes to in_, and all bytes behind it
// into the owner's memory. There, content is moved over the headers between. What begins another frame goes
// to in_.
Status FrameReader::fill_by_guess(const iovec& into, std::size_t& given) {
  auto* at = static_cast<std::byte*>(into.iov_base);
  iovec places[] = {{in_.data(), header_bytes}, {at, std::min(into.iov_len, guess_bytes)}};
  TL_TRY_ASSIGN(Stream::Got got, below_.read(places));
  below_ready_ = got.bytes == header_bytes + places[1].iov_len;
  ended_ = got.ended;
  line_bytes_ += got.bytes;
  in_end_ = std::min(got.bytes, header_bytes);
  if (got.bytes <= header_bytes) return {};
  std::size_t end = got.bytes - header_bytes, next = 0, out = 0;
  for (const std::byte* header_at = in_.data();;) {
    auto header = decode_frame_header({header_at, header_bytes}, accepted_);
    if (!header || header->codec != Codec::none) {
      std::memmove(in_.data(), header_at, header_bytes);
      break;
    }
    in_end_ = 0;
    std::size_t here = std::min<std::size_t>(end - next, header->raw_bytes);
    if (out < next) std::memmove(at + out, at + next, here);
    out += here;
    next += here;
    plain_left_ = header->raw_bytes - here;
    if (end - next < header_bytes) break;
    header_at = at + next;
    next += header_bytes;
    in_end_ = header_bytes;
  }
  std::memcpy(in_.data() + in_end_, at + next, end - next);
  in_end_ += end - next;
  given += out;
  return {};
}

// One read of the stream below. What belongs to one place goes there without a copy.
Status FrameReader::fill(Place into, std::size_t& given) {
  if (in_begin_ > 0) {
    std::memmove(in_.data(), in_.data() + in_begin_, waiting());
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  if (in_end_ == 0 && plain_left_ == 0 && !filling_ && frames_.empty() && !into.empty())
    return fill_by_guess(into.front(), given);
  std::vector<iovec> places;
  std::size_t direct = 0;
  auto add = [&](std::byte* at, std::size_t bytes) {
    if (bytes > 0) places.push_back({at, bytes});
    direct += bytes;
  };
  if (in_end_ == 0 && plain_left_ > 0) {
    for (const iovec& v : into)
      add(static_cast<std::byte*>(v.iov_base), std::min(v.iov_len, plain_left_ - direct));
  } else if (in_end_ == 0 && filling_) {
    add(filling_->packed.data() + filling_->arrived, filling_->packed.size() - filling_->arrived);
  }
  places.push_back({in_.data() + in_end_, in_.size() - in_end_});
  std::size_t room = 0;
  for (const iovec& v : places) room += v.iov_len;
  TL_TRY_ASSIGN(Stream::Got got, below_.read(places));
  below_ready_ = got.bytes == room;
  ended_ = got.ended;
  line_bytes_ += got.bytes;
  direct = std::min(direct, got.bytes);
  in_end_ += got.bytes - direct;
  if (plain_left_ > 0 && direct > 0) {
    plain_left_ -= direct;
    given += direct;
  } else if (filling_) {
    filling_->arrived += direct;
  }
  return {};
}

Result<Stream::Got> FrameReader::read(Place into) {
  Stream::Got got;
  TL_TRY(give(into, got.bytes));
  if (got.bytes == 0 && wants_input()) {
    TL_TRY(fill(into, got.bytes));
    if (got.bytes == 0) TL_TRY(give(into, got.bytes));
  }
  raw_bytes_ += got.bytes;
  if (got.bytes == 0 && frames_.empty() && wrong_) return std::unexpected(*wrong_);
  got.ended = ended_ && got.bytes == 0 && frames_.empty();
  end_told_ = end_told_ || got.ended;
  return got;
}

bool FrameReader::has_input() const {
  if (below_ready_ && wants_input()) return true;
  if (!frames_.empty()) return frames_.front()->done;
  if (wrong_) return true;
  bool ends = ended_ && !end_told_;
  if (plain_left_ > 0 || filling_) return waiting() > 0 || ends;
  return waiting() >= header_bytes || ends;
}

void FrameReader::tell(PackingStatus& status) const {
  status.in_raw = raw_bytes_;
  status.in_line = line_bytes_;
}

}  // namespace twinloft::repl::stream
