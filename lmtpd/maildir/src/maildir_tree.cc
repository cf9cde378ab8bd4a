#include "maildir_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

#include "twinloft/mail/maildir_layout.h"

namespace twinloft::lmtpd {

namespace {
constexpr std::size_t known_max = 200'000;  // about 25 MB; beyond this all entries are dropped and synced
                                            // again

Result<DirectoryIdentity> identity_of(int directory, const std::string& path) {
  struct statx about{};
  if (::statx(directory, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &about) != 0)
    return fail_errno(errno, "{}", path);
  DirectoryIdentity out{about.stx_ino, 0, 0};
  if (about.stx_mask & STATX_BTIME) {
    out.born_seconds = about.stx_btime.tv_sec;
    out.born_ns = about.stx_btime.tv_nsec;
  }
  return out;
}

}  // namespace

std::optional<DirectoryIdentity> MaildirTree::find_known(const SpoolHandle& spool, const MaildirPath& path) {
  std::lock_guard lock(mutex_);
  auto found = known_.find(path.text());
  if (known_device_ != spool.device || found == known_.end()) return std::nullopt;
  return found->second;
}

Result<OpenMaildir> MaildirTree::open(const SpoolHandle& spool, const MaildirPath& path) {
  if (auto known = find_known(spool, path)) {
    auto opened = open_known(spool, path);
    if (opened ? opened->incoming_identity == *known : opened.error().sys != ENOENT) return opened;
    forget(path);  // removed, and possibly created again
  }
  return create(spool, path);
}

Result<OpenMaildir> MaildirTree::open_existing(const SpoolHandle& spool, const MaildirPath& path) {
  if (!find_known(spool, path)) {
    TL_TRY_ASSIGN(Fd there, open_self(spool, path));
    return create(spool, path);
  }
  auto opened = open_known(spool, path);
  if (opened || opened.error().sys != ENOENT) return opened;
  forget(path);
  return open_existing(spool, path);
}

// A folder is opened beneath its Maildir, so that a link cannot lead to another Maildir.
Result<Fd> MaildirTree::open_self(const SpoolHandle& spool, const MaildirPath& path) {
  TL_TRY_ASSIGN(Fd maildir, ops_.open_directory(spool.root.get(), path.maildir));
  if (path.folder.empty()) return maildir;
  return ops_.open_directory(maildir.get(), path.folder);
}

Result<OpenMaildir> MaildirTree::open_known(const SpoolHandle& spool, const MaildirPath& path) {
  int base = spool.root.get();
  Fd maildir;
  std::string prefix = path.maildir;
  if (!path.folder.empty()) {
    TL_TRY_ASSIGN(maildir, ops_.open_directory(base, path.maildir));
    base = maildir.get();
    prefix = path.folder;
  }
  OpenMaildir out;
  TL_TRY_ASSIGN(out.tmp, ops_.open_directory(base, prefix + "/tmp"));
  TL_TRY_ASSIGN(out.incoming, ops_.open_directory(base, prefix + "/new"));
  TL_TRY_ASSIGN(out.incoming_identity, identity_of(out.incoming.get(), prefix + "/new"));
  return out;
}

// Creates parent by parent. Each parent is opened beneath the root before anything is created in it, so that
// no link leads out.
Result<OpenMaildir> MaildirTree::create(const SpoolHandle& spool, const MaildirPath& path) {
  std::vector<Fd> chain;
  int parent = spool.root.get();
  const std::string& relative = path.maildir;
  for (std::size_t at = 0; at < relative.size();) {
    std::size_t slash = std::min(relative.find('/', at), relative.size());
    TL_TRY(ops_.make_directory(parent, relative.substr(at, slash - at)));
    auto next = ops_.open_directory(spool.root.get(), relative.substr(0, slash));
    // make_directory() has found or made the entry, so ENOENT means a dangling symbolic link.
    if (!next && next.error().sys == ENOENT)
      return std::unexpected(
          Error{Errc::denied,
                fmt::format("open directory {}: it is a symbolic link to a missing directory",
                            relative.substr(0, slash)),
                ELOOP});
    if (!next) return std::unexpected(std::move(next).error());
    parent = next->get();
    chain.push_back(std::move(*next));
    at = slash + 1;
  }
  for (const char* name : mail::maildir_boxes) TL_TRY(ops_.make_directory(parent, name));
  if (!path.folder.empty()) {
    TL_TRY_ASSIGN(Fd folder, create_folder(parent, path.folder));
    chain.push_back(std::move(folder));
  }
  TL_TRY_ASSIGN(OpenMaildir out, open_known(spool, path));
  out.not_known.assign(std::make_move_iterator(chain.rbegin()), std::make_move_iterator(chain.rend()));
  return out;
}

// Creates a folder, with the file that marks it as a folder in Maildir++.
Result<Fd> MaildirTree::create_folder(int maildir, const std::string& folder) {
  TL_TRY(ops_.make_directory(maildir, folder));
  TL_TRY_ASSIGN(Fd out, ops_.open_directory(maildir, folder));
  for (const char* name : mail::maildir_boxes) TL_TRY(ops_.make_directory(out.get(), name));
  auto mark = ops_.create_file(out.get(), mail::folder_mark);
  if (!mark && mark.error().sys != EEXIST) return std::unexpected(mark.error());
  return out;
}

void MaildirTree::remember(const SpoolHandle& spool, const MaildirPath& path, const OpenMaildir& maildir) {
  std::lock_guard lock(mutex_);
  if (known_device_ != spool.device || known_.size() >= known_max) known_.clear();
  known_device_ = spool.device;
  known_[path.text()] = maildir.incoming_identity;
}

void MaildirTree::forget(const MaildirPath& path) {
  std::lock_guard lock(mutex_);
  known_.erase(path.text());
}

}  // namespace twinloft::lmtpd
