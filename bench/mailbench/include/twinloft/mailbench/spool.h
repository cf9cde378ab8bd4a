// Reading a spool of Maildirs: which files are messages, and what mailbench wrote into them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "twinloft/base/hash.h"
#include "twinloft/base/result.h"

namespace twinloft::mailbench {

struct SpoolFiles {
  std::vector<std::string> directories;  // the new/ and cur/ found, relative to the spool's root
  struct File {
    std::uint32_t directory;  // index into directories
    std::string name;
  };
  std::vector<File> files;        // by inode within a directory, as they lie on an ext4 disk
  std::uint64_t left_in_tmp = 0;  // files in tmp/: deliveries that never ended
};

// Walks everything below `root`. A directory new or cur with a sibling tmp holds messages, whatever is above
// it; links are not followed. Errors name the directory that can not be read.
Result<SpoolFiles> walk_spool(const std::string& root);

struct StoredMessage {
  std::string_view id;            // X-Mailbench-Id, empty: not one of mailbench's, or no longer to be told
  std::string_view digest;        // X-Mailbench-Digest
  std::string_view head;          // X-Mailbench-Head
  std::string_view delivered_to;  // the topmost Delivered-To
  std::string_view fields[5];     // by kHeadFields: raw values without the blank after the colon
  std::string_view body;
};

// Any line ends. Views point into `text`.
StoredMessage parse_stored(std::string_view text);

// "" where the message is whole: the body fits the digest that the account has, and the header lines that
// mailbench wrote fit theirs. Else what is wrong.
std::string find_damage(const StoredMessage& message, const Hash128& expected, bool check_head,
                        Hasher128& hasher);

// Tells whose Maildir a directory of the spool is in, by templates such as "%d/%n/Maildir".
class DirectoryMap {
 public:
  static constexpr std::uint32_t none = UINT32_MAX;

  // %u the address, %n its local part, %d its domain, %% a percent sign.
  static Status check(std::string_view format);
  // Errc::conflict where the directory is another recipient's already. `format` has passed check().
  Status add(std::string_view format, std::string_view recipient, std::uint32_t index);
  // The recipient whose directory this is, or is in; `none` where it is nobody's.
  std::uint32_t find(std::string_view directory) const;

 private:
  std::unordered_map<std::string, std::uint32_t> owners_;
};

}  // namespace twinloft::mailbench
