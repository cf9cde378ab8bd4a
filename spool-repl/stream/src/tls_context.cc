#include "twinloft/spool-repl/stream/tls_context.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/ssl.h>

#include "tls_notes.h"
#include "twinloft/tls/names.h"
#include "twinloft/tls/pem.h"

namespace twinloft::repl::stream {

namespace {

using twinloft::tls::bad_tls;
using twinloft::tls::Freed;
using twinloft::tls::OwnedContext;

// Both have SHA-256, which an external key needs. AES first: both sides have its instructions, as a rule.
constexpr const char* ciphers = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
// Others, such as ffdhe8192, would let a stranger cause long computations.
char groups[] = "X25519:P-256";
constexpr unsigned char session_context[] = {'t', 'w', 'i', 'n'};
constexpr unsigned char cipher_of_key[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256: names the hash

const TlsContext* context_of(SSL* ssl) {
  return static_cast<const TlsContext*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), 0));
}

// Called for each ClientHello. Without a session, OpenSSL would continue without a key.
int use_key(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* id_bytes, SSL_SESSION** session) {
  const TlsContext* context = context_of(ssl);
  *session = context->session_of_key(ssl);
  if (!*session) return 0;
  *id = reinterpret_cast<const unsigned char*>(context->purpose().data());
  *id_bytes = context->purpose().size();
  return 1;
}

int find_key(SSL* ssl, const unsigned char* id, std::size_t id_bytes, SSL_SESSION** session) {
  const TlsContext* context = context_of(ssl);
  std::string_view asked(reinterpret_cast<const char*>(id), id_bytes);
  *session = asked == context->purpose() ? context->session_of_key(ssl) : nullptr;
  return 1;
}

Result<OwnedContext> new_context(Records records) {
  ERR_clear_error();
  OwnedContext context(SSL_CTX_new(TLS_method()));
  if (!context) return bad_tls("TLS");
  SSL_CTX* c = context.get();
  if (SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) != 1 || SSL_CTX_set_ciphersuites(c, ciphers) != 1 ||
      SSL_CTX_set1_groups_list(c, groups) != 1)
    return bad_tls("TLS 1.3");
  SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                             SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF);
  if (records == Records::below) note_secrets(c);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(c, 0);
  SSL_CTX_set_max_early_data(c, 0);
  SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  // OpenSSL demands it of a server that verifies, also where no session is ever resumed.
  if (SSL_CTX_set_session_id_context(c, session_context, sizeof session_context) != 1) return bad_tls("TLS");
  return context;
}

bool derive(const std::string& secret, const std::string& purpose, std::span<unsigned char> out) {
  std::unique_ptr<EVP_KDF, Freed<EVP_KDF, EVP_KDF_free>> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  std::unique_ptr<EVP_KDF_CTX, Freed<EVP_KDF_CTX, EVP_KDF_CTX_free>> work(EVP_KDF_CTX_new(kdf.get()));
  char digest[] = "SHA256";
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<char*>(secret.data()), secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, const_cast<char*>(purpose.data()),
                                        purpose.size()),
      OSSL_PARAM_construct_end()};
  return work && EVP_KDF_derive(work.get(), out.data(), out.size(), params) == 1;
}

}  // namespace

TlsContext::TlsContext(ssl_ctx_st* context, Records records) : context_(context), records_(records) {
  SSL_CTX_set_ex_data(context_, 0, this);
}

TlsContext::~TlsContext() {
  SSL_CTX_free(context_);
  if (key_) OPENSSL_cleanse(key_->data(), key_->size());
}

Result<std::shared_ptr<const TlsContext>> TlsContext::by_certificates(const TlsMaterial& material,
                                                                      Records records) {
  TL_TRY_ASSIGN(OwnedContext context, new_context(records));
  TL_TRY(twinloft::tls::use_certificate(context.get(), material.certificate));
  TL_TRY(twinloft::tls::use_key(context.get(), material.key));
  TL_TRY(twinloft::tls::use_authorities(context.get(), material.authorities, "the authority",
                                        twinloft::tls::Authorities::trusted));
  return std::shared_ptr<const TlsContext>(new TlsContext(context.release(), records));
}

Result<std::shared_ptr<const TlsContext>> TlsContext::by_secret(const std::string& secret,
                                                                const std::string& purpose, Records records) {
  if (secret.empty()) return fail(Errc::invalid, "the shared secret is empty");
  TL_TRY_ASSIGN(OwnedContext context, new_context(records));
  SSL_CTX_set_psk_use_session_callback(context.get(), use_key);
  SSL_CTX_set_psk_find_session_callback(context.get(), find_key);
  std::shared_ptr<TlsContext> out(new TlsContext(context.release(), records));
  out->purpose_ = purpose;
  out->key_.emplace();
  if (!derive(secret, purpose, *out->key_)) return bad_tls("deriving the key of the shared secret");
  return out;
}

std::optional<std::int64_t> TlsContext::expires() const {
  const X509* certificate = SSL_CTX_get0_certificate(context_);
  if (!certificate) return std::nullopt;
  return twinloft::tls::seconds_of(X509_get0_notAfter(certificate));
}

ssl_session_st* TlsContext::session_of_key(ssl_st* connection) const {
  if (!key_) return nullptr;
  std::unique_ptr<SSL_SESSION, Freed<SSL_SESSION, SSL_SESSION_free>> session(SSL_SESSION_new());
  const SSL_CIPHER* cipher = SSL_CIPHER_find(connection, cipher_of_key);
  if (!session || !cipher || SSL_SESSION_set1_master_key(session.get(), key_->data(), key_->size()) != 1 ||
      SSL_SESSION_set_cipher(session.get(), cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1 ||
      SSL_SESSION_set1_id_context(session.get(), session_context, sizeof session_context) != 1)
    return nullptr;
  return session.release();
}

}  // namespace twinloft::repl::stream
