// Where in a user's Maildir a message for user+detail@ goes: the folder that the detail names, or the inbox.
// What is in the way of a folder (no such name, not there, too many, a link that leads elsewhere) is no
// reason to refuse mail. Strangers choose the names: a directory that is no mail folder stays as it is, and
// where the Maildir is the user's home too, or around it, none is made, since other programs have files there
// whose names begin with a dot.
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
    std::string note;  // for the log: the folder, or why it is the inbox; empty where nothing was asked for
  };
  // Errors as MaildirTree's: the message cannot be delivered now.
  Result<Place> open(const SpoolHandle& spool, const std::string& maildir, const Recipient& recipient);

  // Where it would go, as far as that is seen without making anything.
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
  KeyedMutex subscribing_;  // by Maildir: this process's own deliveries wait for one another here, and not
                            // for the lock's file
  std::mutex late_mutex_;
  std::unordered_map<std::string, std::set<std::string>> late_;  // by Maildir: new folders whose subscription
                                                                 // another program's lock has kept from being
                                                                 // written
};

}  // namespace twinloft::lmtpd
