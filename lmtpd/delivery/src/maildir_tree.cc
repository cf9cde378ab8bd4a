#include "maildir_tree.h"

#include <cerrno>

namespace twinloft::lmtpd {

namespace {
constexpr std::size_t known_max = 200'000;  // about 20 MB; beyond, all are forgotten and synced once more
}

Result<OpenMaildir> MaildirTree::open(const SpoolHandle& spool, const std::string& relative) {
  bool known;
  {
    std::lock_guard lock(mutex_);
    known = known_device_ == spool.device && known_.contains(relative);
  }
  if (known) {
    auto opened = open_known(spool, relative);
    if (opened || opened.error().sys != ENOENT) return opened;
    forget(relative);  // removed since
  }
  return create(spool, relative);
}

Result<OpenMaildir> MaildirTree::open_known(const SpoolHandle& spool, const std::string& relative) {
  OpenMaildir out;
  TL_TRY_ASSIGN(out.tmp, ops_.open_directory(spool.root.get(), relative + "/tmp"));
  TL_TRY_ASSIGN(out.incoming, ops_.open_directory(spool.root.get(), relative + "/new"));
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

void MaildirTree::remember(const SpoolHandle& spool, const std::string& relative) {
  std::lock_guard lock(mutex_);
  if (known_device_ != spool.device || known_.size() >= known_max) known_.clear();
  known_device_ = spool.device;
  known_.insert(relative);
}

void MaildirTree::forget(const std::string& relative) {
  std::lock_guard lock(mutex_);
  known_.erase(relative);
}

}  // namespace twinloft::lmtpd
