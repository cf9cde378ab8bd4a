// Where the file of a message may be written without a name (O_TMPFILE), and get its name in new/ at the end.
//
// Such a file needs one change of a directory instead of three, and a crash leaves nothing in tmp/. A file
// system without such files, or a security module that refuses the link, is found out by the first delivery.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

enum class UnnamedStep { create, link };

// Thread-safe. device: SpoolHandle::device.
class UnnamedFiles {
 public:
  bool may_try(std::uint64_t device) const;
  // After an error of create_unnamed() or link_unnamed(). True: the error is of the file system or the
  // machine, not of this message. From then on may_try() is false. Logged once for each device.
  bool give_up(std::uint64_t device, UnnamedStep step, const Error& error);

 private:
  mutable std::mutex mutex_;
  std::set<std::uint64_t> given_up_;
};

}  // namespace twinloft::lmtpd
