#include "twinloft/mail/subscriptions.h"

#include <algorithm>

namespace twinloft::mail {

namespace {

constexpr std::string_view version_2 = "V\t2\n";
constexpr std::int64_t lock_stale_seconds = 30;

bool has_line(std::string_view file, std::string_view line) {
  while (!file.empty()) {
    std::size_t end = std::min(file.find('\n'), file.size());
    if (file.substr(0, end) == line) return true;
    file.remove_prefix(std::min(end + 1, file.size()));
  }
  return false;
}

}  // namespace

std::optional<std::string> add_subscription(std::string_view file, std::string_view folder) {
  std::string out(file);
  if (out.empty()) out = std::string(version_2) + "\n";
  if (!out.ends_with('\n')) out += '\n';  // before the version is checked
  std::string line(folder.substr(1));
  if (out.starts_with(version_2)) std::ranges::replace(line, '.', '\t');
  if (has_line(out, line)) return std::nullopt;
  return out + line + '\n';
}

bool is_stale_lock(std::int64_t changed, std::int64_t now) {
  return changed < now - lock_stale_seconds || changed > now + lock_stale_seconds;
}

}  // namespace twinloft::mail
