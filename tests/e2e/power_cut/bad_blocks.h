// Blocks of a disk's files that cannot be read until they are written, as a list in a text file: "NAME BLOCK" a line, of 4096
// bytes each. The test adds to the list while nothing is written there; what was written is taken off it, so that the test sees
// what was mended.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

namespace twinloft::power {

class BadBlocks {
 public:
  explicit BadBlocks(std::filesystem::path list) : list_(std::move(list)) {}  // empty: none ever

  bool hit(const std::string& name, std::uint64_t offset, std::uint64_t bytes);
  void written(const std::string& name, std::uint64_t offset, std::uint64_t bytes);

 private:
  void load();
  void store() const;

  std::filesystem::path list_;
  std::set<std::pair<std::string, std::uint64_t>> blocks_;
};

// Writes that fail, as a list in a text file: "NAME FIRST LAST" a line. The next write that touches one of these blocks of that file
// fails, changes nothing, and takes the line off: the disk is well again, and the test sees that it was hit.
class BadWrites {
 public:
  explicit BadWrites(std::filesystem::path list) : list_(std::move(list)) {}  // empty: none ever

  bool take(const std::string& name, std::uint64_t offset, std::uint64_t bytes);

 private:
  std::filesystem::path list_;
};

}  // namespace twinloft::power
