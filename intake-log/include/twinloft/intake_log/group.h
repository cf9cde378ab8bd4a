// A group of the intake log: what one write makes durable. docs/formats/intake-log.md has the bytes.
//
// A group has a header and records. A message record holds the content of a message once, and every name that
// the message is to get. Each name is an entry. Entries are numbered from 0 in the life of a log, without
// gaps. A cancel record withdraws one entry of an earlier group. A group without records only says what is
// retired. Pure: no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/ids.h"
#include "twinloft/base/result.h"
#include "twinloft/intake_log/place.h"

namespace twinloft::intake_log {

inline constexpr std::uint16_t group_version = 1;
inline constexpr std::size_t group_header_bytes = 136;
inline constexpr std::size_t group_bytes_max = std::size_t{4} << 20;
inline constexpr std::size_t names_max = 4096;  // of one message
inline constexpr std::size_t maildir_bytes_max = 4095;
inline constexpr std::size_t folder_bytes_max = 1024;
inline constexpr std::size_t name_bytes_max = 255;

struct GroupHeader {
  Uuid incarnation;               // of the log
  std::uint64_t number = 0;       // of the group, from 0, without gaps
  std::uint64_t first_entry = 0;  // of this group; if it has none, of the next one that has
  std::uint32_t entries = 0;
  std::uint32_t records = 0;
  std::uint32_t bytes = 0;          // of the group: a multiple of block_bytes, at most group_bytes_max
  std::uint32_t used = 0;           // header and records; zeros follow
  MountInstance mount;              // of the writer
  std::uint64_t retired = 0;        // all entries below are durable in their Maildirs, or cancelled
  std::uint64_t oldest_number = 0;  // of the oldest group that is still needed; at most `number`
  Position oldest;                  // where this one is
  Position at;                      // where the group itself is
  std::uint32_t records_crc = 0;    // of everything behind the header
  bool operator==(const GroupHeader&) const = default;
  std::uint64_t end_entry() const { return first_entry + entries; }
};

// One name of a message: a file in new/ of a folder. Paths have no component "..".
struct EntryName {
  std::string_view maildir;  // relative to the spool's root
  std::string_view folder;   // in the Maildir, such as ".Lists.dev"; "": the inbox
  std::string_view name;     // of the file
  bool operator==(const EntryName&) const = default;
};
// Errors: Errc::invalid, with what is wrong.
Status check_name(const EntryName& name);

// The entries have the numbers first_entry, first_entry + 1, ..., in the order of the names.
struct MessageRecord {
  std::uint64_t first_entry = 0;
  std::vector<EntryName> names;  // at least one
  std::string_view content;      // as stored in the file
  bool operator==(const MessageRecord&) const = default;
};
struct CancelRecord {
  std::uint64_t entry = 0;  // of an earlier group
  bool operator==(const CancelRecord&) const = default;
};
using Record = std::variant<MessageRecord, CancelRecord>;

// What a record takes in a group.
std::size_t message_bytes(std::span<const EntryName> names, std::size_t content_bytes);
inline constexpr std::size_t cancel_bytes = 16;
// What a group with `used` bytes takes in a segment.
constexpr std::size_t whole_blocks(std::size_t used) {
  return (used + block_bytes - 1) / block_bytes * block_bytes;
}

// Builds one group after the other in the same memory. Not thread-safe.
class GroupBuilder {
 public:
  // memory: outlives this object; its size is a multiple of block_bytes, and at most group_bytes_max.
  explicit GroupBuilder(MutableByteSpan memory);

  // Errors change nothing: Errc::invalid (check_name(), or the number of names), Errc::exhausted (no room).
  Status add_message(std::span<const EntryName> names, std::string_view content);
  Status add_cancel(std::uint64_t entry);

  std::uint32_t entries() const { return entries_; }
  std::uint32_t records() const { return records_; }
  std::size_t used() const { return used_; }
  std::size_t room() const { return memory_.size() - used_; }

  // The whole group, in the builder's memory. Sets the counts, sizes and checksums of the header, and takes
  // the rest from `header`. Valid until clear().
  ByteSpan finish(GroupHeader header);
  void clear();

 private:
  MutableByteSpan memory_;
  std::size_t used_ = group_header_bytes;
  std::uint32_t entries_ = 0, records_ = 0;
};

// A block that may be the first one of a group.
enum class BlockKind {
  none,     // no header, or a damaged one
  group,    // of this log and version; the checksum of the header is right
  foreign,  // of another log
  version,  // of this log, in another version of the format; only `number` is set
};
struct BlockHeader {
  BlockKind kind = BlockKind::none;
  GroupHeader header;         // group; version: the number
  std::uint16_t version = 0;  // group, foreign, version
};
// block: at least group_header_bytes. at: where it was read; a header for another place is none. The records
// are not checked.
BlockHeader look_at_block(ByteSpan block, const Uuid& incarnation, Position at);

struct Group {
  GroupHeader header;
  std::vector<Record> records;  // in their order; they point into the bytes
};
// bytes: of the whole group, and no more. Everything is checked but the place. Errors: Errc::corrupt, and
// Errc::invalid for another version.
Result<Group> decode_group(ByteSpan bytes);
// Whether the checksum of the records is right, for a header whose checksum is right.
bool has_whole_records(const GroupHeader& header, ByteSpan bytes);

}  // namespace twinloft::intake_log
