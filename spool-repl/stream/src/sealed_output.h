// The output of a TLS 1.3 connection whose records the stream below makes (RFC 8446, 5): content, alerts, and
// changes of the key.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "twinloft/spool-repl/stream/record_key.h"
#include "twinloft/spool-repl/stream/stream.h"

namespace twinloft::repl::stream {

class SealedOutput {
 public:
  // below outlives this. Null: the stream below cannot do it, and nothing has changed.
  static std::unique_ptr<SealedOutput> begin(Stream& below, TrafficSecret secret,
                                             std::uint64_t records_of_key);

  // As Stream::write. Nothing is accepted while is_waiting().
  Result<std::size_t> write(std::span<iovec> from);
  // These come after the accepted bytes. A change of the key that waits is enough for a further one.
  void change_key();
  void alert(std::uint8_t level, std::uint8_t description);
  // Sends waiting records as far as there is room. Errors: of the stream below, or it does not take the key.
  // After an error, push() and write() return it again, since the other side uses the next key already.
  Status push();
  bool is_waiting() const { return !waiting_.empty(); }

 private:
  struct Record {
    std::uint8_t type = 0;
    std::vector<std::byte> content;
    bool changes_key = false;
  };
  SealedOutput(Stream& below, TrafficSecret secret, std::uint64_t records_of_key)
      : below_(below), secret_(std::move(secret)), records_of_key_(records_of_key) {}
  Status push_waiting();
  Status use_next_key();

  Stream& below_;
  TrafficSecret secret_;
  const std::uint64_t records_of_key_;
  std::uint64_t records_ = 0;  // of the present key, at most
  std::deque<Record> waiting_;
  Status so_far_;  // the first error stays
};

}  // namespace twinloft::repl::stream
