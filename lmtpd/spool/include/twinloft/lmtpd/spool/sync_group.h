// Group commit: a syncfs serves every delivery that waits at its start.
//
// A caller is served by a syncfs that *started* after the call. Its descriptor is at least as old as the
// caller's, so that an error of any of the caller's writes is reported.
//
// While a syncfs runs, the next group gathers. An error of a syncfs is the error of every member of its
// group, because it is unknown whose bytes were lost. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/spool/file_ops.h"
#include "twinloft/lmtpd/spool/spool.h"

namespace twinloft::lmtpd {

// How long a syncfs waits for more callers: until it has so many, and at most so long.
struct SyncGather {
  std::uint64_t callers = 0;
  Duration longest{};
};

class SyncGroup {
 public:
  explicit SyncGroup(FileOps& ops) : ops_(ops) {}
  // spool: opened before the first write to be covered. It stays open during the call.
  Status sync(const SpoolHandle& spool, const SyncGather& gather = {});

  struct Counters {
    std::uint64_t rounds = 0;   // syncfs calls
    std::uint64_t members = 0;  // calls that they served
    std::uint64_t waiting = 0;  // present calls of sync()
  };
  Counters counters() const;

 private:
  struct Group;
  void lead(std::unique_lock<std::mutex>& lock, Group& group, const SyncGather& gather);

  FileOps& ops_;
  mutable std::mutex mutex_;
  std::shared_ptr<Group> gathering_;
  bool running_ = false;
  Counters counters_;
};

}  // namespace twinloft::lmtpd
