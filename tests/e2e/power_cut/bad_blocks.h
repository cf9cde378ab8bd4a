// Blocks of a disk's files that cannot be read until they are written. A text file lists them: "NAME BLOCK" a
// line, for blocks of 4096 bytes. The test adds to the list while the disk does not write. A written block is
// removed from the list, so that the test sees which blocks were repaired.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

namespace twinloft::power {

class BadBlocks {
 public:
  explicit BadBlocks(std::filesystem::path list) : list_(std::move(list)) {}  // empty: no bad blocks

  bool hit(const std::string& name, std::uint64_t offset, std::uint64_t bytes);
  void written(const std::string& name, std::uint64_t offset, std::uint64_t bytes);

 private:
  void load();
  void store() const;

  std::filesystem::path list_;
  std::set<std::pair<std::string, std::uint64_t>> blocks_;
};

// Writes that fail once. A text file lists them: "NAME FIRST LAST" a line. The next write to one of these
// blocks of that file fails, changes nothing, and removes the line. The disk works again then, and the test
// sees that the write has failed.
class BadWrites {
 public:
  explicit BadWrites(std::filesystem::path list) : list_(std::move(list)) {}  // empty: no bad writes

  bool take(const std::string& name, std::uint64_t offset, std::uint64_t bytes);

 private:
  std::filesystem::path list_;
};

}  // namespace twinloft::power
