// A connection as a stream of bytes, with a point in time by which each step has to be done.
#pragma once

#include <memory>
#include <string>

#include "twinloft/base/bytes.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/tls/tls.h"

namespace twinloft::lmtpd {

// Every error is the end of the stream. Errc::timeout: the deadline; Errc::unavailable: the other side has
// ended it, or the network has; Errc::denied: TLS failed.
class Stream {
 public:
  virtual ~Stream() = default;
  // Some bytes, at least one.
  virtual Result<std::size_t> read(MutableByteSpan into, Instant deadline) = 0;
  // All of it.
  virtual Status write(std::string_view bytes, Instant deadline) = 0;
  virtual Status start_tls(const TlsClientContext& tls, Instant deadline) = 0;
  // Whether something has come that was not read, be it the end.
  virtual bool has_news() = 0;
  // From any thread: what waits, and what comes later, fails.
  virtual void shut() = 0;
};

// Of a connected non-blocking socket. SIGPIPE is ignored by the process: what TLS writes would raise it. The
// clock outlives it.
std::unique_ptr<Stream> make_socket_stream(Fd socket, const Clock& clock);

}  // namespace twinloft::lmtpd
