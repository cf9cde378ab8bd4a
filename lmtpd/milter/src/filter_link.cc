#include "twinloft/lmtpd/milter/filter_link.h"

#include <algorithm>
#include <array>

namespace twinloft::lmtpd::milter {

namespace {

constexpr Instant no_bound{INT64_MAX};

}  // namespace

Status FilterLink::flush(Instant deadline) {
  if (broken_) return fail(Errc::unavailable, "the connection is broken");
  if (collected_.empty()) return {};
  Status written = stream_->write(collected_, deadline);
  broken_ = !written;
  collected_.clear();
  return written;
}

Result<Heard> FilterLink::hear(Instant deadline) {
  for (;;) {
    TL_TRY_ASSIGN(std::optional<Packet> packet, reader_.next());
    if (packet) return conversation_.hear(*packet);
    std::array<std::byte, read_bytes> bytes;
    TL_TRY_ASSIGN(std::size_t count, stream_->read(bytes, deadline));
    reader_.add(as_text(ByteSpan(bytes).first(count)));
  }
}

Status FilterLink::open() {
  Instant deadline = in(spec_.command_timeout, no_bound);
  collected_ = conversation_.open();
  TL_TRY(flush(deadline));
  TL_TRY(hear(deadline));
  return {};
}

Result<Verdict> FilterLink::say(const Event& event, const Macros& macros, std::chrono::milliseconds time,
                                Instant most, const TakeChange* take) {
  if (auto verdict = conversation_.say(event, macros, collected_)) {
    if (collected_.size() >= collected_max) TL_TRY(flush(in(time, most)));
    return *verdict;
  }
  // Otherwise it would count as the answer to this event.
  if (reader_.has_rest()) return fail(Errc::invalid, "the filter says something that nothing asked for");
  TL_TRY(flush(in(time, most)));
  Instant deadline = in(time, most);
  for (;;) {
    TL_TRY_ASSIGN(Heard heard, hear(deadline));
    if (Verdict* verdict = std::get_if<Verdict>(&heard)) return std::move(*verdict);
    // A filter that never stops to talk lets no read wait.
    if (clock_.now() >= deadline) return fail(Errc::timeout, "no verdict in time");
    if (Change* change = std::get_if<Change>(&heard)) TL_TRY((*take)(std::move(*change)));
    if (std::holds_alternative<Progress>(heard)) deadline = in(time, most);
  }
}

Result<Verdict> FilterLink::say(const Event& event, const Macros& macros, Instant most) {
  return say(event, macros, spec_.command_timeout, most, nullptr);
}

Result<Verdict> FilterLink::end_message(const Macros& macros, Instant most, const TakeChange& take) {
  return say(EndOfBody{}, macros, spec_.message_timeout, most, &take);
}

Status FilterLink::abort() {
  conversation_.abort(collected_);
  return flush(clock_.now());
}

Result<bool> FilterLink::begin_another_client() {
  if (!conversation_.quit_for_another_client(collected_)) return false;
  TL_TRY(flush(in(spec_.command_timeout, no_bound)));
  return true;
}

void FilterLink::quit() {
  if (broken_ || conversation_.is_broken() || conversation_.awaits_answer()) return;
  conversation_.quit(collected_);
  (void)flush(clock_.now());
}

void FilterLink::free_memory() {
  if (collected_.empty() && collected_.capacity() > kept_max) std::string().swap(collected_);
  reader_.free_memory(kept_max);
}

}  // namespace twinloft::lmtpd::milter
