// Packets of the milter protocol (protocol.h): their bytes, and a reader for any split of the bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/milter/protocol.h"

namespace twinloft::lmtpd::milter {

struct Packet {
  char kind = 0;
  std::string_view data;
};

// Appends a packet. data: at most data_bytes_max bytes.
void append_packet(std::string& out, char kind, std::string_view data);

// Appends a number of 4 bytes.
void append_number(std::string& out, std::uint32_t number);

// Takes numbers and texts from the front of a packet's data. After the first short read, ok() is false, and
// every value is empty.
class DataReader {
 public:
  explicit DataReader(std::string_view data) : rest_(data) {}
  std::uint32_t number();
  // A text up to its NUL byte. The last text of a packet may lack the NUL byte.
  std::string_view text();
  bool at_end() const { return rest_.empty(); }
  bool ok() const { return ok_; }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

class PacketReader {
 public:
  // A filter's packet has at most these bytes of data. The largest known ones are chunks of a body.
  static constexpr std::size_t data_from_filter_max = 256 * 1024;

  void add(std::string_view bytes);
  // The next packet; its data is valid until the next call. nullopt: its bytes are not complete.
  // Errc::invalid: a packet without a kind, or with more than data_from_filter_max bytes; there is no next
  // packet then.
  Result<std::optional<Packet>> next();
  // Frees the buffer if it is empty, and larger than this.
  void free_memory(std::size_t kept_max) {
    if (!has_rest() && bytes_.capacity() > kept_max) std::string().swap(bytes_), at_ = 0;
  }
  // Whether bytes are left that next() has not returned.
  bool has_rest() const { return bytes_.size() > at_; }

 private:
  std::string bytes_;
  std::size_t at_ = 0;  // of the next packet
};

}  // namespace twinloft::lmtpd::milter
