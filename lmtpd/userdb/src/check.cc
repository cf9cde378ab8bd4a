#include "twinloft/lmtpd/userdb/check.h"

#include <algorithm>

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t path_bytes_max = 4096;
constexpr std::size_t name_bytes_max = 512;

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}
bool holds_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), is_control);
}

Status check_path(const User& user, const char* field, std::string_view path) {
  if (path.empty() || path.front() != '/')
    return fail(Errc::invalid, "user {}: {} is not an absolute path", user.name, field);
  if (path.size() > path_bytes_max)
    return fail(Errc::invalid, "user {}: {} is longer than {} bytes", user.name, field, path_bytes_max);
  if (holds_control(path)) return fail(Errc::invalid, "user {}: {} holds control bytes", user.name, field);
  for (std::size_t at = 1; at <= path.size();) {
    std::size_t slash = std::min(path.find('/', at), path.size());
    std::string_view part = path.substr(at, slash - at);
    if (part == "." || part == "..")
      return fail(Errc::invalid, "user {}: {} \"{}\" holds a \".\" or \"..\" part", user.name, field, path);
    at = slash + 1;
  }
  return {};
}

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

}  // namespace

bool fits_path(std::string_view part) {
  return !part.empty() && part.size() <= 255 && part != "." && part != ".." && !holds_control(part) &&
         part.find('/') == std::string_view::npos;
}

std::string normal_path(std::string_view path) {
  std::string out;
  bool absolute = path.starts_with('/');
  while (!path.empty()) {
    std::size_t slash = std::min(path.find('/'), path.size());
    std::string_view part = path.substr(0, slash);
    path.remove_prefix(std::min(slash + 1, path.size()));
    if (part.empty() || part == ".") continue;
    if (!out.empty() || absolute) out += '/';
    out += part;
  }
  return out.empty() && absolute ? "/" : out;
}

Status check_user(const User& user) {
  if (user.name.empty() || user.name.size() > name_bytes_max || holds_control(user.name))
    return fail(Errc::invalid, "a user name is empty, longer than {} bytes, or holds control bytes",
                name_bytes_max);
  if (!std::all_of(user.next_hop.begin(), user.next_hop.end(), is_name_byte))
    return fail(Errc::invalid,
                "user {}: the next hop's name holds other bytes than letters, digits, \"-\" and \"_\"",
                user.name);
  if (!user.next_hop.empty()) return {};                  // the other checks are for local deliveries
  constexpr std::uint32_t unchanged = ~std::uint32_t{0};  // (uid_t)-1 means "leave as it is" to setresuid
  if (user.uid == 0 || user.gid == 0 || user.uid == unchanged || user.gid == unchanged)
    return fail(Errc::invalid, "user {}: uid {} and gid {}: mail is never delivered as root", user.name,
                user.uid, user.gid);
  TL_TRY(check_path(user, "home", user.home));
  if (!user.maildir.empty()) TL_TRY(check_path(user, "maildir", user.maildir));
  if (!std::all_of(user.agent.begin(), user.agent.end(), is_name_byte))
    return fail(Errc::invalid,
                "user {}: the agent's name holds other bytes than letters, digits, \"-\" and \"_\"",
                user.name);
  return {};
}

}  // namespace twinloft::lmtpd
