// Replies of an SMTP or LMTP server (RFC 5321 section 4.2), parsed from any split of the bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/result.h"

namespace twinloft::mailbench {

struct Reply {
  int code = 0;                    // 200..599 (1xx is refused as malformed)
  std::vector<std::string> lines;  // without code and separator, at least one
};

class ReplyParser {
 public:
  static constexpr std::size_t kLineMax = 4096;  // bytes. RFC 5321 allows 512; replies to LHLO are longer in
                                                 // practice
  static constexpr std::size_t kLinesMax = 256;

  // Removes bytes from the front of `bytes`, up to the end of a reply. True: reply() is complete, and `bytes`
  // has the rest. False: all bytes were used, and the reply is not complete. Errors: Errc::corrupt (not a
  // reply).
  Result<bool> feed(std::string_view& bytes);
  const Reply& reply() const { return reply_; }

 private:
  Result<bool> end_line();
  std::string line_;
  Reply reply_;
  bool open_ = false;  // within a multi-line reply
};

}  // namespace twinloft::mailbench
