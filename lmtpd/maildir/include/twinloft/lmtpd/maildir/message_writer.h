// Converts a message as received (CRLF line ends) to a message as stored or piped, in chunks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

// Converts CRLF to LF, for any split of the input. A CR without a following LF is kept. Of CR CR LF, the
// second CR is removed.
class LineEndConverter {
 public:
  void feed(std::string_view in, std::string& out);
  void finish(std::string& out);  // a CR at the very end
  // The number of written LFs without a CR before them: the difference to the size with CRLF (Dovecot's W=).
  std::uint64_t bare_lf_count() const { return bare_lf_count_; }

 private:
  void put_line(std::string_view line_without_lf, std::string& out);
  bool pending_cr_ = false;
  char last_ = 0;  // last byte written
  std::uint64_t bare_lf_count_ = 0;
};

struct StoredSize {
  std::uint64_t bytes = 0;
  std::uint64_t crlf_bytes = 0;  // with CRLF line ends
};

using ChunkSink = std::function<Status(std::string_view)>;

// Calls `sink` with `header` (LF line ends) and then the body, in large pieces. crlf: all line ends become
// CRLF, and the body is unchanged.
Result<StoredSize> write_message(std::string_view header, const MessageBody& body, bool crlf,
                                 const ChunkSink& sink);

// Calls `sink` with at most `limit` bytes of the body as received.
Status read_body(const MessageBody& body, std::uint64_t limit, const ChunkSink& sink);

}  // namespace twinloft::lmtpd
