// The client's side of TLS (OpenSSL), without I/O: bytes in, bytes out.
#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::mailbench {

struct TlsSettings {
  std::string authority;  // PEM file; empty: any certificate is accepted, as MTAs do by default
  std::string name;       // that the certificate must have, if there is an authority
};

class TlsContext {
 public:
  // Errors: Errc::invalid, the file of the authority cannot be used.
  static Result<TlsContext> make(const TlsSettings& settings);

 private:
  friend class TlsClient;
  struct Free {
    void operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
  };
  std::unique_ptr<SSL_CTX, Free> context_;
  std::string name_;
  bool checked_ = false;
};

class TlsClient {
 public:
  explicit TlsClient(const TlsContext& context);  // which must outlive the client

  // Takes bytes from the network, and goes on with the handshake. Errors: of the handshake or of a record.
  Status feed(std::string_view received);
  bool established() const { return established_; }
  // Decrypted bytes. 0: none until the next feed(). Errors: Errc::unavailable, the server has ended TLS.
  Result<std::size_t> read(std::span<char> out);
  Status write(std::string_view plain);  // after established()
  // Bytes for the network. The owner removes what it has sent.
  std::string& output();

 private:
  Status handshake();
  struct Free {
    void operator()(SSL* ssl) const { ::SSL_free(ssl); }
  };
  std::unique_ptr<SSL, Free> ssl_;
  BIO* received_ = nullptr;  // of ssl_
  BIO* sent_ = nullptr;
  std::string output_;
  bool checked_ = false, established_ = false;
};

}  // namespace twinloft::mailbench
