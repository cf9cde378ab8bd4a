#include "twinloft/lmtpd/intake/mailbox.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "open_without_links.h"
#include "twinloft/lmtpd/intake/log_directory.h"
#include "twinloft/mail/maildir_name.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t read_bytes = 256u << 10;  // at once, a multiple of log_block_bytes

std::unexpected<Error> fail_to_open(int sys, const std::string& shown) {
  if (sys == ENOENT) return std::unexpected(Error{Errc::not_found, shown + " does not exist", sys});
  if (sys == ELOOP)
    return std::unexpected(
        Error{Errc::denied, shown + " is a symbolic link, which replay does not follow", sys});
  if (sys == EXDEV) return std::unexpected(Error{Errc::denied, shown + " leads out of its place", sys});
  if (sys == ENOTDIR) return std::unexpected(Error{Errc::denied, shown + " is not a directory", sys});
  return fail_errno(sys, "open {}", shown);
}

// Somebody else's directory is not a place for this user's mail.
Status check_mine(int fd, const std::string& shown) {
  struct stat about{};
  if (::fstat(fd, &about) != 0) return fail_errno(errno, "{}", shown);
  if (about.st_uid == ::geteuid()) return {};
  return fail(Errc::denied, "{} has uid {}, and lmtpd's user has {}", shown, about.st_uid, ::geteuid());
}

Result<Fd> open_mine(int dir, const std::string& name, const std::string& shown) {
  Fd out = open_without_links(dir, name, O_RDONLY | O_DIRECTORY);
  if (!out) return fail_to_open(errno, shown);
  TL_TRY(check_mine(out.get(), shown));
  return out;
}

// A folder is one name in its Maildir: no other Maildir can be named.
bool is_one_name(const std::string& name) {
  return name != "." && name != ".." && name.find('/') == name.npos && name.find('\0') == name.npos;
}

}  // namespace

Result<Mailbox> Mailbox::open(int root, const std::string& maildir, const std::string& folder, FileOps& ops) {
  Mailbox out(ops);
  out.shown_ = folder.empty() ? maildir : maildir + "/" + folder;
  if (!is_one_name(folder)) return fail(Errc::denied, "{} is not a folder of the Maildir", out.shown_);
  auto opened = ops.open_directory(root, maildir);
  if (!opened && opened.error().sys == ENOENT) return fail_to_open(ENOENT, maildir);
  TL_TRY_ASSIGN(out.maildir_, std::move(opened));
  TL_TRY(check_mine(out.maildir_.get(), maildir));
  if (!folder.empty()) {
    TL_TRY_ASSIGN(out.folder_, open_mine(out.maildir_.get(), folder, out.shown_));
  }
  TL_TRY_ASSIGN(out.incoming_, open_mine(out.folder(), "new", out.shown_ + "/new"));
  TL_TRY_ASSIGN(out.seen_, open_mine(out.folder(), "cur", out.shown_ + "/cur"));
  return out;
}

Result<Fd> Mailbox::open_tmp() const {
  return open_mine(folder(), "tmp", shown_ + "/tmp");
}

Status Mailbox::list(int directory, bool in_cur) {
  return ops_->each_entry(directory, [&](const std::string& name) -> Status {
    found_.try_emplace(mail::base_name(name), Found{in_cur, name});
    return {};
  });
}

// new/ is listed first: a message moves from there to cur/, never back.
Result<std::optional<Mailbox::Found>> Mailbox::find(const std::string& base) {
  if (!listed_) {
    TL_TRY(list(incoming_.get(), false));
    TL_TRY(list(seen_.get(), true));
    listed_ = true;
  }
  auto at = found_.find(base);
  if (at == found_.end()) return std::nullopt;
  return at->second;
}

void Mailbox::add(const std::string& name) {
  found_.try_emplace(mail::base_name(name), Found{false, name});
}

// What the page cache has may not be what a power cut would leave.
Result<bool> Mailbox::has_content(const Found& found, std::string_view content) const {
  const std::string shown = fmt::format("{}/{}/{}", shown_, found.in_cur ? "cur" : "new", found.name);
  Fd file = open_without_links(found.in_cur ? seen_.get() : incoming_.get(), found.name,
                               O_RDONLY | O_DIRECT | O_NONBLOCK);
  if (!file) return fail_to_open(errno, shown);
  struct stat about{};
  if (::fstat(file.get(), &about) != 0) return fail_errno(errno, "{}", shown);
  if (!S_ISREG(about.st_mode)) return fail(Errc::denied, "{} is not a regular file", shown);
  if (static_cast<std::uint64_t>(about.st_size) != content.size()) return false;
  LogBuffer buffer(read_bytes);
  for (std::size_t done = 0; done < content.size();) {
    ssize_t n = ::pread(file.get(), buffer.bytes().data(), read_bytes, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "read {}", shown);
    const auto got = static_cast<std::size_t>(n);
    if (got == 0 || got > content.size() - done) return false;
    if (as_text(ByteSpan(buffer.bytes()).first(got)) != content.substr(done, got)) return false;
    done += got;
  }
  return true;
}

}  // namespace twinloft::lmtpd
