#include "twinloft/lmtpd/tls/tls.h"

#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include "twinloft/tls/pem.h"

namespace twinloft::lmtpd {

namespace {

// Compares with the names in the certificate: DNS names of the alternative names, or the common name.
// Wildcards of the certificate do not count.
bool has_one_of(X509* certificate, const std::vector<std::string>& names) {
  constexpr unsigned flags = X509_CHECK_FLAG_NO_WILDCARDS | X509_CHECK_FLAG_ALWAYS_CHECK_SUBJECT;
  for (const std::string& name : names)
    if (X509_check_host(certificate, name.data(), name.size(), flags, nullptr) == 1) return true;
  return false;
}

// Verifies as OpenSSL does, then checks the name. allowed: a vector of names.
int verify_client(X509_STORE_CTX* store, void* allowed) {
  int good = X509_verify_cert(store);
  if (good != 1 ||
      has_one_of(X509_STORE_CTX_get0_cert(store), *static_cast<const std::vector<std::string>*>(allowed)))
    return good;
  X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
  return 0;
}

Status use_client_ca(SSL_CTX* context, const TlsMaterial& material) {
  if (material.client_ca.empty()) return {};
  TL_TRY(tls::use_authorities(context, material.client_ca, "client_ca", tls::Authorities::asked));
  SSL_CTX_set_verify(
      context, SSL_VERIFY_PEER | (material.client_certificate_required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
      nullptr);
  return {};
}

}  // namespace

Result<std::shared_ptr<const TlsContext>> TlsContext::create(const TlsMaterial& material) {
  ERR_clear_error();
  tls::OwnedContext context(SSL_CTX_new(TLS_server_method()));
  if (!context) return tls::bad_tls("TLS");
  SSL_CTX_set_min_proto_version(context.get(), material.tls_1_2 ? TLS1_2_VERSION : TLS1_3_VERSION);
  // A renegotiation would let the client start a second handshake. Compression reveals content
  // (CVE-2012-4929).
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                         SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_TICKET);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  TL_TRY(tls::use_certificate(context.get(), material.certificate));
  TL_TRY(tls::use_key(context.get(), material.key));
  TL_TRY(use_client_ca(context.get(), material));
  auto subjects = std::make_unique<const Subjects>(material.client_subjects);
  if (!subjects->empty())
    SSL_CTX_set_cert_verify_callback(context.get(), verify_client, const_cast<Subjects*>(subjects.get()));
  return std::shared_ptr<const TlsContext>(new TlsContext(context.release(), std::move(subjects)));
}

TlsContext::~TlsContext() {
  SSL_CTX_free(context_);
}

std::int64_t TlsContext::expires_in_days() const {
  int days = 0, seconds = 0;
  const X509* certificate = SSL_CTX_get0_certificate(context_);
  if (!certificate || ASN1_TIME_diff(&days, &seconds, nullptr, X509_get0_notAfter(certificate)) != 1)
    return 0;
  return seconds < 0 ? days - 1 : days;
}

}  // namespace twinloft::lmtpd
