// The messages of a run. A message is a pure function of the settings and its number, so that a retry sends
// the same bytes.
//
// A body consists mostly of lines of one block of text. The block is made at the start in two forms:
// canonical (LF, for the digest), and as sent (CRLF; dot-stuffed for DATA, RFC 5321 section 4.5.2). A message
// needs one pass of XXH3 over its body, and no copy of the body. A message of a corpus needs neither.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/hash.h"
#include "twinloft/base/result.h"
#include "twinloft/mailbench/popularity.h"
#include "twinloft/mailbench/units.h"

namespace twinloft::mailbench {

class TextBlock {
 public:
  explicit TextBlock(std::uint64_t seed, bool dot_stuffed = true, std::size_t size_min = 1 << 20);

  struct Slice {
    std::string_view canonical;  // lines end in LF
    std::string_view wire;       // as sent
    std::uint64_t size = 0;      // bytes with CRLF, before dot-stuffing, as in a message size
  };
  std::size_t line_count() const { return canonical_at_.size() - 1; }
  // As many whole lines from `first` on as fit into `size_max` bytes, up to the end of the block. Sets `next`
  // to the line after the slice, or to 0 at the end of the block.
  Slice slice(std::size_t first, std::uint64_t size_max, std::size_t& next) const;

 private:
  void add_line(std::string_view line);
  bool dot_stuffed_;
  std::string canonical_, wire_;
  std::vector<std::size_t> canonical_at_, wire_at_;  // the start of each line, and the end
};

// The recipients of a run: numbered by a format, or from a list.
class Users {
 public:
  // format: with %u (the number) or %0Nu (the number in N digits) once. %% is a percent sign. Errors:
  // Errc::invalid.
  static Result<Users> from_format(std::string format, std::uint64_t first, std::uint64_t count);
  // In this order; an address that comes again is left out.
  static Result<Users> from_list(std::vector<std::string> addresses);
  std::uint64_t size() const { return count_; }
  std::string address(std::uint64_t index) const;  // index < size()

 private:
  std::vector<std::string> list_;
  std::string before_, after_;
  std::uint64_t first_ = 1, count_ = 0;
  int width_ = 0;
  bool numbered_ = true;
};

struct Message {
  std::uint64_t number = 0;
  std::string id;                        // "<run>-<number>"
  std::vector<std::string> recipients;   // all different
  Hash128 digest;                        // of the canonical body
  std::uint64_t size = 0;                // bytes with CRLF, before dot stuffing
  std::string head;                      // as sent: header, empty line, first line of the body
  std::vector<std::string_view> middle;  // as sent: slices of the TextBlock, or of the corpus
  std::string tail;                      // as sent: the last line, if any, and the final dot for DATA
  bool eight_bit = false;
};

// The digest of a body: XXH3-128 of the body with LF in place of CRLF.
Hash128 digest_of_body(std::string_view body, Hasher128& hasher);
// The digest of the generator's header lines, as name and value, in the order of kHeadFields.
inline constexpr std::string_view kHeadFields[] = {"From", "To", "Date", "Message-ID", "Subject"};
class HeadDigest {
 public:
  explicit HeadDigest(Hasher128& hasher) : hasher_(hasher) { hasher_.reset(); }
  void add(std::string_view name, std::string_view value);
  Hash128 digest() const { return hasher_.digest(); }

 private:
  Hasher128& hasher_;
};

class Corpus;

class MessageFactory {
 public:
  struct Settings {
    std::string run;   // [A-Za-z0-9.]+
    std::string from;  // envelope sender, also in From:
    std::uint64_t seed = 1;
    std::size_t recipients_per_message = 1;
    SizeDistribution size{};
    WallTime date{};
    double zipf = 0;                 // exponent of the users' popularity
    bool dot_stuffed = true;         // for DATA; false: for BDAT
    const Corpus* corpus = nullptr;  // replaces `size`
  };
  // users, block and corpus must outlive the factory. The block and the corpus have the form of
  // `dot_stuffed`. recipients_per_message is at most users.size().
  MessageFactory(Settings settings, const Users& users, const TextBlock& block);
  // Reuses the buffers of `out`. The smallest message is the header and one line, about 500 bytes.
  void make(std::uint64_t number, Message& out);

 private:
  void draw_recipients(SeededRandom& random, Message& out);
  void make_own(SeededRandom& random, Message& out);
  void make_from_corpus(SeededRandom& random, Message& out);
  void write_header(const Message& out);
  void write_body(SeededRandom& random, std::uint64_t body_size, Message& out);

  Settings settings_;
  const Users& users_;
  const TextBlock& block_;
  Popularity popularity_;
  Hasher128 hasher_;
  const std::string from_, date_;
  // Buffers of a message.
  std::string to_, message_id_, subject_, header_, first_line_;
  std::size_t digest_at_ = 0;
  std::vector<std::uint64_t> chosen_;
};

// RFC 5322 section 3.3, in UTC.
std::string format_date(WallTime time);

}  // namespace twinloft::mailbench
