#include "twinloft/lmtpd/proto/error_reply.h"

#include <cerrno>
#include <optional>
#include <utility>

namespace twinloft::lmtpd {

namespace {
constexpr std::size_t reply_text_bytes_max = 400;  // a reply line of RFC 5321 section 4.5.3.1.5 has 512

// The reply to a temporary lack of descriptors or memory.
std::optional<Reply> reply_of_shortage(const Error& error) {
  if (error.sys != EMFILE && error.sys != ENFILE && error.sys != ENOMEM) return std::nullopt;
  return Reply{451, "4.3.2", "The mail system is out of open files or memory, try again later"};
}
}  // namespace

Reply reply_of_error(const Error& error) {
  if (auto shortage = reply_of_shortage(error)) return *std::move(shortage);
  switch (error.sys) {
    case ENOSPC:
      return {452, "4.3.1", "The mail system has no space left"};
    case EDQUOT:
      return {452, "4.2.2", "A disk quota of the mail system is exceeded"};
    case EROFS:
      return {451, "4.3.0", "The mail spool cannot be written to"};
    case EACCES:
    case EPERM:
    case ELOOP:
    case EXDEV:
    case ENAMETOOLONG:
    case ENOTDIR:
      return {451, "4.3.5", "The mail system is not configured for this mailbox"};
    default:
      break;
  }
  if (error.code == Errc::denied) return {451, "4.3.5", "The mail system is not configured for this mailbox"};
  if (error.code == Errc::unavailable) return {451, "4.3.0", "The mail spool is temporarily unavailable"};
  return {451, "4.3.0", "The message could not be stored, try again later"};
}

Reply reply_of_unkept(const Error& error) {
  if (auto shortage = reply_of_shortage(error)) return *std::move(shortage);
  if (error.code == Errc::exhausted) return {452, "4.3.1", "No room for the message now, try again later"};
  return {451, "4.3.0", "The message could not be kept, try again later"};
}

std::string clean_reply_text(std::string_view text) {
  auto blank = [](unsigned char c) { return c <= 0x20 || c == 0x7f; };
  while (!text.empty() && blank(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && blank(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  std::string out(text.substr(0, reply_text_bytes_max));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e)
      c = c == '\t' ? ' ' : '?';
  return out;
}

}  // namespace twinloft::lmtpd
