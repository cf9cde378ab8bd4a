// Reads a spool of Maildirs: finds the messages, and compares them with those that mailbench sent.
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
  std::vector<std::string> directories;  // all new/ and cur/, relative to the spool's root
  struct File {
    std::uint32_t directory;  // index into directories
    std::string name;
  };
  std::vector<File> files;        // by inode within a directory, which is about their order on an ext4 disk
  std::uint64_t left_in_tmp = 0;  // files in tmp/: deliveries that have not ended
};

// Finds all messages below `root`: the files of each directory new or cur with a sibling tmp. Symbolic links
// are not followed. Errors: a directory cannot be read, with its name.
Result<SpoolFiles> walk_spool(const std::string& root);

struct StoredMessage {
  std::string_view id;            // X-Mailbench-Id; empty: not a message of mailbench, or damaged
  std::string_view digest;        // X-Mailbench-Digest
  std::string_view head;          // X-Mailbench-Head
  std::string_view delivered_to;  // the topmost Delivered-To
  std::string_view fields[5];     // by kHeadFields: raw values without the blank after the colon
  std::string_view body;
};

// Takes the first line from `rest`, without its LF or CRLF.
std::string_view next_line(std::string_view& rest);

// Parses a message with LF or CRLF. The views point into `text`.
StoredMessage parse_stored(std::string_view text);

// Describes the damage of a message. Empty: the body has the digest of the account, and mailbench's header
// lines have their own digest.
std::string find_damage(const StoredMessage& message, const Hash128& expected, bool check_head,
                        Hasher128& hasher);

// A text for each address: %u or %name% is the address, %n or %user% its local part, %d or %domain% its
// domain,
// %% a percent sign. Errors: Errc::invalid, also if the text does not tell users apart. what: of the message.
Status check_address_format(std::string_view what, std::string_view format);
std::string address_by_format(std::string_view format, std::string_view address);  // format: checked

// Finds the recipient of a directory of the spool, by templates such as "%d/%n/Maildir".
class DirectoryMap {
 public:
  static constexpr std::uint32_t none = UINT32_MAX;

  // As check_address_format().
  static Status check(std::string_view format);
  // Adds a recipient's directory. format: checked by check(). Errors: Errc::conflict if another recipient has
  // the directory.
  Status add(std::string_view format, std::string_view recipient, std::uint32_t index);
  // The recipient of the directory, or of one of its parents. `none`: no recipient.
  std::uint32_t find(std::string_view directory) const;

 private:
  std::unordered_map<std::string, std::uint32_t> owners_;
};

}  // namespace twinloft::mailbench
