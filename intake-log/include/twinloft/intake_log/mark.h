// The mark of the intake log: which entries are settled, that is renamed into their Maildirs or cancelled.
//
// It is an extended attribute of the log's directory. The file system commits it with, or after, every rename
// that was made before it was set. So a mark that survives a power cut proves its renames.
// docs/formats/intake-log.md has the bytes. Pure: no I/O. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/ids.h"
#include "twinloft/base/result.h"

namespace twinloft::intake_log {

inline constexpr const char* mark_attribute = "user.twinloft.intake.mark";
inline constexpr std::uint16_t mark_version = 1;
inline constexpr std::size_t mark_bytes_max = 3600;  // fits into ext4's block for attributes
inline constexpr std::size_t mark_fixed_bytes = 36;
inline constexpr std::size_t mark_words_max = (mark_bytes_max - mark_fixed_bytes) / sizeof(std::uint64_t);

class Mark {
 public:
  // Everything below `prefix` is settled.
  explicit Mark(const Uuid& incarnation, std::uint64_t prefix = 0);

  const Uuid& incarnation() const { return incarnation_; }
  std::uint64_t prefix() const { return prefix_; }  // all entries below are settled
  std::uint64_t end() const;                        // no entry from here on is settled
  // Only entries below have a place in the mark. It grows with the prefix.
  std::uint64_t room() const;
  bool is_settled(std::uint64_t entry) const;
  // entry: below room().
  void settle(std::uint64_t entry);
  void settle_below(std::uint64_t end);
  // Everything that `other`, a mark of the same log, says too.
  void merge(const Mark& other);

  std::vector<std::byte> encode() const;  // at most mark_bytes_max
  // A mark of this log. Errors: Errc::corrupt (size, checksum, contradiction), Errc::conflict (of another
  // log), Errc::invalid (another version).
  static Result<Mark> decode(ByteSpan bytes, const Uuid& incarnation);

  bool operator==(const Mark&) const = default;

 private:
  std::uint64_t base() const { return prefix_ - prefix_ % 64; }  // of the first word
  void advance();

  Uuid incarnation_;
  std::uint64_t prefix_;
  // Bits from base() on. The bits below the prefix are set in the first word, if there is one. The last word
  // has a bit above the prefix.
  std::vector<std::uint64_t> words_;
};

}  // namespace twinloft::intake_log
