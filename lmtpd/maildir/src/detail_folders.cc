#include "detail_folders.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "subscriptions.h"
#include "twinloft/mail/folder_name.h"

namespace twinloft::lmtpd {

namespace {

// The path is not a directory of this Maildir.
bool leads_elsewhere(const Error& error) {
  return error.sys == EXDEV || error.sys == ELOOP || error.sys == ENOTDIR || error.sys == ENAMETOOLONG;
}

constexpr std::size_t late_max = 10'000;  // Maildirs

// Whether both names lead to the same directory, for example by a link.
bool are_one_directory(const std::string& a, const std::string& b) {
  struct stat first{}, second{};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// Whether the Maildir contains the home, so that dot files of the home look like folders.
bool holds_home(const User& user) {
  return user.home == user.maildir || user.home.starts_with(user.maildir + "/.") ||
         are_one_directory(user.home, user.maildir);
}

}  // namespace

Result<DetailFolders::Place> DetailFolders::inbox(const SpoolHandle& spool, const std::string& maildir,
                                                  std::string note) {
  MaildirPath path{maildir, {}};
  TL_TRY_ASSIGN(OpenMaildir opened, tree_.open(spool, path));
  return Place{std::move(path), std::move(opened), std::move(note)};
}

FoldersByDetail DetailFolders::wanted(const User& user, const std::string& detail) const {
  if (detail.empty()) return FoldersByDetail::none;
  FoldersByDetail how = user.detail_folders.value_or(config_.detail);
  return how == FoldersByDetail::create && holds_home(user) ? FoldersByDetail::existing : how;
}

// A folder has at least one of a Maildir's directories. An empty directory may be a folder whose creation by
// lmtpd was interrupted.
Result<bool> DetailFolders::is_folder(const SpoolHandle& spool, const MaildirPath& path,
                                      FoldersByDetail how) {
  TL_TRY_ASSIGN(Fd directory, tree_.open_self(spool, path));
  for (const char* part : {"cur", "new", "tmp"}) {
    auto about = ops_.about(directory.get(), part);
    if (about) return true;
    if (about.error().sys != ENOENT) return std::unexpected(std::move(about).error());
  }
  if (how != FoldersByDetail::create) return false;
  TL_TRY_ASSIGN(auto names, ops_.entries(directory.get()));
  return names.empty();
}

Result<MaildirPath> DetailFolders::look(const SpoolHandle& spool, const std::string& maildir,
                                        const User& user, const std::string& detail) {
  const MaildirPath inbox{maildir, {}};
  const FoldersByDetail how = wanted(user, detail);
  auto folder = how == FoldersByDetail::none ? std::nullopt
                                             : mail::folder_directory(detail, config_.separator);
  if (!folder) return inbox;
  MaildirPath path{maildir, std::move(*folder)};
  auto found = is_folder(spool, path, how);
  if (found && !*found) return inbox;
  if (found || (found.error().sys == ENOENT && how == FoldersByDetail::create)) return path;
  if (leads_elsewhere(found.error()) || found.error().sys == ENOENT) return inbox;
  return std::unexpected(std::move(found).error());
}

Result<DetailFolders::Place> DetailFolders::open(const SpoolHandle& spool, const std::string& maildir,
                                                 const Recipient& recipient) {
  const std::string& detail = recipient.detail;
  const FoldersByDetail how = wanted(recipient.user, detail);
  if (how == FoldersByDetail::none) return inbox(spool, maildir, {});
  auto folder = mail::folder_directory(detail, config_.separator);
  if (!folder) return inbox(spool, maildir, "in the inbox: the detail names no folder");
  subscribe_late(spool, maildir);
  MaildirPath path{maildir, std::move(*folder)};
  auto there = is_folder(spool, path, how);
  if (there && !*there)
    return inbox(spool, maildir, "in the inbox: " + path.folder + " exists, but is not a mail folder");
  auto found = there ? tree_.open_existing(spool, path) : std::unexpected(there.error());
  if (found) {
    std::string note = "in " + path.folder;
    return Place{std::move(path), std::move(*found), std::move(note)};
  }
  if (leads_elsewhere(found.error())) return inbox(spool, maildir, "in the inbox: " + found.error().message);
  if (found.error().sys != ENOENT) return std::unexpected(std::move(found).error());
  if (how == FoldersByDetail::existing)
    return inbox(
        spool, maildir,
        fmt::format(
            "in the inbox: there is no folder {}{}", path.folder,
            holds_home(recipient.user) ? ", and none is created in a Maildir that contains the home" : ""));
  return create(spool, path);
}

Result<DetailFolders::Place> DetailFolders::create(const SpoolHandle& spool, const MaildirPath& path) {
  TL_TRY_ASSIGN(std::size_t folders, count_folders(spool, path.maildir));
  if (folders >= config_.folders_max)
    return inbox(spool, path.maildir,
                 fmt::format("in the inbox: creating {} would exceed maildir.folders_max = {}", path.folder,
                             config_.folders_max));
  TL_TRY_ASSIGN(OpenMaildir opened, tree_.open(spool, path));
  std::string note = "in " + path.folder + ", which is new";
  if (Status subscribed = subscribe_new(spool, path); !subscribed)
    note += " and not subscribed: " + subscribed.error().message;
  return Place{path, std::move(opened), std::move(note)};
}

Result<std::size_t> DetailFolders::count_folders(const SpoolHandle& spool, const std::string& maildir) {
  auto directory = ops_.open_directory(spool.root.get(), maildir);
  if (!directory && directory.error().sys == ENOENT) return 0;
  if (!directory) return std::unexpected(std::move(directory).error());
  TL_TRY_ASSIGN(auto names, ops_.entries(directory->get()));
  return static_cast<std::size_t>(
      std::ranges::count_if(names, [](const std::string& name) { return name.starts_with('.'); }));
}

Status DetailFolders::subscribe_all(const SpoolHandle& spool, const std::string& maildir,
                                    const std::set<std::string>& folders, int tries) {
  TL_TRY_ASSIGN(Fd directory, ops_.open_directory(spool.root.get(), maildir));
  for (const std::string& folder : folders)
    for (int i = 1;; ++i) {
      Status done = subscribe(ops_, directory.get(), folder, clock_.wall().seconds);
      if (done) break;
      if (done.error().code != Errc::unavailable || i >= tries) return done;
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
  return {};
}

// A lock is normally held only while another program rewrites a small file. The first delivery waits up to
// 2.5 s for a longer lock; later deliveries wait less.
Status DetailFolders::subscribe_new(const SpoolHandle& spool, const MaildirPath& path) {
  if (!config_.subscribe) return {};
  constexpr int tries = 100, tries_when_late = 10;
  KeyedMutex::Lock lock = subscribing_.lock(path.maildir);
  std::set<std::string> folders{path.folder};
  bool was_late;
  {
    std::lock_guard late(late_mutex_);
    auto known = late_.extract(path.maildir);
    was_late = !known.empty();
    if (was_late) folders.merge(known.mapped());
  }
  Status done = subscribe_all(spool, path.maildir, folders, was_late ? tries_when_late : tries);
  if (done || done.error().code != Errc::unavailable) return done;
  std::lock_guard late(late_mutex_);
  if (late_.size() < late_max && folders.size() <= config_.folders_max)
    late_[path.maildir] = std::move(folders);
  return done;
}

// Writes subscriptions that failed before because of a lock.
void DetailFolders::subscribe_late(const SpoolHandle& spool, const std::string& maildir) {
  auto lock = subscribing_.try_lock(maildir);
  if (!lock) return;
  std::set<std::string> folders;
  {
    std::lock_guard late(late_mutex_);
    auto known = late_.find(maildir);
    if (known == late_.end()) return;
    folders = known->second;
  }
  Status done = subscribe_all(spool, maildir, folders, 1);
  std::lock_guard late(late_mutex_);
  if (done || done.error().code != Errc::unavailable) late_.erase(maildir);
}

}  // namespace twinloft::lmtpd
