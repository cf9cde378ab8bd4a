// Sends and receives bytes on one socket, in clear text or over TLS. Never blocks.
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
    done,        // `bytes` were transferred
    want_read,   // nothing now: retry when the socket is readable
    want_write,  // nothing now: retry when the socket is writable; over TLS, also from receive()
    end,         // the client has closed its side in order
    broken,      // an error, or a TLS connection that ended without close_notify
  };
  struct Outcome {
    State state;
    std::size_t bytes = 0;
  };

  Wire() = default;
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // The caller owns the descriptor, which must outlive the Wire.
  void attach(int fd) { fd_ = fd; }
  Outcome receive(std::span<char> into);
  Outcome send(std::string_view bytes);

  // Switches to TLS. The caller then calls handshake() until `done`.
  Status start_tls(std::shared_ptr<const TlsContext> context);
  Outcome handshake();
  bool is_secured() const { return tls_ != nullptr; }
  std::string why() const { return why_; }  // OpenSSL's reason for `broken`; empty: the connection ended
  // "TLSv1.3 with cipher TLS_AES_256_GCM_SHA384", and the name in the client's certificate if there is one.
  std::string how() const;
  // TLS has decrypted bytes that receive() has not returned. The socket may not become readable for them.
  bool holds_input() const;
  // Sends TLS close_notify, if TLS is in use.
  void announce_end();

 private:
  Outcome outcome_of(int result);

  int fd_ = -1;
  ssl_st* tls_ = nullptr;
  std::shared_ptr<const TlsContext> context_;
  bool failed_ = false;  // OpenSSL must not be called again
  std::string why_;
};

}  // namespace twinloft::lmtpd
