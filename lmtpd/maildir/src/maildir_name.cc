#include "maildir_name.h"

#include <fmt/format.h>

namespace twinloft::lmtpd {

std::string clean_host(std::string_view host) {
  std::string out;
  for (unsigned char c : host.substr(0, 100)) {
    if (c == '/' || c == ':' || c == ',' || c <= 0x20 || c >= 0x7f)
      out += fmt::format("\\{:03o}", c);
    else
      out += static_cast<char>(c);
  }
  return out.empty() ? "localhost" : out;
}

std::string MaildirNames::next(WallTime now) {
  return fmt::format("{}.M{}P{}Q{}.{}", now.seconds, now.microseconds, pid_,
                     sequence_.fetch_add(1, std::memory_order_relaxed), host_);
}

std::string with_sizes(std::string_view unique, const StoredSize& size) {
  return fmt::format("{},S={},W={}", unique, size.bytes, size.crlf_bytes);
}

}  // namespace twinloft::lmtpd
