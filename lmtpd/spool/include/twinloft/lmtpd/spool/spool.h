// The spool: the mounted file system of the mail, and the check that it is the right file system.
//
// The file `.twinloft-spool` at the spool's root contains the volume's UUID as text. Every delivery opens the
// root and reads the marker by this descriptor, and works below the same descriptor. So a delivery itself
// detects an unmounted mount point, or another volume. No file is open between deliveries, so the spool can
// be unmounted at any time.
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
  std::optional<Uuid> volume;  // the marker's UUID; nullopt: a plain directory without a marker
};

// The open spool of a delivery. `order` grows with every handle: an older handle reports every write error
// that a newer handle reports (the kernel reports errors since the descriptor was opened).
struct SpoolHandle {
  Fd root;
  std::uint64_t order = 0;
  std::uint64_t device = 0;  // st_dev: a group commit covers handles of the same file system
};

class Spool {
 public:
  // Errors: the root is not absolute. open() checks the marker, since the spool may be mounted later.
  static Result<std::unique_ptr<Spool>> create(SpoolConfig config, FileOps& ops);

  // Opens the root and checks the marker. Errors: Errc::unavailable (451 4.3.0) if the root or the marker is
  // missing or unreadable, or the marker is of another volume.
  Result<SpoolHandle> open();

  // Checks after a syncfs that the spool's file system has not failed, by the root and the marker. Without
  // write permission on either, a failed journal of ext4 is not detected (sees_failure() is false).
  Status check_not_failed(const SpoolHandle& handle) const;
  bool sees_failure(const SpoolHandle& handle) const;

  // The path relative to the root. path: absolute. Errors: Errc::denied (451 4.3.5) if the path is outside of
  // the root, begins with ".twinloft-", or contains "..".
  Result<std::string> relative(const std::string& path) const;

  const std::string& root() const { return config_.root; }

 private:
  Spool(SpoolConfig config, FileOps& ops) : config_(std::move(config)), ops_(&ops) {}

  SpoolConfig config_;
  FileOps* ops_;
  std::mutex mutex_;  // so that `order` is the order of the opens
  std::uint64_t next_order_ = 1;
};

// Writes the marker durably into an existing directory. Errors: also an existing marker with another UUID.
Status write_spool_marker(const std::string& root, const Uuid& volume);
// Reads the marker. Errors: Errc::not_found (no marker), Errc::corrupt (not a UUID).
Result<Uuid> read_spool_marker(const std::string& root);

}  // namespace twinloft::lmtpd
