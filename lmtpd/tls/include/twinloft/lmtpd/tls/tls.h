// The contexts of TLS connections: as a server (RFC 3207), with rules for the clients' certificates, and as a
// client.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "twinloft/base/result.h"

struct ssl_ctx_st;

namespace twinloft::lmtpd {

// The content of PEM files, read by a process that may still read files of root.
struct TlsMaterial {
  std::string certificate;  // of the server, then the intermediate certificates
  std::string key;
  std::string client_ca;  // empty: clients are not asked for a certificate
  bool client_certificate_required = false;
  bool tls_1_2 = true;                            // false: TLS 1.3 alone
  std::vector<std::string> client_subjects = {};  // the allowed names of clients' certificates; empty: all
};

// The part that all connections share. Immutable: a reload makes a new context, and connections keep the
// context that they began with.
class TlsContext {
 public:
  // Errors: no certificate or key in the text, or a key of another certificate. The message is OpenSSL's.
  static Result<std::shared_ptr<const TlsContext>> create(const TlsMaterial& material);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_ctx_st* get() const { return context_; }
  std::int64_t expires_in_days() const;  // of the certificate. Negative: it has expired

 private:
  using Subjects = std::vector<std::string>;
  TlsContext(ssl_ctx_st* context, std::unique_ptr<const Subjects> subjects)
      : context_(context), subjects_(std::move(subjects)) {}
  ssl_ctx_st* context_;
  std::unique_ptr<const Subjects> subjects_;  // context_ points to them
};

// For connections to servers. PEM, as above.
struct TlsClientMaterial {
  std::string ca;           // the trusted authorities; empty: those of the machine
  std::string certificate;  // of lmtpd as a client; empty: none
  std::string key;
  std::string name;  // the name of the server in its certificate, a host name or a numeric address. Empty:
                     // the certificate is not verified
  bool tls_1_2 = true;
};

// As TlsContext, for connections to servers.
class TlsClientContext {
 public:
  static Result<std::shared_ptr<const TlsClientContext>> create(const TlsClientMaterial& material);
  ~TlsClientContext();
  TlsClientContext(const TlsClientContext&) = delete;
  TlsClientContext& operator=(const TlsClientContext&) = delete;

  ssl_ctx_st* get() const { return context_; }
  const std::string& name() const { return name_; }

 private:
  TlsClientContext(ssl_ctx_st* context, std::string name) : context_(context), name_(std::move(name)) {}
  ssl_ctx_st* context_;
  const std::string name_;
};

}  // namespace twinloft::lmtpd
