// The bytes of NBD: constants, headers of requests and replies, and the validity of requests, without I/O.
//
// Source: the NBD protocol specification (NetworkBlockDevice/nbd, doc/proto.md), fixed newstyle negotiation
// with structured replies. All integers are big-endian.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <optional>

#include "twinloft/base/bytes.h"

namespace twinloft::repl::nbd {

inline constexpr std::uint64_t greeting_magic = 0x4e42444d41474943;  // "NBDMAGIC"
inline constexpr std::uint64_t option_magic = 0x49484156454f5054;    // "IHAVEOPT"
inline constexpr std::uint64_t option_reply_magic = 0x0003e889045565a9;
inline constexpr std::uint32_t request_magic = 0x25609513;
inline constexpr std::uint32_t simple_reply_magic = 0x67446698;
inline constexpr std::uint32_t structured_reply_magic = 0x668e33ef;

inline constexpr std::uint16_t handshake_fixed_newstyle = 1;
inline constexpr std::uint16_t handshake_no_zeroes = 2;

enum class Option : std::uint32_t {
  export_name = 1,
  abort = 2,
  list = 3,
  starttls = 5,
  info = 6,
  go = 7,
  structured_reply = 8,
  list_meta_context = 9,
  set_meta_context = 10,
};

enum class OptionReply : std::uint32_t {
  ack = 1,
  server = 2,
  info = 3,
  err_unsup = 0x80000001,
  err_policy = 0x80000002,
  err_invalid = 0x80000003,
  err_tls_reqd = 0x80000005,
  err_unknown = 0x80000006,
  err_shutdown = 0x80000007,
  err_too_big = 0x80000009,
};

enum class Info : std::uint16_t { export_ = 0, name = 1, description = 2, block_size = 3 };

// Transmission flags.
inline constexpr std::uint16_t flag_has_flags = 1 << 0;
inline constexpr std::uint16_t flag_send_flush = 1 << 2;
inline constexpr std::uint16_t flag_send_fua = 1 << 3;
inline constexpr std::uint16_t flag_send_trim = 1 << 5;
inline constexpr std::uint16_t flag_send_write_zeroes = 1 << 6;
inline constexpr std::uint16_t flag_send_df = 1 << 7;
inline constexpr std::uint16_t flag_can_multi_conn = 1 << 8;
inline constexpr std::uint16_t flag_send_cache = 1 << 10;
inline constexpr std::uint16_t flag_send_fast_zero = 1 << 11;

enum class Command : std::uint16_t {
  read = 0,
  write = 1,
  disconnect = 2,
  flush = 3,
  trim = 4,
  cache = 5,
  write_zeroes = 6,
};

// Command flags.
inline constexpr std::uint16_t command_fua = 1 << 0;
inline constexpr std::uint16_t command_no_hole = 1 << 1;
inline constexpr std::uint16_t command_df = 1 << 2;
inline constexpr std::uint16_t command_fast_zero = 1 << 4;

enum class WireError : std::uint32_t {
  none = 0,
  eperm = 1,
  eio = 5,
  enomem = 12,
  einval = 22,
  enospc = 28,
  eoverflow = 75,
  enotsup = 95,
  eshutdown = 108,
};
// The protocol's error of an errno. EIO: the protocol has no such error.
WireError to_wire_error(int sys);

inline constexpr std::uint32_t min_block_bytes = 1;
inline constexpr std::uint32_t preferred_block_bytes = 4096;
inline constexpr std::uint32_t max_payload_bytes = 32u << 20;  // of a READ or WRITE

template <std::unsigned_integral T>
T load_be(const std::byte* at) {
  T value = load_le<T>(at);
  if constexpr (sizeof(T) > 1) value = std::byteswap(value);
  return value;
}
template <std::unsigned_integral T>
void store_be(std::byte* at, T value) {
  if constexpr (sizeof(T) > 1) value = std::byteswap(value);
  store_le(at, value);
}

inline constexpr std::size_t request_bytes = 28;
struct Request {
  std::uint16_t flags = 0;
  std::uint16_t command = 0;  // as received, possibly not a value of Command
  std::uint64_t cookie = 0;
  std::uint64_t offset = 0;  // bytes
  std::uint32_t length = 0;  // bytes

  bool is(Command c) const { return command == static_cast<std::uint16_t>(c); }
  bool fua() const { return (flags & command_fua) != 0; }
};
// Nothing: the magic is wrong. The position in the stream is lost, and the connection must be closed.
std::optional<Request> decode_request(std::span<const std::byte, request_bytes> in);
void encode_request(const Request& request, std::span<std::byte, request_bytes> out);

// Checks a request before it is executed. `none`: a target of `size_bytes` may execute it.
WireError check_request(const Request& request, std::uint64_t size_bytes);

// The header of a reply. The data of a READ follows its header. Structured replies are used for READ alone,
// with one chunk each.
inline constexpr std::size_t max_reply_header_bytes = 28;
struct ReplyHeader {
  std::array<std::byte, max_reply_header_bytes> bytes;
  std::uint8_t size = 0;
};
ReplyHeader encode_reply(const Request& request, WireError error, bool structured);

// Separates a stream into requests and the payload of writes, for any split of the stream.
class RequestReader {
 public:
  enum class Event {
    need_input,  // all input was used
    request,     // request() is the next request. The payload of a WRITE follows, also if check_request()
                 // refuses it
    payload,     // `piece` is the next part of the payload. payload_left() == 0: the payload is complete
    bad_magic,   // the connection must be closed
  };
  // Removes bytes from the front of `in`.
  Event next(ByteSpan& in, ByteSpan& piece);
  const Request& request() const { return request_; }
  std::uint32_t payload_left() const { return payload_left_; }
  // The caller has received `bytes` of the payload by itself.
  void payload_received(std::uint32_t bytes);

 private:
  std::array<std::byte, request_bytes> header_;
  std::size_t header_have_ = 0;
  std::uint32_t payload_left_ = 0;
  Request request_;
};

}  // namespace twinloft::repl::nbd
