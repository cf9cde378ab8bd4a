// TLS as a server (RFC 3207): certificate, key, and whose certificates clients may show; and as a client.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "twinloft/base/result.h"

struct ssl_ctx_st;

namespace twinloft::lmtpd {

// In PEM, already read: files that only root may read are read before privileges are dropped, or by who still
// has them.
struct TlsMaterial {
  std::string certificate;  // the server's, then those between it and the authority's
  std::string key;
  std::string client_ca;  // empty: clients are not asked for a certificate
  bool client_certificate_required = false;
  bool tls_1_2 = true;                            // else 1.3 only
  std::vector<std::string> client_subjects = {};  // a client's certificate has one of these names; empty: any
};

// What connections need, the same for all. Immutable: a reload makes a new one, and connections that have the
// old one keep it.
class TlsContext {
 public:
  // Errors: no certificate or key in the text, a key of another certificate, all with what OpenSSL says.
  static Result<std::shared_ptr<const TlsContext>> create(const TlsMaterial& material);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_ctx_st* get() const { return context_; }
  std::int64_t expires_in_days() const;  // of the certificate; below 0: it has

 private:
  using Subjects = std::vector<std::string>;
  TlsContext(ssl_ctx_st* context, std::unique_ptr<const Subjects> subjects)
      : context_(context), subjects_(std::move(subjects)) {}
  ssl_ctx_st* context_;
  std::unique_ptr<const Subjects> subjects_;  // the context points to them
};

// For connections to others.
struct TlsClientMaterial {
  std::string ca;           // whose certificates are good; empty: those that the machine trusts
  std::string certificate;  // empty: none is shown
  std::string key;
  std::string name;  // that the server's certificate is to have, a host name or a numeric address; empty:
                     // nothing of it is verified
  bool tls_1_2 = true;
};

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
