#include "twinloft/base/result.h"

#include "twinloft/base/errno_text.h"

#include <cerrno>
#include <cstring>

namespace twinloft {

std::string_view to_string(Errc code) {
  switch (code) {
    case Errc::invalid:
      return "invalid";
    case Errc::not_found:
      return "not found";
    case Errc::io:
      return "I/O error";
    case Errc::corrupt:
      return "corrupt";
    case Errc::unavailable:
      return "unavailable";
    case Errc::timeout:
      return "timeout";
    case Errc::denied:
      return "denied";
    case Errc::exhausted:
      return "limit reached";
    case Errc::conflict:
      return "conflict";
    case Errc::internal:
      return "internal";
  }
  return "unknown";
}

namespace {
Errc code_of(int sys) {
  switch (sys) {
    case ENOENT:
    case ENOTDIR:
      return Errc::not_found;
    case EACCES:
    case EPERM:
      return Errc::denied;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return Errc::exhausted;
    case ETIMEDOUT:
      return Errc::timeout;
    case EAGAIN:
    case ECONNREFUSED:
    case EADDRINUSE:
    case EBUSY:
      return Errc::unavailable;
    case EINVAL:
      return Errc::invalid;
    default:
      return Errc::io;
  }
}
}  // namespace

// The GNU strerror_r may return a static string instead of filling the buffer.
std::string errno_text(int error) {
  char buffer[128];
  return strerror_r(error, buffer, sizeof buffer);
}

std::unexpected<Error> fail_errno_text(int sys, std::string message) {
  message += ": " + errno_text(sys);
  return std::unexpected<Error>(Error{code_of(sys), std::move(message), sys});
}

}  // namespace twinloft
