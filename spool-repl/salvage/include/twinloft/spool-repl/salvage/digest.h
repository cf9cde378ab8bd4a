// The identity of a message: a digest of its content, which stays the same when the message is delivered once
// more.
//
// A delivery prepends trace fields, and turns line ends around. So the digest is taken of the content behind
// the leading fields that final delivery writes, with every line end as LF; docs/formats/salvage.md has the
// rule and its reasons.
//
// SHA-256, since mail is written by strangers: of a hash without that strength a sender could make a message
// with the digest of another message, which would then count as delivered.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"

namespace twinloft::repl::salvage {

struct Sha256 {
  std::array<std::byte, 32> bytes{};
  auto operator<=>(const Sha256&) const = default;
  std::string hex() const;
  static Result<Sha256> parse(std::string_view hex);
};

class Sha256Hasher {
 public:
  Sha256Hasher();
  ~Sha256Hasher();
  void update(ByteSpan data);
  Sha256 digest();  // once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The trace is looked for in so many bytes at a message's start; what of it lies behind them is content.
inline constexpr std::size_t trace_bytes_max = 8192;
// The first bytes of the content, whose digest tells most messages apart without reading them to the end.
inline constexpr std::size_t head_bytes = 4096;

// Bytes of the leading trace fields. `start`: the message's first bytes, trace_bytes_max of them or more;
// where it has fewer, `all` of it.
std::size_t trace_length(std::string_view start, bool all);
// These fields without those that name a recipient, for a message that is delivered once more.
std::string without_delivered_to(std::string_view trace);

struct ContentDigest {
  Sha256 content;           // of the whole content
  Sha256 head;              // of its first head_bytes
  std::uint64_t bytes = 0;  // of the content, with LF line ends
  std::uint64_t lines = 0;  // of the content
  bool operator==(const ContentDigest&) const = default;

  // What the size of a file that holds this content lies between: it may have a trace, CRLF line ends (with a
  // CR too many in each), and no last line end.
  std::uint64_t file_bytes_min() const { return bytes == 0 ? 0 : bytes - 1; }
  std::uint64_t file_bytes_max() const { return bytes + 2 * lines + trace_bytes_max; }
};

// Takes a message's bytes in any pieces.
class ContentHasher {
 public:
  void update(ByteSpan data);
  ContentDigest finish();  // once
  bool head_known() const { return head_taken_; }
  const Sha256& head() const { return out_.head; }  // once it is known

 private:
  void take(std::string_view raw);
  void put(std::string_view text);

  std::string start_;  // until it is known where the trace ends
  bool started_ = false, head_taken_ = false;
  std::size_t pending_cr_ = 0;
  char last_ = '\n';
  Sha256Hasher whole_, first_;
  ContentDigest out_;
};

// Of the file from its beginning (pread). Errors: Errc::io with the errno.
Result<ContentDigest> digest_file(int fd);

}  // namespace twinloft::repl::salvage
