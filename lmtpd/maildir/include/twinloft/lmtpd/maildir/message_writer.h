// From a message as received (CRLF line ends) to a message as stored or piped, in chunks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

// Turns CRLF into LF over any split of its input. A CR that no LF follows stays; in CR CR LF only the second
// goes.
class LineEndConverter {
 public:
  void feed(std::string_view in, std::string& out);
  void finish(std::string& out);  // a CR at the very end
  // LFs written without a CR before them: what the size grows by when every line end is CRLF (Dovecot's W=).
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

// Calls `sink` with `header` (LF line ends) and then the body, in as few and large pieces as memory allows.
// With `crlf` all line ends are CRLF, and the body goes out as it is.
Result<StoredSize> write_message(std::string_view header, const MessageBody& body, bool crlf,
                                 const ChunkSink& sink);

// Calls `sink` with the body as received, at most `limit` bytes of it.
Status read_body(const MessageBody& body, std::uint64_t limit, const ChunkSink& sink);

}  // namespace twinloft::lmtpd
