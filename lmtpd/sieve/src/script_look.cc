#include "twinloft/lmtpd/sieve/script_look.h"

#include <algorithm>
#include <cerrno>

namespace twinloft::lmtpd {

namespace {

// What ProtectHome=yes of a systemd unit makes unreadable.
bool is_hidden_by_unit(std::string_view path) {
  return path.starts_with("/home/") || path.starts_with("/root/") || path.starts_with("/run/user/");
}
constexpr std::string_view hidden_by_unit =
    "; under lmtpd.service, homes below /home need the drop-in lmtpd-homes.conf (docs/sieve.md)";

// A file system that is not mounted looks like homes without scripts.
Status check_base(const std::string& base, const SpoolHandle& handle, FileOps& ops) {
  auto found = ops.about(handle.root.get(), base + "/.");
  if (found) return {};
  return std::unexpected(
      Error{Errc::unavailable,
            fmt::format("no script was found, and its place cannot be reached: {}", found.error().message),
            found.error().sys == ENOENT ? 0 : found.error().sys});
}

Result<bool> exists(const ScriptPath& path, const User& user, const SpoolHandle& handle, const Spool& spool,
                    FileOps& ops) {
  std::optional<std::string> text = path.expand(user);
  if (!text) return true;
  auto inside = spool.relative(*text);
  auto found = ops.about(handle.root.get(), inside ? *inside : *text);
  if (found) return !found->is_directory;
  if (found.error().sys != ENOENT)
    return std::unexpected(
        Error{found.error().code,
              fmt::format("whether the user has a script: {}{}", found.error().message,
                          found.error().sys == EACCES && is_hidden_by_unit(*text) ? hidden_by_unit : ""),
              found.error().sys});
  if (inside) return false;
  const std::string base = path.base(user);
  TL_TRY(check_base(base, handle, ops));
  const std::string parent = text->substr(0, std::max<std::size_t>(text->rfind('/'), 1));
  if (parent == base) return false;
  auto place = ops.about(handle.root.get(), parent + "/.");
  if (place) return false;
  if (place.error().sys == ENOENT) return true;
  return std::unexpected(std::move(place).error());
}

}  // namespace

Result<bool> has_script(const ScriptRule& rule, const User& user, const SpoolHandle& handle,
                        const Spool& spool, FileOps& ops) {
  if (std::holds_alternative<NoUser>(rule)) return false;
  if (std::holds_alternative<AllUsers>(rule) || user.sieve_in_row) return true;
  for (const ScriptPath& path : std::get<ByFile>(rule).any_of) {
    TL_TRY_ASSIGN(bool found, exists(path, user, handle, spool, ops));
    if (found) return true;
  }
  return false;
}

}  // namespace twinloft::lmtpd
