// The identity of a message: a digest of its content, which does not change when the message is delivered
// again.
//
// A delivery prepends trace fields, and converts line ends. So the digest is of the content after the leading
// fields of final delivery, with LF line ends. docs/formats/salvage.md has the rule and its reasons.
//
// The hash is SHA-256, since senders are strangers: with a weaker hash, a sender could make a message with
// the digest of another message, which would then count as delivered.
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

// The trace is searched in these bytes at a message's start. Later fields are content.
inline constexpr std::size_t trace_bytes_max = 8192;
// The first bytes of the content. Their digest distinguishes most messages without reading them to the end.
inline constexpr std::size_t head_bytes = 4096;

// The number of bytes of the leading trace fields. start: at least the first trace_bytes_max bytes of the
// message, or with `all` the whole message.
std::size_t trace_length(std::string_view start, bool all);
// The fields without those that name a recipient, for a repeated delivery.
std::string without_delivered_to(std::string_view trace);

struct ContentDigest {
  Sha256 content;           // of the whole content
  Sha256 head;              // of its first head_bytes
  std::uint64_t bytes = 0;  // of the content, with LF line ends
  std::uint64_t lines = 0;  // of the content
  bool operator==(const ContentDigest&) const = default;

  // The limits of the size of a file with this content: it may have a trace, CRLF line ends (with one more CR
  // each), and no last line end.
  std::uint64_t file_bytes_min() const { return bytes == 0 ? 0 : bytes - 1; }
  std::uint64_t file_bytes_max() const { return bytes + 2 * lines + trace_bytes_max; }
};

// Computes the digest of a message, for any split of its bytes.
class ContentHasher {
 public:
  void update(ByteSpan data);
  ContentDigest finish();  // once
  bool head_known() const { return head_taken_; }
  const Sha256& head() const { return out_.head; }  // once it is known

 private:
  void take(std::string_view raw);
  void put(std::string_view text);

  std::string start_;  // until the end of the trace is known
  bool started_ = false, head_taken_ = false;
  std::size_t pending_cr_ = 0;
  char last_ = '\n';
  Sha256Hasher whole_, first_;
  ContentDigest out_;
};

// The digest of the whole file (pread(2)). Errors: Errc::io with the errno.
Result<ContentDigest> digest_file(int fd);

}  // namespace twinloft::repl::salvage
