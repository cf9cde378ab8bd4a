// The spool: the mounted file system that mail is delivered to, and the proof that it is the right one.
//
// A file `.twinloft-spool` at the spool's root holds the volume's UUID as text. Every delivery opens the root
// anew and reads the marker through that descriptor: an unmounted mount point, or another volume mounted
// there, is noticed by the delivery itself, and the descriptor that was checked is the one it then works
// beneath. Nothing is kept open between deliveries, so the spool can be unmounted at any time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "twinloft/base/fd.h"
#include "twinloft/base/ids.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/spool/file_ops.h"

namespace twinloft::lmtpd {

inline constexpr const char* spool_marker_name = ".twinloft-spool";

struct SpoolConfig {
  std::string root;            // absolute, without "." and ".." parts
  std::optional<Uuid> volume;  // the marker's UUID; nullopt: a plain directory, no marker is asked for
};

// The spool as one delivery sees it. `order` grows with every handle: an older handle sees every write error
// that a younger one sees (the kernel reports errors since the descriptor was opened).
struct SpoolHandle {
  Fd root;
  std::uint64_t order = 0;
  std::uint64_t device = 0;  // st_dev: a group commit serves handles of one file system
};

class Spool {
 public:
  // Errors: a root that is not absolute. The marker is checked by open(), since the spool may be mounted
  // later.
  static Result<std::unique_ptr<Spool>> create(SpoolConfig config, FileOps& ops);

  // Opens the root and checks the marker. Errors: Errc::unavailable where the root or its marker is absent,
  // unreadable, or names another volume: 451 4.3.0.
  Result<SpoolHandle> open();

  // After a syncfs: that the spool's file system has not failed. Looks through the root and the marker: where
  // this process may write to neither, an ext4 whose journal has failed is not noticed (sees_failure():
  // false).
  Status check_not_failed(const SpoolHandle& handle) const;
  bool sees_failure(const SpoolHandle& handle) const;

  // `path` (absolute) relative to the root; Errc::denied where it lies outside, begins with ".twinloft-", or
  // holds "..": 451 4.3.5.
  Result<std::string> relative(const std::string& path) const;

  const std::string& root() const { return config_.root; }

 private:
  Spool(SpoolConfig config, FileOps& ops) : config_(std::move(config)), ops_(&ops) {}

  SpoolConfig config_;
  FileOps* ops_;
  std::mutex mutex_;  // makes `order` the order of the opens
  std::uint64_t next_order_ = 1;
};

// Writes the marker durably into an existing directory; an existing marker with another UUID is an error.
Status write_spool_marker(const std::string& root, const Uuid& volume);
// Errc::not_found where there is none, Errc::corrupt where it is not a UUID.
Result<Uuid> read_spool_marker(const std::string& root);

}  // namespace twinloft::lmtpd
