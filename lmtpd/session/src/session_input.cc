// Splits the client's input into command lines and parts of messages.
#include <strings.h>

#include <algorithm>
#include <cstring>

#include "twinloft/lmtpd/session/session.h"

namespace twinloft::lmtpd {

// Commands are read in small portions, because unprocessed input is kept in memory. Bytes of a message are
// passed on at once, so they are read in large portions.
std::size_t Session::wants() const {
  static_assert(command_line_bytes_max < waiting_input_max,
                "a line that is too long differs from a line that has not ended");
  if (is<Closed>() || is<InHandshake>() || holds_back_) return 0;
  std::size_t room = waiting_input_max - std::min(kept_.size(), waiting_input_max);
  if (!kept_.empty()) return room;
  if (is<InData>()) return message_input_max;
  if (const InChunk* chunk = std::get_if<InChunk>(&state_))
    return static_cast<std::size_t>(std::min<std::uint64_t>(chunk->command.size, message_input_max)) + room;
  return room;
}

void Session::replies_sent() {
  replies_unsent_ = 0;
  if (std::exchange(holds_back_, false)) resume();
}

void Session::receive(ByteSpan bytes) {
  if (is<Closed>() || is<InHandshake>()) return;
  const bool pending = is<Asking>() || is<Delivering>();
  if (kept_.empty()) kept_.forget();  // spans into it ended with this event
  if (!pending && kept_.empty()) {
    ByteSpan input = bytes;
    process(input);
    return kept_.assign(input);
  }
  kept_.append(bytes);
  if (!pending) resume();
}

// Processes kept input. Spans of body bytes point into it, so the buffer is not moved before the next event.
void Session::resume() {
  ByteSpan input = kept_.rest();
  if (input.empty() || is<Closed>()) return;
  process(input);
  kept_.leave(input.size());
  if (input.empty() && !has_body_to_pass_on()) kept_.forget();
}

bool Session::has_quit_ahead() const {
  constexpr std::string_view quit = "QUIT\r\n";
  std::string_view kept = as_text(kept_.rest());
  if (kept.size() < quit.size() ||
      ::strncasecmp(kept.data() + kept.size() - quit.size(), quit.data(), quit.size()) != 0)
    return false;
  kept.remove_suffix(quit.size());
  return kept.empty() || kept.ends_with("\r\n");
}

void Session::process(ByteSpan& input) {
  holds_back_ = false;
  while (!input.empty()) {
    if (is<AtCommand>() && replies_unsent_ + replies_pending_ >= replies_at_once_max) {
      holds_back_ = true;
      return;
    }
    if (is<InHandshake>())
      input = {};
    else if (is<InData>())
      take_data(input);
    else if (is<InChunk>())
      take_chunk(input);
    else if (!is<AtCommand>() || !take_line(input))
      return;
    leave_if_drained();
  }
}

// Takes one command line; false: the line is not complete yet. Only CR LF ends a line (RFC 5321 section
// 2.3.8). Text behind a bare LF belongs to the same line and is never executed.
bool Session::take_line(ByteSpan& input) {
  if (skipped_line_) return skip_line(input);
  const void* found = std::memchr(input.data(), '\n', input.size());
  std::size_t length = found
                           ? static_cast<std::size_t>(static_cast<const std::byte*>(found) - input.data()) + 1
                           : input.size();
  if (length > command_line_bytes_max) return refuse_line(input, "Line too long");
  if (!found) return false;
  std::string_view line = as_text(input.first(length));
  if (!line.ends_with("\r\n")) return refuse_line(input, "A command ends with CRLF, not with LF alone");
  input = input.subspan(length);
  execute(line.substr(0, line.size() - 2));
  return true;
}

// Refuses the line before its end arrives, so that a person who types gets the reply at once. The remaining
// bytes of the line get no reply.
bool Session::refuse_line(ByteSpan& input, std::string_view why) {
  skipped_line_ = SkippedLine{};
  bool bdat = is_bdat(as_text(input.first(std::min(input.size(), command_line_bytes_max))));
  bad(make_reply(500, "5.5.2", why));
  if (bdat) close_with(421, "4.5.4", "Invalid BDAT: cannot separate its data from commands");
  return !is<Closed>() && skip_line(input);
}

bool Session::skip_line(ByteSpan& input) {
  while (skipped_line_) {
    const void* found = std::memchr(input.data(), '\n', input.size());
    if (!found) {
      if (!input.empty()) skipped_line_->cr = input.back() == std::byte{'\r'};
      input = {};
      return false;
    }
    auto at = static_cast<std::size_t>(static_cast<const std::byte*>(found) - input.data());
    bool cr = at > 0 ? input[at - 1] == std::byte{'\r'} : skipped_line_->cr;
    if (cr)
      skipped_line_.reset();
    else
      skipped_line_ = SkippedLine{};
    input = input.subspan(at + 1);
  }
  return true;
}

}  // namespace twinloft::lmtpd
