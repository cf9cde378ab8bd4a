// Messages of a run: each is a pure function of the run's settings and its number, so that a retried message
// is byte for byte the one sent before.
//
// The bulk of a body is a run of lines from one block of text made at the start, kept twice: as canonical
// text (LF, for the digest) and as sent (CRLF, dots stuffed, RFC 5321 section 4.5.2). A message costs one
// pass of XXH3 over its body and no copy of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/hash.h"
#include "twinloft/base/result.h"
#include "twinloft/mailbench/units.h"

namespace twinloft::mailbench {

class TextBlock {
 public:
  explicit TextBlock(std::uint64_t seed, std::size_t size_min = 1 << 20);

  struct Slice {
    std::string_view canonical;  // lines end in LF
    std::string_view wire;       // lines end in CRLF, leading dots doubled
    std::uint64_t size = 0;      // bytes with CRLF, before dot stuffing: what a message size counts
  };
  std::size_t line_count() const { return canonical_at_.size() - 1; }
  // Whole lines from `first` on, as many as fit into `size_max`; the slice ends with the block at the latest.
  // `next` receives the line after the slice (0 at the block's end).
  Slice slice(std::size_t first, std::uint64_t size_max, std::size_t& next) const;

 private:
  void add_line(std::string_view line);
  std::string canonical_, wire_;
  std::vector<std::size_t> canonical_at_, wire_at_;  // where each line starts; one entry more for the end
};

// The mailboxes mail is sent to: numbered by a format, or listed in a file.
class Users {
 public:
  // `format` holds %u (the number) or %0Nu (with leading zeros to N digits) once; %% is a percent sign.
  static Result<Users> from_format(std::string format, std::uint64_t first, std::uint64_t count);
  static Result<Users> from_list(std::vector<std::string> addresses);
  std::uint64_t size() const { return count_; }
  std::string address(std::uint64_t index) const;  // index < size()

 private:
  std::vector<std::string> list_;
  std::string before_, after_;
  std::uint64_t first_ = 1, count_ = 0;
  int width_ = 0;
};

struct Message {
  std::uint64_t number = 0;
  std::string id;                        // "<run>-<number>"
  std::vector<std::string> recipients;   // all different
  Hash128 digest;                        // of the canonical body
  std::uint64_t size = 0;                // bytes with CRLF, before dot stuffing
  std::string head;                      // as sent: header, blank line, first line of the body
  std::vector<std::string_view> middle;  // as sent: slices of the TextBlock
  std::string tail;                      // as sent: the last line, if any, and the final dot
};

// The body's digest: XXH3-128 of it with every CRLF turned into LF.
Hash128 digest_of_body(std::string_view body, Hasher128& hasher);
// The digest of the header lines that the generator wrote, as name and value. Names in kHeadFields' order.
inline constexpr std::string_view kHeadFields[] = {"From", "To", "Date", "Message-ID", "Subject"};
class HeadDigest {
 public:
  explicit HeadDigest(Hasher128& hasher) : hasher_(hasher) { hasher_.reset(); }
  void add(std::string_view name, std::string_view value);
  Hash128 digest() const { return hasher_.digest(); }

 private:
  Hasher128& hasher_;
};

class MessageFactory {
 public:
  struct Settings {
    std::string run;   // [A-Za-z0-9.]+
    std::string from;  // envelope sender, also in From:
    std::uint64_t seed = 1;
    std::size_t recipients_per_message = 1;
    SizeDistribution size;
    WallTime date;
  };
  // Both outlive the factory. recipients_per_message is at most users.size().
  MessageFactory(Settings settings, const Users& users, const TextBlock& block);
  // Reuses the buffers of `out`. A message is never smaller than its header and one line (about 500 bytes).
  void make(std::uint64_t number, Message& out);

 private:
  void draw_recipients(SeededRandom& random, Message& out) const;
  void write_header(Message& out, const Hash128& digest);
  void write_body(SeededRandom& random, std::uint64_t body_size, Message& out);
  std::uint64_t header_size(const Message& message);

  Settings settings_;
  const Users& users_;
  const TextBlock& block_;
  Hasher128 hasher_;
  std::string date_;
  std::string header_, first_line_;
};

// RFC 5322 section 3.3, in UTC.
std::string format_date(WallTime time);

}  // namespace twinloft::mailbench
