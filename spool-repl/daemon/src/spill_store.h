// The files of a volume's spill (docs/formats/spill.md). Works on a thread of its own, in the order of the
// calls: only far replicas wait for it.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/core/effects.h"
#include "twinloft/spool-repl/daemon/config.h"
#include "twinloft/spool-repl/format/spill.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::daemon {

// Whether a block device, a directory in /sys, is one of these or lies on one: through partitions, volume
// managers and the like.
bool stacks_on(const std::filesystem::path& block, const std::function<bool(dev_t)>& is_own, unsigned layers);
// Errors: Errc::invalid if the directory lies on the device that the volume serves.
Status check_spill_device(const std::string& directory, const VolumeSettings& settings);

// The open directory: a file system that is mounted over it later does not matter.
struct SpillDirectory {
  Fd fd;
  std::string path, prefix;  // of the names of its files: volume and replica

  // Creates the directory, but not its parents. Errors: those of the system; Errc::invalid if it lies on the
  // device that the volume serves.
  static Result<SpillDirectory> open(const VolumeSettings& settings);
  // The chunks that a start can use, oldest first.
  std::vector<SpillChunk> find(const Uuid& volume_uuid, ReplicaId replica) const;
  Status write(std::uint64_t number, ByteSpan bytes) const;  // durable, also its name
  Result<std::vector<std::byte>> read(std::uint64_t number, std::size_t bytes_max = SIZE_MAX) const;
  Status drop_before(std::uint64_t number) const;
  // Removes what no start can use: other chunks than these, and interrupted writes.
  void drop_others(const std::vector<SpillChunk>& used) const;
  std::vector<std::uint64_t> numbers() const;  // ascending
  std::vector<std::string> names() const;      // of all files of this spill
  std::string name_of(std::uint64_t number) const;
};

class SpillStore {
 public:
  // The completions are called on the loop's thread, and not after the end of the store.
  SpillStore(ports::Loop& loop, SpillDirectory directory);
  ~SpillStore();

  // trouble: empty after a success.
  void write(core::SpillWrite write, std::function<void(int error, const std::string& trouble)> done);
  void read(const core::SpillRead& read, std::function<void(int error, std::vector<std::byte> bytes)> done);
  void drop(const core::SpillDrop& drop, std::function<void(const std::string& trouble)> failed);

 private:
  void add(std::function<void()> work);
  void run();
  // Calls it on the loop's thread, while this store exists.
  void finish(std::function<void()> done);

  ports::Loop& loop_;
  SpillDirectory directory_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // of the loop's thread
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace twinloft::repl::daemon
