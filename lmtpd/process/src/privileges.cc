#include "twinloft/lmtpd/process/privileges.h"

#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

namespace twinloft::lmtpd {

Status check_answered(int error, const std::string& text, const char* key) {
  for (int passes : {EAGAIN, EIO, EINTR, EMFILE, ENFILE, ENOMEM, ETIMEDOUT, ECONNREFUSED})
    if (error == passes)
      return fail(Errc::unavailable, "{}: look-up of \"{}\" in the machine's accounts failed: {}", key, text,
                  std::strerror(error));
  return {};
}

namespace {

std::optional<std::uint32_t> as_number(const std::string& text) {
  std::uint32_t value = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Leaving root drops the capabilities. This drops the ambient ones that a service manager may have given, and
// empties the bounding set while root may still do that.
Status drop_capabilities(bool is_root) {
  for (unsigned long cap = 0; is_root && ::prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; ++cap)
    if (::prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0 && errno != EPERM)
      return fail_errno(errno, "PR_CAPBSET_DROP");
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
    return fail_errno(errno, "PR_CAP_AMBIENT");
  if (is_root) return {};
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct held[2]{}, none[2]{};
  // Without capabilities nothing is set, because a system call filter may refuse capset.
  if (::syscall(SYS_capget, &header, held) == 0 && std::memcmp(held, none, sizeof none) == 0) return {};
  if (::syscall(SYS_capset, &header, none) != 0) return fail_errno(errno, "capset");
  return {};
}

}  // namespace

Result<Identity> find_user(const std::string& text, const char* key) {
  auto number = as_number(text);
  errno = 0;
  const passwd* row = number ? ::getpwuid(*number) : ::getpwnam(text.c_str());
  if (!row) TL_TRY(check_answered(errno, text, key));
  if (row) return Identity{row->pw_uid, row->pw_gid, row->pw_name};
  if (number) return Identity{*number, 0, {}};
  return fail(Errc::not_found,
              "{}: there is no user \"{}\" on this machine; make it with: useradd --system {}", key, text,
              text);
}

Result<gid_t> find_group_id(const std::string& text, const char* key) {
  if (auto number = as_number(text)) return *number;
  errno = 0;
  const group* row = ::getgrnam(text.c_str());
  if (!row) TL_TRY(check_answered(errno, text, key));
  if (!row) return fail(Errc::not_found, "{}: there is no group \"{}\" on this machine", key, text);
  return row->gr_gid;
}

Result<Identity> find_identity(const std::string& user, const std::string& group) {
  Identity out{::geteuid(), ::getegid(), {}};
  if (!user.empty()) {
    TL_TRY_ASSIGN(out, find_user(user, "user"));
  }
  if (!group.empty()) {
    TL_TRY_ASSIGN(out.gid, find_group_id(group, "group"));
  }
  if (out.uid == 0 || out.gid == 0)
    return fail(
        Errc::denied,
        "mail is never delivered as root or group root: set the owner of the mail, such as user = \"vmail\" "
        "(and group, if the user has no account entry)");
  return out;
}

Status drop_privileges(const Identity& identity) {
  bool same = ::geteuid() == identity.uid && ::getuid() == identity.uid && ::getegid() == identity.gid &&
              ::getgid() == identity.gid;
  if (!same) {
    if (::geteuid() != 0)
      return fail(Errc::denied, "lmtpd was started as uid {}: only root can become uid {}", ::geteuid(),
                  identity.uid);
    TL_TRY(drop_capabilities(true));
    int grouped = identity.name.empty() ? ::setgroups(0, nullptr)
                                        : ::initgroups(identity.name.c_str(), identity.gid);
    if (grouped != 0) return fail_errno(errno, "setgroups");
    if (::setresgid(identity.gid, identity.gid, identity.gid) != 0) return fail_errno(errno, "setgid");
    if (::setresuid(identity.uid, identity.uid, identity.uid) != 0) return fail_errno(errno, "setuid");
  }
  TL_TRY(drop_capabilities(false));
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(errno, "PR_SET_NO_NEW_PRIVS");
  if (::setuid(0) == 0 || ::geteuid() == 0)
    return fail(Errc::internal, "root privileges could be regained after they were dropped");
  return {};
}

}  // namespace twinloft::lmtpd
