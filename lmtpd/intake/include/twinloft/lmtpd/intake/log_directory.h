// The intake log's directory: `.twinloft-intake/` at the spool's root, mode 0700, owned by lmtpd's user.
//
// It has the files `segment-00`, `segment-01`, ..., all of one size and fully written, so that a write into
// them changes no metadata; the file `lock`, which names the directory's identity; and `stuck/`, for what
// replay could not place. Extended attributes of the directory: the mark (intake-log/), and why the log
// failed on this mount.
//
// The identity: a random incarnation, and inode and birth time of the directory and of each segment. A copy
// of the files in another place is not this log. Every call blocks. Not thread-safe, except as noted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/ids.h"
#include "twinloft/base/result.h"
#include "twinloft/intake_log/place.h"

namespace twinloft::lmtpd {

inline constexpr const char* log_directory_name = ".twinloft-intake";
inline constexpr const char* log_lock_name = "lock";                     // a file in the directory
std::string log_segment_name(std::uint32_t number);                      // "segment-00"
inline constexpr std::size_t log_block_bytes = intake_log::block_bytes;  // the alignment of offsets, sizes
                                                                         // and memory

using intake_log::LogShape;
// The shape of a log of this size, rounded up to whole blocks in each segment.
LogShape log_shape_of(std::uint64_t bytes);

// Memory for O_DIRECT.
class LogBuffer {
 public:
  explicit LogBuffer(std::size_t bytes);  // a multiple of log_block_bytes; zeros
  MutableByteSpan bytes() { return {memory_.get(), bytes_}; }
  ByteSpan bytes() const { return {memory_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* at) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_;
};

// Where a directory is. Two mounts that exist at once have different ones.
struct LogPlace {
  std::uint64_t device = 0;  // st_dev
  std::uint64_t inode = 0;
  bool operator==(const LogPlace&) const = default;
};
// nullopt: there is no log. root: the descriptor of the spool's root. Errors: those of fstatat(2).
Result<std::optional<LogPlace>> find_log(int root);

// What the writer of a log asks of the files. Thread-safe.
class LogFiles {
 public:
  virtual ~LogFiles() = default;
  virtual LogShape shape() const = 0;
  // Writes aligned memory at an aligned offset. Durable after success. After an error it is unknown which
  // blocks are on the disk.
  virtual Status append(std::uint32_t segment, std::uint64_t offset, ByteSpan group) = 0;
  // Sets the mark, without a sync: it becomes durable with, or after, every rename that was made before.
  virtual Status set_mark(ByteSpan mark) = 0;
  // Makes the mark, and every rename before it, durable. Success means that the file system has not failed.
  virtual Status sync() = 0;
  // Sets the failure. It forbids the use of the log until a replay on a fresh mount.
  virtual Status set_failure(std::string_view why) = 0;
};

class LogDirectory final : public LogFiles {
 public:
  // Makes the directory with its files, and makes all of it durable. An existing empty directory is used, and
  // so is one that a create() has not finished. The owner is this process's user. mark: of the empty log.
  // Errors: also Errc::conflict if there is a log, or other files.
  static Status create(int root, const LogShape& shape, const Uuid& incarnation, ByteSpan mark);
  // Opens the files and checks owner, mode, sizes and identity. Errors: Errc::not_found (there is no log);
  // Errc::corrupt or Errc::denied with the file that is wrong. The content of the mark is not checked.
  static Result<LogDirectory> open(int root);

  // Takes the lock for the life of this object. False: another process has it.
  Result<bool> lock();

  const Uuid& incarnation() const { return incarnation_; }
  const LogPlace& place() const { return place_; }
  int directory() const { return directory_.get(); }
  LogShape shape() const override { return shape_; }

  // Reads past the page cache, into aligned memory.
  Status read(std::uint32_t segment, std::uint64_t offset, MutableByteSpan out) const;
  // All segments, in their order.
  Result<std::vector<LogBuffer>> read_segments() const;
  // Errors: Errc::not_found if there is no mark.
  Result<std::vector<std::byte>> read_mark() const;
  // Why the log failed, on this mount or on one before. nullopt: it has not.
  Result<std::optional<std::string>> failure() const;
  // As set_mark() and set_failure(), not synced.
  Status clear_failure();

  Status append(std::uint32_t segment, std::uint64_t offset, ByteSpan group) override;
  Status set_mark(ByteSpan mark) override;
  Status sync() override;
  Status set_failure(std::string_view why) override;

 private:
  LogDirectory() = default;

  Fd directory_, lock_;
  std::vector<Fd> segments_;
  LogShape shape_;
  LogPlace place_;
  Uuid incarnation_;
};

}  // namespace twinloft::lmtpd
