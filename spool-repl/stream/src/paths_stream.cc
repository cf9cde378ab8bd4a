#include "twinloft/spool-repl/stream/paths_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/chunks/chunk.h"
#include "twinloft/spool-repl/chunks/chunk_input.h"
#include "twinloft/spool-repl/chunks/chunk_output.h"

namespace twinloft::repl::stream {

using chunks::ChunkHeader;
using chunks::ChunkInput;
using chunks::ChunkOutput;

namespace {
using Kind = ChunkHeader::Kind;
constexpr std::size_t read_bytes = 256u << 10;
constexpr std::uint64_t tell_bytes = 256u << 10;         // taken, until the other side hears of them at once
constexpr std::uint32_t shared_chunk_bytes = 64u << 10;  // with several paths in use
constexpr unsigned ticks_of_patience = 5;                // at least, also if they come late
constexpr Duration tick_max = std::chrono::milliseconds(100);
}  // namespace

struct PathsStream::Path {
  unsigned id;  // of this stream, never used again
  unsigned number;
  std::unique_ptr<Stream> stream;
  bool lost = false;
  // Input that is not parsed yet.
  std::vector<std::byte> in = {};
  std::size_t in_begin = 0, in_end = 0;
  // Output: a head, then the rest of a chunk. Control headers wait until the chunk is written.
  std::vector<std::byte> head = {}, control = {};
  std::size_t head_begin = 0;
  std::optional<ChunkOutput::Chunk> chunk = {};
  std::size_t chunk_done = 0;
  bool full = false;
  std::optional<ChunkHeader> open = {};  // its bytes have not all arrived. Position and bytes: of the rest
  bool trial_seen = false, trial_taken = false, was_told = false;
  std::uint64_t sent = 0, arrived = 0;  // bytes
  std::uint64_t arrived_before = 0;     // at the last tick
  Duration quiet{};                     // without a byte, while another path had one

