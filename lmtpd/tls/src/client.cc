#include <openssl/err.h>

#include "twinloft/lmtpd/tls/tls.h"
#include "twinloft/tls/pem.h"

namespace twinloft::lmtpd {

Result<std::shared_ptr<const TlsClientContext>> TlsClientContext::create(const TlsClientMaterial& material) {
  ERR_clear_error();
  tls::OwnedContext context(SSL_CTX_new(TLS_client_method()));
  if (!context) return tls::bad_tls("TLS");
  SSL_CTX_set_min_proto_version(context.get(), material.tls_1_2 ? TLS1_2_VERSION : TLS1_3_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  if (!material.certificate.empty()) {
    TL_TRY(tls::use_certificate(context.get(), material.certificate));
    TL_TRY(tls::use_key(context.get(), material.key));
  }
  if (!material.ca.empty())
    TL_TRY(tls::use_authorities(context.get(), material.ca, "ca", tls::Authorities::trusted));
  else if (!material.name.empty() && SSL_CTX_set_default_verify_paths(context.get()) != 1)
    return tls::bad_tls("the authorities that the machine trusts");
  SSL_CTX_set_verify(context.get(), material.name.empty() ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);
  return std::shared_ptr<const TlsClientContext>(new TlsClientContext(context.release(), material.name));
}

TlsClientContext::~TlsClientContext() {
  SSL_CTX_free(context_);
}

}  // namespace twinloft::lmtpd
