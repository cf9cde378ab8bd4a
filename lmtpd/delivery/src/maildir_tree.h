// The directories of a Maildir: opened beneath the spool, created where they are missing.
#pragma once

#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/delivery/file_ops.h"
#include "twinloft/lmtpd/delivery/spool.h"

namespace twinloft::lmtpd {

struct OpenMaildir {
  Fd tmp;
  Fd incoming;  // new/
  std::vector<Fd>
      not_known;  // directories whose entries are not known to be durable: from the Maildir up to the root
};

// Remembers which Maildirs this process has made durable, so that their parents are synced once and not per
// message. A directory that another program made a moment ago may not be durable either; so the first
// delivery into each Maildir takes the slow way even where everything exists. Thread-safe.
class MaildirTree {
 public:
  explicit MaildirTree(FileOps& ops) : ops_(ops) {}
  // `relative` to the spool's root. Errors carry errno; EXDEV: the path leads out of the spool.
  Result<OpenMaildir> open(const SpoolHandle& spool, const std::string& relative);
  // The directories in not_known are durable now.
  void remember(const SpoolHandle& spool, const std::string& relative);
  void forget(const std::string& relative);

 private:
  Result<OpenMaildir> open_known(const SpoolHandle& spool, const std::string& relative);
  Result<OpenMaildir> create(const SpoolHandle& spool, const std::string& relative);

  FileOps& ops_;
  std::mutex mutex_;
  std::unordered_set<std::string> known_;
  std::uint64_t known_device_ = 0;  // another device: nothing is known
};

}  // namespace twinloft::lmtpd