  bool usable() const { return trial_seen && trial_taken && !lost; }
};

PathsStream::PathsStream(ports::Loop& loop, std::unique_ptr<Stream> first) : loop_(loop) {
  paths_.push_back(std::make_unique<Path>(Path{next_id_++, 0, std::move(first)}));
}

PathsStream::~PathsStream() {
  if (timer_) loop_.cancel(timer_);
}

// Output that is kept; input that has arrived early, with the overhead of its pieces; what each path reads,
// and what TLS holds of it.
std::uint64_t paths_stream_bytes_max(std::size_t paths) {
  return 4 * chunks::paths_window_bytes + paths * (2 * read_bytes + (1u << 20));
}

// ---- paths

void PathsStream::begin(unsigned number, PathUse use, Duration patience, PathEvents events, ByteSpan received,
                        ByteSpan unsent) {
  TL_CHECK(!has_begun() && paths_.size() == 1 && state() == State::open);
  output_ = std::make_unique<ChunkOutput>(chunks::paths_window_bytes, chunks::paths_unsent_bytes);
  input_ = std::make_unique<ChunkInput>(chunks::paths_window_bytes);
  use_ = use;
  patience_ = patience;
  tick_ = std::clamp<Duration>(patience / ticks_of_patience, std::chrono::milliseconds(1), tick_max);
  path_events_ = std::move(events);
  Path& p = *paths_.front();
  p.number = number;
  p.trial_seen = p.trial_taken = p.was_told = true;  // the owner makes its own trial, which a stream with one
                                                     // path needs
  take_over(p, received, unsent);
  ticked_ = loop_.now();
  timer_ = loop_.after(tick_, [this] { on_tick(); });
  take_chunks(p);
  pump();
  call_again();
}

void PathsStream::add(unsigned number, std::unique_ptr<Stream> path, ByteSpan received, ByteSpan unsent) {
  TL_CHECK(has_begun());
  if (closed_ || broken_ || ended_) return path->close();
  auto at = std::find_if(paths_.begin(), paths_.end(), [&](const auto& p) { return p->number >= number; });
  Path* old = at != paths_.end() && (*at)->number == number ? at->get() : nullptr;
  Path& p = **paths_.insert(at, std::make_unique<Path>(Path{next_id_++, number, std::move(path)}));
  p.stream->set_events({{}, [this, &p](unsigned ready) { on_path(p, ready); }});
  take_over(p, received, unsent);
  if (old) lose(*old, "replaced by a newer connection");
  say(p, {.kind = Kind::trial, .bytes = chunks::path_trial_bytes});
  take_chunks(p);
  pump();
  tell();
}

void PathsStream::take_over(Path& p, ByteSpan received, ByteSpan unsent) {
  p.control.assign(unsent.begin(), unsent.end());
  p.in.assign(received.begin(), received.end());
  p.in_end = p.in.size();
  p.arrived = p.in_end;
}

void PathsStream::set_number_of_first(unsigned number) {
  auto first = std::find_if(paths_.begin(), paths_.end(), [](const auto& p) { return p->id == 0; });
  if (first == paths_.end()) return;
  (*first)->number = number;
  std::stable_sort(paths_.begin(), paths_.end(),
                   [](const auto& a, const auto& b) { return a->number < b->number; });
}

bool PathsStream::has_path(unsigned number) const {
  return std::any_of(paths_.begin(), paths_.end(), [&](const auto& p) { return p->number == number; });
}

void PathsStream::close_path(unsigned number, const std::string& reason) {
  for (auto& p : paths_)
    if (p->number == number && usable_paths() > (p->usable() ? 1u : 0u)) {
      say(*p, {.kind = Kind::leave});
      send(*p, false);
      lose(*p, reason, Loss::on_purpose);
      break;
    }
  pump();
  call_again();
}

std::unique_ptr<Stream> PathsStream::release() {
  TL_CHECK(!has_begun());
  closed_ = true;
  return std::move(paths_.front()->stream);
}

std::vector<PathsStream::PathState> PathsStream::path_states() const {
  std::vector<PathState> out;
  for (const auto& p : paths_)
    out.push_back({p->number, p->usable(), p->sent, p->arrived, p->stream->line()});
  return out;
}

void PathsStream::for_each_path(const std::function<void(const Stream&)>& what) const {
  for (const auto& p : paths_) what(*p->stream);
}

std::size_t PathsStream::usable_paths() const {
  return static_cast<std::size_t>(
      std::count_if(paths_.begin(), paths_.end(), [](const auto& p) { return p->usable(); }));
}

// The path may be on the call stack, so it goes in a later turn.
void PathsStream::lose(Path& path, const std::string& reason, Loss how) {
  if (path.lost) return;
  LostPath news{path.number, reason, path.usable(), how == Loss::on_purpose};
  path.lost = true;
  stuck_ = path.stream->is_stuck();
  path.stream->close();
  output_->lost(path.id);
  auto at = std::find_if(paths_.begin(), paths_.end(), [&](const auto& p) { return p.get() == &path; });
  gone_.push_back(std::move(*at));
  paths_.erase(at);
  bool last = paths_.empty();
  if (last && (how == Loss::ended || input_->is_ending()))
    ended_ = true;
  else if (last)
    broken_ = Error{Errc::io, reason};
  bool told = !last && !input_->is_ending() && !has_path(path.number);  // it may have been replaced
  loop_.post([this, alive = std::weak_ptr(alive_), news = std::move(news), told] {
    if (alive.expired()) return;
    gone_.clear();
    if (told && path_events_.lost && !closed_ && !ended_ && !broken_) path_events_.lost(news);
  });
}

// Much more often than patience lasts.
void PathsStream::on_tick() {
  timer_ = loop_.after(tick_, [this] { on_tick(); });
  Duration passed = loop_.now() - std::exchange(ticked_, loop_.now());
  bool any_heard = std::any_of(paths_.begin(), paths_.end(),
                               [](const auto& p) { return p->arrived != p->arrived_before; });
  for (std::size_t i = 0; i < paths_.size();) {
    Path* p = paths_[i].get();
    judge(*p, any_heard ? passed : Duration::zero());
    if (!p->lost) ++i;
  }
  for (auto& p : paths_) say(*p, {});
  pump();
  tell();
}

// The side that hears nothing gives the path up. A path that drops what this side sends is given up over
// there. A late tick counts for the time that has passed, so that a busy machine does not lose the peer
// first. It does not count for more than its share, since the process may have been suspended.
void PathsStream::judge(Path& p, Duration silence) {
  bool heard = p.arrived != std::exchange(p.arrived_before, p.arrived);
  bool others_usable = usable_paths() > (p.usable() ? 1u : 0u);
  if (heard)
    p.quiet = Duration::zero();
  else
    p.quiet += std::min<Duration>(silence, patience_ / ticks_of_patience);
  if (!others_usable) return;
  auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience_).count();
  if (p.quiet >= patience_) lose(p, fmt::format("nothing has arrived by it for {} ms", ms));
}

