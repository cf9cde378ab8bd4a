// What a TLS connection needs: TLS 1.3 (RFC 8446) alone, with both sides authenticated.
//
// Either by certificates of one's own authority, or by a key that both sides have (an external PSK with an
// ephemeral key exchange, RFC 8446, 2.2). No tickets and no early data, so that no connection can be
// replayed. A context serves both roles, client and server, and is immutable: a reload makes a new one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"

struct ssl_ctx_st;
struct ssl_st;
struct ssl_session_st;

namespace twinloft::repl::stream {

// The content of PEM files.
struct TlsMaterial {
  std::string certificate;  // of this side, then the intermediate certificates
  std::string key;
  std::string authorities;  // that sign the other side's certificate, at least one
};

// What makes the records of the output after the handshake.
enum class Records {
  openssl,
  below,  // the stream below, if it can (Stream::seal_output)
};

class TlsContext {
 public:
  // Errors: Errc::invalid, with OpenSSL's message.
  static Result<std::shared_ptr<const TlsContext>> by_certificates(const TlsMaterial& material,
                                                                   Records records = Records::openssl);
  // The key of the connections is derived from `secret` and `purpose` (HKDF-SHA256, RFC 5869).
  static Result<std::shared_ptr<const TlsContext>> by_secret(const std::string& secret,
                                                             const std::string& purpose,
                                                             Records records = Records::openssl);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_ctx_st* get() const { return context_; }
  bool has_certificate() const { return !key_; }
  Records records() const { return records_; }
  // When this side's own certificate ends, in seconds since 1970. Nothing: by a secret.
  std::optional<std::int64_t> expires() const;

  // For OpenSSL's callbacks. Returns a new session with the key, or null.
  ssl_session_st* session_of_key(ssl_st* connection) const;
  const std::string& purpose() const { return purpose_; }

 private:
  using Key = std::array<unsigned char, 32>;
  TlsContext(ssl_ctx_st* context, Records records);
  ssl_ctx_st* context_;
  Records records_;
  std::optional<Key> key_;
  std::string purpose_;  // in clear text on the wire
};

}  // namespace twinloft::repl::stream
