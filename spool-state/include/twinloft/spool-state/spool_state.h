// The state of a volume, as spool-repl tells it to lmtpd, to spool-milter and to monitoring: a small JSON
// file. docs/formats/spool-state.md has its members.
//
// The file is replaced as a whole at each change. Its writer holds a lock on it (F_OFD_SETLK, fcntl(2)) while
// the writer lives. A file without this lock, or from before the machine's last boot, says nothing about the
// present.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"

namespace twinloft::spool_state {

struct SpoolState {
  std::string volume;        // its name
  std::string uuid;          // of the volume, as in the marker of a spool
  std::string state;         // "ok", "suspended", "failed", ... (docs/spool-repl.md, `status`)
  std::string role;          // "primary", "secondary"
  std::string reason = {};   // for people; may be empty
  Instant since{};           // when the state began (CLOCK_BOOTTIME)
  std::string time = {};     // the same as a time of day, RFC 3339 in UTC
  std::uint64_t number = 0;  // of the writer's change, from 1
  std::uint64_t pid = 0;     // of the writer
  std::string boot_id = {};  // of the machine while the writer ran
  bool operator==(const SpoolState&) const = default;
};

inline constexpr std::size_t file_bytes_max = 16 * 1024;

std::string encode(const SpoolState& state);
// Unknown members are ignored. Errors (Errc::corrupt): no JSON object, another format, or a missing member.
Result<SpoolState> decode(std::string_view text);

// /proc/sys/kernel/random/boot_id. Errors: those of open(2) and read(2).
Result<std::string> this_boot_id();

// Keeps the file of one volume. Blocks on the disk, so use it on a thread of its own.
class StateFile {
 public:
  // The directory of the path must exist. mode: of the file.
  explicit StateFile(std::string path, unsigned mode = 0644) : path_(std::move(path)), mode_(mode) {}
  ~StateFile();  // removes the file that this object wrote
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  // Replaces the file. Sets number, pid and boot_id. Errors: those of open(2), write(2) and rename(2); the
  // file is as before, or as it becomes.
  Status write(SpoolState state);
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const unsigned mode_;
  std::uint64_t number_ = 0;
  std::string boot_id_;
  Fd current_;  // the lock is on it
};

// The state that a living writer tells. nullopt: unknown, since there is no file, or its writer has ended.
// Errors: Errc::corrupt (as decode()), and those of open(2) and read(2).
Result<std::optional<SpoolState>> read_state(const std::string& path);

}  // namespace twinloft::spool_state
