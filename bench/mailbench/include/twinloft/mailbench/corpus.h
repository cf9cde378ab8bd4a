// Real messages as the content of a run: from a directory of files, such as a Maildir, or from an mbox.
//
// A message keeps its header and body. Only its Message-ID is replaced, so that no server takes its
// repetition for a duplicate, and mailbench's own fields come first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/hash.h"
#include "twinloft/base/result.h"
#include "twinloft/mailbench/message.h"

namespace twinloft::mailbench {

struct CorpusMessage {
  std::string header;                            // as sent, without Message-ID and the empty line
  std::string body;                              // as sent
  Hash128 digest;                                // of the canonical body
  std::string fields[std::size(kHeadFields)];    // by kHeadFields, with LF; the place of Message-ID is empty
  std::uint64_t header_size = 0, body_size = 0;  // bytes with CRLF, before dot stuffing
  bool eight_bit = false;
};

class Corpus {
 public:
  static constexpr std::uint64_t kBytesMax = 1u << 30;  // of all messages; the others are left out

  // dot_stuffed: the form for DATA. Errors: Errc::not_found (no file, or no message in it), or of reading.
  static Result<Corpus> load(const std::string& path, bool dot_stuffed);

  const std::vector<CorpusMessage>& messages() const { return messages_; }
  // What was taken and what was left out, in words.
  std::string summary() const;
  double mean_size() const;

 private:
  explicit Corpus(bool dot_stuffed) : dot_stuffed_(dot_stuffed) {}
  Status load_directory(const std::string& path);
  void take_file(std::string_view text);  // a message or an mbox
  void take_mbox(std::string_view text);
  void take(std::string_view text);

  bool dot_stuffed_;
  std::vector<CorpusMessage> messages_;
  std::uint64_t bytes_ = 0, without_header_ = 0, with_bad_bytes_ = 0, beyond_limit_ = 0, long_lines_ = 0;
};

}  // namespace twinloft::mailbench
