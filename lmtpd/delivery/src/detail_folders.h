// Where in a user's Maildir a message for user+detail@ goes: the folder that the detail names, or the inbox. What is in the way of a folder (no such name,
// not there, too many, a link that leads elsewhere) is no reason to refuse mail.
#pragma once

#include <array>
#include <mutex>
#include <string>

#include "maildir_tree.h"
#include "twinloft/lmtpd/delivery/maildir.h"

namespace twinloft::lmtpd {

class DetailFolders {
 public:
  DetailFolders(FolderConfig config, MaildirTree& tree, FileOps& ops) : config_(config), tree_(tree), ops_(ops) {}

  struct Place {
    MaildirPath path;
    OpenMaildir maildir;
    std::string note;  // for the log: the folder, or why it is the inbox; empty where nothing was asked for
  };
  // Errors as MaildirTree's: the message cannot be delivered now.
  Result<Place> open(const SpoolHandle& spool, const std::string& maildir, const Recipient& recipient);

  // Where it would go, as far as that is seen without making anything.
  Result<MaildirPath> look(const SpoolHandle& spool, const std::string& maildir, const User& user, const std::string& detail);

 private:
  FoldersByDetail wanted(const User& user, const std::string& detail) const;
  Result<Place> inbox(const SpoolHandle& spool, const std::string& maildir, std::string note);
  Result<Place> create(const SpoolHandle& spool, const MaildirPath& path);
  Result<std::size_t> count_folders(const SpoolHandle& spool, const std::string& maildir);
  Status subscribe_new(const SpoolHandle& spool, const MaildirPath& path);

  const FolderConfig config_;
  MaildirTree& tree_;
  FileOps& ops_;
  std::array<std::mutex, 16> subscribing_;  // by Maildir: this process's own deliveries wait for one another here, and not for the lock's file
};

}  // namespace twinloft::lmtpd
