#include "maildir_tree.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

namespace twinloft::lmtpd {

namespace {
constexpr std::size_t known_max = 200'000;  // about 25 MB; beyond, all are forgotten and synced once more

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

Result<OpenMaildir> MaildirTree::open(const SpoolHandle& spool, const std::string& relative) {
  std::optional<DirectoryIdentity> known;
  {
    std::lock_guard lock(mutex_);
    auto found = known_.find(relative);
    if (known_device_ == spool.device && found != known_.end()) known = found->second;
  }
  if (known) {
    auto opened = open_known(spool, relative);
    if (opened ? opened->incoming_identity == *known : opened.error().sys != ENOENT) return opened;
    forget(relative);  // removed since, and perhaps made anew
  }
  return create(spool, relative);
}

Result<OpenMaildir> MaildirTree::open_known(const SpoolHandle& spool, const std::string& relative) {
  OpenMaildir out;
  TL_TRY_ASSIGN(out.tmp, ops_.open_directory(spool.root.get(), relative + "/tmp"));
  TL_TRY_ASSIGN(out.incoming, ops_.open_directory(spool.root.get(), relative + "/new"));
  TL_TRY_ASSIGN(out.incoming_identity, identity_of(out.incoming.get(), relative + "/new"));
  return out;
}

// Parent by parent: each is opened beneath the root before anything is made in it, so that no link leads out.
Result<OpenMaildir> MaildirTree::create(const SpoolHandle& spool, const std::string& relative) {
  std::vector<Fd> chain;
  int parent = spool.root.get();
  for (std::size_t at = 0; at < relative.size();) {
    std::size_t slash = std::min(relative.find('/', at), relative.size());
    TL_TRY(ops_.make_directory(parent, relative.substr(at, slash - at)));
    TL_TRY_ASSIGN(Fd next, ops_.open_directory(spool.root.get(), relative.substr(0, slash)));
    parent = next.get();
    chain.push_back(std::move(next));
    at = slash + 1;
  }
  for (const char* name : {"cur", "new", "tmp"}) TL_TRY(ops_.make_directory(parent, name));
  TL_TRY_ASSIGN(OpenMaildir out, open_known(spool, relative));
  out.not_known.assign(std::make_move_iterator(chain.rbegin()), std::make_move_iterator(chain.rend()));
  return out;
}

void MaildirTree::remember(const SpoolHandle& spool, const std::string& relative, const OpenMaildir& maildir) {
  std::lock_guard lock(mutex_);
  if (known_device_ != spool.device || known_.size() >= known_max) known_.clear();
  known_device_ = spool.device;
  known_[relative] = maildir.incoming_identity;
}

void MaildirTree::forget(const std::string& relative) {
  std::lock_guard lock(mutex_);
  known_.erase(relative);
}

}  // namespace twinloft::lmtpd
