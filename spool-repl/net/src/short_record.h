// A record's body in memory, as the parts of a short record message.
#pragma once

#include <span>
#include <vector>

#include "twinloft/spool-repl/format/short_record.h"

namespace twinloft::repl::net {

class ShortRecord {
 public:
  // pieces: the body's meta, then whole blocks. Keeps the memory of the record before.
  void set(std::uint32_t meta_bytes, std::span<const ByteSpan> pieces);
  // Empty: the record message is shorter.
  const std::vector<PayloadRun>& runs() const { return runs_; }
  // Appends the payload of the message behind encode_short_record_prefix().
  void add_parts(std::vector<ByteSpan>& to) const;

 private:
  std::vector<ByteSpan> meta_;
  std::vector<const std::byte*> blocks_;
  std::vector<PayloadRun> runs_;
};

}  // namespace twinloft::repl::net