// ---- input

void PathsStream::on_path(Path& path, unsigned ready) {
  if (!has_begun()) return events_.ready(ready);
  if (path.lost) return;
  if (ready & writable) {
    path.full = false;
    pump();
  }
  if (!path.lost && (ready & readable)) receive(path);
  pump();
  tell();
}

void PathsStream::receive(Path& p) {
  if (p.in_begin > 0) {
    std::memmove(p.in.data(), p.in.data() + p.in_begin, p.in_end - p.in_begin);
    p.in_end -= p.in_begin;
    p.in_begin = 0;
  }
  std::size_t size = chunks::chunk_header_bytes + read_bytes;
  if (p.in.size() < size) p.in.resize(size);
  iovec room{p.in.data() + p.in_end, p.in.size() - p.in_end};
  auto got = p.stream->read({&room, 1});
  if (!got) return lose(p, got.error().message);
  if (got->ended) return lose(p, "the other side has closed it", Loss::ended);
  p.in_end += got->bytes;
  p.arrived += got->bytes;
  take_chunks(p);
}

void PathsStream::take_chunks(Path& p) {
  while (!p.lost && take_chunk(p)) {
  }
}

// Data is passed on as it comes: a part of a chunk is a sign of life, too.
bool PathsStream::take_chunk(Path& p) {
  ByteSpan have = ByteSpan(p.in).subspan(p.in_begin, p.in_end - p.in_begin);
  if (!p.open) {
    if (have.size() < chunks::chunk_header_bytes) return false;
    auto header = chunks::decode_chunk_header(have.first(chunks::chunk_header_bytes));
    Status taken = header ? take(p, *header) : Status(std::unexpected(header.error()));
    if (!taken) lose(p, taken.error().message);
    if (p.lost) return false;
    p.in_begin += chunks::chunk_header_bytes;
    have = have.subspan(chunks::chunk_header_bytes);
    p.open = *header;
  }
  ByteSpan part = have.first(std::min<std::size_t>(have.size(), p.open->bytes));
  if (p.open->kind == Kind::data && !part.empty())
    if (Status added = input_->add(p.open->position, part); !added)
      return lose(p, added.error().message), false;
  p.in_begin += part.size();
  p.open->position += part.size();
  p.open->bytes -= static_cast<std::uint32_t>(part.size());
  if (p.open->bytes > 0) return false;
  if (p.open->kind == Kind::trial) {
    p.trial_seen = true;
    say(p, {.kind = Kind::trial_taken});
    tell_usable(p);
  }
  p.open.reset();
  return true;
}

Status PathsStream::take(Path& p, const ChunkHeader& h) {
  TL_TRY(output_->taken(h.taken));
  if (h.kind == Kind::end) input_->end_at(h.position);
  if (h.kind == Kind::leave && paths_.size() > 1)
    lose(p, "the other side does not use it any more", Loss::on_purpose);
  if (h.kind == Kind::trial_taken) {
    p.trial_taken = true;
    tell_usable(p);
  }
  return {};
}

