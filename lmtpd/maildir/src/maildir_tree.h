// Opens the directories of a Maildir beneath the spool, and creates missing ones.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/spool/file_ops.h"
#include "twinloft/lmtpd/spool/spool.h"

namespace twinloft::lmtpd {

// Identifies a directory. The birth time is needed because inode numbers are reused.
struct DirectoryIdentity {
  std::uint64_t inode = 0;
  std::int64_t born_seconds = 0;  // 0: the file system has no birth times
  std::uint32_t born_ns = 0;
  bool operator==(const DirectoryIdentity&) const = default;
};

// A Maildir, relative to the spool's root, and a folder in it: "" is the inbox, ".Lists.dev" a directory
// (mail/folder_name.h).
struct MaildirPath {
  std::string maildir, folder;
  std::string text() const { return folder.empty() ? maildir : maildir + "/" + folder; }
};

struct OpenMaildir {
  Fd tmp;
  Fd incoming;  // new/
  DirectoryIdentity incoming_identity;
  // Directories whose entries are not known to be durable, from the Maildir or folder up to the root.
  std::vector<Fd> not_known;
};

// Remembers the Maildirs that this process has made durable, so that their parents are synced once and not
// per message. A directory made by another program may not be durable. So the first delivery into each
// Maildir syncs the parents even if they exist.
//
// The same applies after new/ was created again: a program that recreates a parent recreates new/ too.
// Thread-safe.
class MaildirTree {
 public:
  explicit MaildirTree(FileOps& ops) : ops_(ops) {}
  // Creates missing directories. Errors have errno; EXDEV: the path leads out of the spool, or the folder out
  // of its Maildir.
  Result<OpenMaildir> open(const SpoolHandle& spool, const MaildirPath& path);
  // As open(), but fails with ENOENT if the directory itself is missing.
  Result<OpenMaildir> open_existing(const SpoolHandle& spool, const MaildirPath& path);
  // Opens the directory itself, and creates nothing.
  Result<Fd> open_self(const SpoolHandle& spool, const MaildirPath& path);
  // The directories in not_known are durable now.
  void remember(const SpoolHandle& spool, const MaildirPath& path, const OpenMaildir& maildir);

 private:
  Result<OpenMaildir> open_known(const SpoolHandle& spool, const MaildirPath& path);
  Result<OpenMaildir> create(const SpoolHandle& spool, const MaildirPath& path);
  Result<Fd> create_folder(int maildir, const std::string& folder);
  std::optional<DirectoryIdentity> find_known(const SpoolHandle& spool, const MaildirPath& path);
  void forget(const MaildirPath& path);

  FileOps& ops_;
  std::mutex mutex_;
  std::unordered_map<std::string, DirectoryIdentity> known_;
  std::uint64_t known_device_ = 0;  // of known_; entries do not apply to another device
};

}  // namespace twinloft::lmtpd
