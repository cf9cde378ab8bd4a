// The result of an agent's run as a reply: the exit map, the last output line, and an enhanced code in it
// (docs/lmtpd.md).
#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "twinloft/lmtpd/agents/external.h"
#include "twinloft/lmtpd/proto/error_reply.h"

namespace twinloft::lmtpd {

namespace {

std::string_view last_line(std::string_view output) {
  auto blank = [](char c) { return c == '\n' || c == '\r' || c == ' ' || c == '\t' || c == '\0'; };
  while (!output.empty() && blank(output.back())) output.remove_suffix(1);
  std::size_t lf = output.rfind('\n');
  return lf == std::string_view::npos ? output : output.substr(lf + 1);
}

// The length of "D.S.N" at the start of `text`, before a blank or the end. 0: none.
std::size_t enhanced_length(std::string_view text) {
  auto digits = [&](std::size_t at) {
    std::size_t n = 0;
    while (at + n < text.size() && text[at + n] >= '0' && text[at + n] <= '9') ++n;
    return n;
  };
  if (digits(0) != 1 || (text[0] != '2' && text[0] != '4' && text[0] != '5') || text.size() < 5 ||
      text[1] != '.')
    return 0;
  std::size_t subject = digits(2);
  if (subject < 1 || subject > 3 || 2 + subject >= text.size() || text[2 + subject] != '.') return 0;
  std::size_t detail = digits(3 + subject);
  std::size_t length = 3 + subject + detail;
  if (detail < 1 || detail > 3) return 0;
  return length == text.size() || text[length] == ' ' ? length : 0;
}

// The agent's own code, and the code of its exit status. The agent decides whether a failure is permanent,
// but its output cannot turn a failure into a success, or a success into a failure.
bool wins(std::string_view own, const ExitReply& mapped) {
  bool delivered = mapped.code == 250;
  return (own[0] == '2') == delivered;
}

// A code at the start of the last output line is never part of the text.
Reply with_output(const ExitReply& mapped, std::string_view output, std::string fallback) {
  std::string text = clean_reply_text(last_line(output));
  Reply reply{mapped.code, mapped.enhanced, std::move(fallback)};
  if (std::size_t length = enhanced_length(text); length > 0) {
    if (wins(text, mapped)) {
      if (text[0] != mapped.enhanced[0]) reply.code = text[0] == '4' ? 451 : 550;
      reply.enhanced = text.substr(0, length);
    }
    text = clean_reply_text(std::string_view(text).substr(length));
  }
  if (!text.empty()) reply.text = std::move(text);
  return reply;
}

// The administrator must correct missing or forbidden programs. A shortage of the machine may end by itself.
Reply not_started(const AgentSpec& spec, const RunResult& result) {
  switch (result.value) {
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return {451, "4.3.2", "The mail system is out of open files or memory, try again later"};
    case EAGAIN:
    case ETXTBSY:
    case EIO:
      return {451, "4.3.0", fmt::format("Delivery agent {} could not be started", spec.name)};
    default:
      return {451, "4.3.5", fmt::format("Delivery agent {} cannot be run", spec.name)};
  }
}

}  // namespace

Reply reply_of_run(const AgentSpec& spec, const RunResult& result, bool stdin_was_read) {
  using End = RunResult::End;
  switch (result.end) {
    case End::exited:
      break;
    case End::signalled:
      return {451, "4.3.0", fmt::format("Delivery agent {} was ended by signal {}", spec.name, result.value)};
    case End::timed_out:
      return {451, "4.3.0", fmt::format("Delivery agent {} exceeded its time limit", spec.name)};
    case End::not_started:
      return not_started(spec, result);
    case End::refused:
      return {451, "4.3.5", fmt::format("Delivery agent {} cannot be run for this mailbox", spec.name)};
    case End::busy:
      return {451, "4.3.0", "Too many delivery agents are running"};
    case End::unkillable:
      return {451, "4.3.0", fmt::format("Delivery agent {} does not end", spec.name)};
    case End::lost:
      return {451, "4.3.0", "Delivery agents cannot be run now"};
  }
  ExitReply mapped = spec.exits.of(result.value);
  if (mapped.code == 250 && spec.must_read_stdin && !stdin_was_read)
    return {451, "4.3.0", fmt::format("Delivery agent {} ended without reading the message", spec.name)};
  std::string fallback = mapped.code == 250
                             ? fmt::format("Delivered by {}", spec.name)
                             : fmt::format("Delivery agent {} ended with {}", spec.name, result.value);
  return with_output(mapped, result.output, std::move(fallback));
}

}  // namespace twinloft::lmtpd
