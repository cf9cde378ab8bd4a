#include "detail_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <thread>

#include "folder_name.h"
#include "subscriptions.h"

namespace twinloft::lmtpd {

namespace {

// Somebody has put something else there.
bool leads_elsewhere(const Error& error) {
  return error.sys == EXDEV || error.sys == ELOOP || error.sys == ENOTDIR || error.sys == ENAMETOOLONG;
}

}  // namespace

Result<DetailFolders::Place> DetailFolders::inbox(const SpoolHandle& spool, const std::string& maildir, std::string note) {
  MaildirPath path{maildir, {}};
  TL_TRY_ASSIGN(OpenMaildir opened, tree_.open(spool, path));
  return Place{std::move(path), std::move(opened), std::move(note)};
}

FoldersByDetail DetailFolders::wanted(const User& user, const std::string& detail) const {
  return detail.empty() ? FoldersByDetail::none : user.detail_folders.value_or(config_.detail);
}

Result<MaildirPath> DetailFolders::look(const SpoolHandle& spool, const std::string& maildir, const User& user, const std::string& detail) {
  const MaildirPath inbox{maildir, {}};
  const FoldersByDetail how = wanted(user, detail);
  auto folder = how == FoldersByDetail::none ? std::nullopt : folder_directory(detail, config_.separator);
  if (!folder) return inbox;
  MaildirPath path{maildir, std::move(*folder)};
  auto found = tree_.open_self(spool, path);
  if (found || (found.error().sys == ENOENT && how == FoldersByDetail::create)) return path;
  if (leads_elsewhere(found.error()) || found.error().sys == ENOENT) return inbox;
  return std::unexpected(std::move(found).error());
}

Result<DetailFolders::Place> DetailFolders::open(const SpoolHandle& spool, const std::string& maildir, const Recipient& recipient) {
  const std::string& detail = recipient.detail;
  const FoldersByDetail how = wanted(recipient.user, detail);
  if (how == FoldersByDetail::none) return inbox(spool, maildir, {});
  auto folder = folder_directory(detail, config_.separator);
  if (!folder) return inbox(spool, maildir, "in the inbox: the detail names no folder");
  MaildirPath path{maildir, std::move(*folder)};
  auto found = tree_.open_existing(spool, path);
  if (found) {
    std::string note = "in " + path.folder;
    return Place{std::move(path), std::move(*found), std::move(note)};
  }
  if (leads_elsewhere(found.error())) return inbox(spool, maildir, "in the inbox: " + found.error().message);
  if (found.error().sys != ENOENT) return std::unexpected(std::move(found).error());
  if (how == FoldersByDetail::existing) return inbox(spool, maildir, "in the inbox: there is no folder " + path.folder);
  return create(spool, path);
}

Result<DetailFolders::Place> DetailFolders::create(const SpoolHandle& spool, const MaildirPath& path) {
  TL_TRY_ASSIGN(std::size_t folders, count_folders(spool, path.maildir));
  if (folders >= config_.folders_max)
    return inbox(spool, path.maildir, fmt::format("in the inbox: {} would be one more than maildir.folders_max = {}", path.folder, config_.folders_max));
  TL_TRY_ASSIGN(OpenMaildir opened, tree_.open(spool, path));
  std::string note = "in " + path.folder + ", which is new";
  if (Status subscribed = subscribe_new(spool, path); !subscribed) note += " and not subscribed: " + subscribed.error().message;
  return Place{path, std::move(opened), std::move(note)};
}

Result<std::size_t> DetailFolders::count_folders(const SpoolHandle& spool, const std::string& maildir) {
  auto directory = ops_.open_directory(spool.root.get(), maildir);
  if (!directory && directory.error().sys == ENOENT) return 0;
  if (!directory) return std::unexpected(std::move(directory).error());
  TL_TRY_ASSIGN(auto names, ops_.entries(directory->get()));
  return static_cast<std::size_t>(std::ranges::count_if(names, [](const std::string& name) { return name.starts_with('.'); }));
}

// Another program that holds the lock rewrites a small file.
Status DetailFolders::subscribe_new(const SpoolHandle& spool, const MaildirPath& path) {
  if (!config_.subscribe) return {};
  constexpr int tries = 100;
  std::lock_guard lock(subscribing_[std::hash<std::string>()(path.maildir) % subscribing_.size()]);
  TL_TRY_ASSIGN(Fd maildir, ops_.open_directory(spool.root.get(), path.maildir));
  for (int i = 1;; ++i) {
    Status done = subscribe(ops_, maildir.get(), path.folder);
    if (done || done.error().code != Errc::unavailable || i == tries) return done;
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
}

}  // namespace twinloft::lmtpd
