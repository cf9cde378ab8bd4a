// A connection as a stream of bytes. Each operation has a deadline.
#pragma once

#include <memory>
#include <string>

#include "twinloft/base/bytes.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/tls/tls.h"

namespace twinloft::lmtpd {

// After an error, the stream cannot be used. Errors: Errc::timeout (the deadline has passed),
// Errc::unavailable (the other side or the network has ended the connection), Errc::denied (TLS failed).
class Stream {
 public:
  virtual ~Stream() = default;
  // Reads at least one byte. Returns the number of bytes.
  virtual Result<std::size_t> read(MutableByteSpan into, Instant deadline) = 0;
  // Writes all bytes.
  virtual Status write(std::string_view bytes, Instant deadline) = 0;
  virtual Status start_tls(const TlsClientContext& tls, Instant deadline) = 0;
  // Whether unread bytes have arrived, or the end of the stream.
  virtual bool has_news() = 0;
  // From any thread: the present operation and all later operations fail.
  virtual void shut() = 0;
};

// socket: connected and non-blocking. The process must ignore SIGPIPE, since writes by TLS would raise it.
// The clock outlives the stream.
std::unique_ptr<Stream> make_socket_stream(Fd socket, const Clock& clock);

}  // namespace twinloft::lmtpd
