// The directories of a Maildir: opened beneath the spool, created where they are missing.
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

// Which directory it is: an inode number is used again as soon as its directory is gone, its birth is not.
struct DirectoryIdentity {
  std::uint64_t inode = 0;
  std::int64_t born_seconds = 0;  // 0 where the file system does not say
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
  std::vector<Fd> not_known;  // directories whose entries are not known to be durable: from the Maildir up to
                              // the root
};

// Remembers which Maildirs this process has made durable, so that their parents are synced once and not per
// message. A directory that another program made a moment ago may not be durable either; so the first
// delivery into each Maildir takes the slow way even where everything exists, and so does the first one after
// new/ was made anew (a program that recreates a directory above it recreates it as well). Thread-safe.
class MaildirTree {
 public:
  explicit MaildirTree(FileOps& ops) : ops_(ops) {}
  // Made where it is missing. Errors carry errno; EXDEV: the path leads out of the spool, or the folder out
  // of its Maildir.
  Result<OpenMaildir> open(const SpoolHandle& spool, const MaildirPath& path);
  // ENOENT where the directory itself is missing.
  Result<OpenMaildir> open_existing(const SpoolHandle& spool, const MaildirPath& path);
  // The directory itself, in which nothing is made.
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
  std::uint64_t known_device_ = 0;  // another device: nothing is known
};

}  // namespace twinloft::lmtpd
