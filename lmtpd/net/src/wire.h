// One socket's bytes, in clear or over TLS. Never blocks.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "twinloft/lmtpd/tls/tls.h"

struct ssl_st;

namespace twinloft::lmtpd {

class Wire {
 public:
  enum class State {
    done,        // `bytes` of them
    want_read,   // nothing now: again when the socket can be read
    want_write,  // likewise; over TLS, also for receive()
    end,         // the client has ended its side in order
    broken,      // an error, or over TLS an end without its announcement
  };
  struct Outcome {
    State state;
    std::size_t bytes = 0;
  };

  Wire() = default;
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // The descriptor is somebody else's, and outlives it.
  void attach(int fd) { fd_ = fd; }
  Outcome receive(std::span<char> into);
  Outcome send(std::string_view bytes);

  // From now on TLS. Then handshake() until it is done.
  Status start_tls(std::shared_ptr<const TlsContext> context);
  Outcome handshake();
  bool is_secured() const { return tls_ != nullptr; }
  std::string why() const { return why_; }  // it is broken, as OpenSSL says; empty: the connection ended
  std::string how() const;  // "TLSv1.3 with cipher TLS_AES_256_GCM_SHA384"; and the client's certificate's
                            // name, where it has shown one
  // Bytes that were received and not taken yet: the socket may not become readable for them.
  bool holds_input() const;
  // Sends the client its last reply, where one is due; once.
  void announce_end();

 private:
  Outcome outcome_of(int result);

  int fd_ = -1;
  ssl_st* tls_ = nullptr;
  std::shared_ptr<const TlsContext> context_;
  bool failed_ = false;  // no call of OpenSSL any more
  std::string why_;
};

}  // namespace twinloft::lmtpd