void PathsStream::tell_usable(Path& p) {
  if (!p.usable() || std::exchange(p.was_told, true)) return;
  if (path_events_.usable) path_events_.usable(p.number);
}

// ---- output

void PathsStream::say(Path& p, ChunkHeader header) {
  if (header.kind == Kind::ping && !p.control.empty()) return;  // it says as much
  header.taken = taken_told_ = input_->taken();
  auto bytes = chunks::encode_chunk_header(header);
  p.control.insert(p.control.end(), bytes.begin(), bytes.end());
  p.control.resize(p.control.size() + header.bytes);
}

void PathsStream::pump() {
  if (closed_) return;
  for (std::size_t i = 0; i < paths_.size();) {
    Path* p = paths_[i].get();
    if (!p->full && (!p->control.empty() || !p->head.empty() || p->chunk)) send(*p, false);
    if (!p->lost) ++i;  // a path that fails leaves the list
  }
  while (output_->has_next())
    if (Path* p = choose())
      send(*p, true);
    else
      break;
}

PathsStream::Path* PathsStream::choose() {
  Path* best = nullptr;
  double best_time = 0;
  for (auto& p : paths_) {
    if (!p->usable()) continue;
    if (use_ == PathUse::spares) return p->full ? nullptr : p.get();
    if (p->full) continue;
    // When the chunk would arrive: a round trip for each window before it. Without a line: by what it has
    // had.
    auto line = p->stream->line();
    double queued = line ? static_cast<double>(line->queued_bytes) : static_cast<double>(p->sent);
    double window = line && line->window_bytes > 0 ? static_cast<double>(line->window_bytes)
                                                   : shared_chunk_bytes;
    double trip = line ? static_cast<double>(std::max<std::int64_t>(line->round_trip.count(), 1)) : 1;
    double time = trip * (1 + queued / window);
    if (best && time >= best_time) continue;
    best = p.get();
    best_time = time;
  }
  return best;
}

// As much as the path accepts of what it has begun. Then, if wanted, a chunk more.
void PathsStream::send(Path& p, bool with_chunk) {
  while (!p.lost && !p.full) {
    if (!p.chunk) {
      p.head.insert(p.head.end(), p.control.begin(), p.control.end());
      p.control.clear();
      if (with_chunk && output_->has_next()) {
        with_chunk = false;
        bool shared = use_ == PathUse::together && usable_paths() > 1;
        p.chunk = output_->next(p.id, shared ? shared_chunk_bytes : chunks::chunk_bytes_max);
        p.chunk_done = 0;
        taken_told_ = input_->taken();
        auto header = chunks::encode_chunk_header(
            {Kind::data, p.chunk->bytes, p.chunk->position, taken_told_});
        p.head.insert(p.head.end(), header.begin(), header.end());
      }
    }
    if (p.head.empty() && !p.chunk) break;
    if (!send_part(p)) break;
  }
  if (!p.lost) p.stream->want(p.full ? readable | writable : unsigned{readable});
}

// Returns false after an error.
bool PathsStream::send_part(Path& p) {
  parts_.clear();
  std::size_t all = 0;
  auto add = [&](ByteSpan part) {
    parts_.push_back({const_cast<std::byte*>(part.data()), part.size()});
    all += part.size();
  };
  if (!p.head.empty()) add(ByteSpan(p.head).subspan(p.head_begin));
  if (p.chunk) output_->for_each_part(*p.chunk, p.chunk_done, add);
  auto written = p.stream->write(parts_);
  if (!written) return lose(p, written.error().message), false;
  p.full = *written < all;
  p.sent += *written;
  std::size_t of_head = std::min(*written, p.head.size() - p.head_begin);
  p.head_begin += of_head;
  if (p.head_begin == p.head.size()) p.head.clear(), p.head_begin = 0;
  p.chunk_done += *written - of_head;
  if (p.chunk && p.head.empty() && p.chunk_done == p.chunk->bytes) {
    output_->finished(*p.chunk);
    p.chunk.reset();
  }
  return true;
}

