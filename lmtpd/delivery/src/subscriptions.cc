#include "subscriptions.h"

#include <algorithm>
#include <cerrno>

namespace twinloft::lmtpd {

namespace {

constexpr std::string_view version_2 = "V\t2\n";
constexpr const char* file_name = "subscriptions";
constexpr const char* lock_name = "subscriptions.lock";
constexpr std::size_t file_bytes_max = 4u << 20;

bool has_line(std::string_view file, std::string_view line) {
  while (!file.empty()) {
    std::size_t end = std::min(file.find('\n'), file.size());
    if (file.substr(0, end) == line) return true;
    file.remove_prefix(std::min(end + 1, file.size()));
  }
  return false;
}

Status replace(FileOps& ops, int maildir, int lock, std::string_view folder) {
  auto old = ops.read_file(maildir, file_name, file_bytes_max);
  if (!old && old.error().sys != ENOENT) return std::unexpected(old.error());
  auto changed = add_subscription(old ? *old : std::string(), folder);
  if (!changed) return ops.unlink(maildir, lock_name);
  TL_TRY(ops.write(lock, as_bytes(*changed)));
  TL_TRY(ops.sync_file(lock));
  return ops.replace(maildir, lock_name, file_name);
}

}  // namespace

std::optional<std::string> add_subscription(std::string_view file, std::string_view folder) {
  std::string out(file);
  if (out.empty()) out = std::string(version_2) + "\n";
  if (!out.ends_with('\n')) out += '\n';  // before its version is looked at
  std::string line(folder.substr(1));
  if (out.starts_with(version_2)) std::ranges::replace(line, '.', '\t');
  if (has_line(out, line)) return std::nullopt;
  return out + line + '\n';
}

Status subscribe(FileOps& ops, int maildir, std::string_view folder) {
  auto lock = ops.create_file(maildir, lock_name);
  if (!lock && lock.error().sys == EEXIST) return fail(Errc::unavailable, "{}: another program holds it", lock_name);
  if (!lock) return std::unexpected(lock.error());
  Status done = replace(ops, maildir, lock->get(), folder);
  if (!done) (void)ops.unlink(maildir, lock_name);
  return done;
}

}  // namespace twinloft::lmtpd
