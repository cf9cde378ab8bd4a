// Chooses the place of a message for user+detail@: the folder that the detail names, or the inbox. If the
// folder cannot be used (invalid name, missing, too many, a link that leads elsewhere), mail goes to the
// inbox.
//
// Senders choose the detail, so a directory that is not a mail folder is never changed. No folder is created
// in a Maildir that contains the user's home, because the home has dot files of other programs.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <unordered_map>

#include "keyed_mutex.h"
#include "maildir_tree.h"
#include "twinloft/lmtpd/maildir/maildir.h"

namespace twinloft::lmtpd {

class DetailFolders {
 public:
  DetailFolders(FolderConfig config, MaildirTree& tree, FileOps& ops, const Clock& clock)
      : config_(config), tree_(tree), ops_(ops), clock_(clock) {}

  struct Place {
    MaildirPath path;
    OpenMaildir maildir;
    std::string note;  // for the log: the folder, or why the inbox was chosen; empty: no folder was requested
  };
  // Opens the place, and creates it if needed. Errors as of MaildirTree: the message cannot be delivered now.
  Result<Place> open(const SpoolHandle& spool, const std::string& maildir, const Recipient& recipient);

  // The place of a message, without creating it.
  Result<MaildirPath> look(const SpoolHandle& spool, const std::string& maildir, const User& user,
                           const std::string& detail);

 private:
  FoldersByDetail wanted(const User& user, const std::string& detail) const;
  Result<bool> is_folder(const SpoolHandle& spool, const MaildirPath& path, FoldersByDetail how);
  Result<Place> inbox(const SpoolHandle& spool, const std::string& maildir, std::string note);
  Result<Place> create(const SpoolHandle& spool, const MaildirPath& path);
  Result<std::size_t> count_folders(const SpoolHandle& spool, const std::string& maildir);
  Status subscribe_new(const SpoolHandle& spool, const MaildirPath& path);
  void subscribe_late(const SpoolHandle& spool, const std::string& maildir);
  Status subscribe_all(const SpoolHandle& spool, const std::string& maildir,
                       const std::set<std::string>& folders, int tries);

  const FolderConfig config_;
  MaildirTree& tree_;
  FileOps& ops_;
  const Clock& clock_;
  KeyedMutex subscribing_;  // by Maildir: deliveries of this process wait here, not for the lock file
  std::mutex late_mutex_;
  // By Maildir: new folders that are not subscribed yet, because another program held the lock.
  std::unordered_map<std::string, std::set<std::string>> late_;
};

}  // namespace twinloft::lmtpd