// ---- as a stream

void PathsStream::start(unsigned interest, Events events) {
  events_ = std::move(events);
  wanted_ = interest;
  Path& p = *paths_.front();
  p.stream->start(interest, {[this](Status opened) { events_.opened(std::move(opened)); },
                             [this, &p](unsigned ready) { on_path(p, ready); }});
}

Stream::State PathsStream::state() const {
  if (closed_) return State::closed;
  return has_begun() ? State::open : paths_.front()->stream->state();
}

void PathsStream::want(unsigned interest) {
  wanted_ = interest;
  if (!has_begun()) return paths_.front()->stream->want(interest);
  bool has_input = input_->has_bytes() || input_->is_at_end() || broken_ || ended_;
  if (((interest & readable) && has_input) || ((interest & writable) && output_->room() > 0)) call_again();
}

// Tells the owner what it waits for. The last call: the owner may close this stream.
void PathsStream::tell() {
  if (closed_) return;
  unsigned ready = 0;
  if (input_->has_bytes() || input_->is_at_end()) ready |= readable;
  if (full_ && output_->room() > 0) ready |= writable;
  ready &= wanted_;
  if (broken_ || ended_) ready |= readable | writable;
  if (ready) events_.ready(ready);
}

// In a later turn, for bytes or room that no path announces.
void PathsStream::call_again() {
  if (std::exchange(again_, true)) return;
  loop_.post([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    again_ = false;
    if (closed_) return;
    unsigned ready = wanted_ & readable && (input_->has_bytes() || input_->is_at_end()) ? readable : 0u;
    if (wanted_ & writable && output_->room() > 0) ready |= writable;
    if (broken_ || ended_) ready |= readable | writable;
    if (ready) events_.ready(ready);
  });
}

Result<Stream::Got> PathsStream::read(std::span<const iovec> into) {
  if (!has_begun()) return paths_.front()->stream->read(into);
  Got got{input_->read(into), false};
  if (got.bytes > 0) {
    if (input_->taken() - taken_told_ >= tell_bytes) tell_taken();
    if (input_->has_bytes() || input_->is_at_end()) call_again();
    return got;
  }
  if (input_->is_at_end() || ended_) return Got{0, true};
  if (broken_) return std::unexpected(*broken_);
  return got;
}

// By a path that brings it at once.
void PathsStream::tell_taken() {
  for (auto& p : paths_)
    if (p->usable() && !p->full) {
      say(*p, {});
      return pump();
    }
}

Result<std::size_t> PathsStream::write(std::span<iovec> from) {
  if (!has_begun()) return paths_.front()->stream->write(from);
  if (broken_) return std::unexpected(*broken_);
  std::size_t bytes = 0;
  for (const iovec& v : from) bytes += v.iov_len;
  std::size_t accepted = 0;
  while (std::size_t more = output_->accept(from, accepted)) {
    accepted += more;
    pump();
  }
  full_ = accepted < bytes;
  return accepted;
}

void PathsStream::end_output() {
  if (!has_begun()) return paths_.front()->stream->end_output();
  for (auto& p : paths_) say(*p, {.kind = Kind::end, .position = output_->end()});
  pump();
}

// The other side learns that it is the end of the whole, and not the loss of paths.
void PathsStream::close() {
  if (closed_) return;
  if (has_begun()) end_output();
  closed_ = true;
  if (timer_) loop_.cancel(timer_);
  timer_ = 0;
  for (auto& p : paths_)
    if (p->stream) p->stream->close();
}

bool PathsStream::is_stuck() const {
  if (paths_.empty()) return stuck_;
  return std::all_of(paths_.begin(), paths_.end(), [](const auto& p) { return p->stream->is_stuck(); });
}

bool PathsStream::has_unsent() const {
  if (has_begun() && output_->has_next()) return true;
  return std::any_of(paths_.begin(), paths_.end(),
                     [](const auto& p) { return p->chunk || !p->head.empty() || p->stream->has_unsent(); });
}

}  // namespace twinloft::repl::stream
