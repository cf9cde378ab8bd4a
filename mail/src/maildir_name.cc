#include "twinloft/mail/maildir_name.h"

#include <fmt/format.h>

#include <algorithm>

namespace twinloft::mail {

namespace {
constexpr std::string_view flags_mark = ":2,";
}

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

std::string with_sizes(std::string_view unique, std::uint64_t bytes, std::uint64_t crlf_bytes) {
  return fmt::format("{},S={},W={}", unique, bytes, crlf_bytes);
}

std::string base_name(std::string_view name) {
  return std::string(name.substr(0, name.find(flags_mark)));
}

std::string standard_flags(std::string_view name) {
  std::size_t at = name.find(flags_mark);
  std::string out;
  if (at == name.npos) return out;
  for (char c : name.substr(at + flags_mark.size()))
    if (std::string_view("DFPRST").find(c) != std::string_view::npos && out.find(c) == out.npos) out += c;
  std::sort(out.begin(), out.end());
  return out;
}

std::string with_flags(std::string_view base, std::string_view flags) {
  return std::string(base).append(flags_mark).append(flags);
}

}  // namespace twinloft::mail
