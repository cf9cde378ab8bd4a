#include "twinloft/lmtpd/net/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace twinloft::lmtpd {

namespace {

template <class T, void (*Free)(T*)>
struct Freed {
  void operator()(T* p) const { Free(p); }
};
using OwnedBio = std::unique_ptr<BIO, Freed<BIO, BIO_free_all>>;
using OwnedX509 = std::unique_ptr<X509, Freed<X509, X509_free>>;
using OwnedKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using OwnedContext = std::unique_ptr<SSL_CTX, Freed<SSL_CTX, SSL_CTX_free>>;

std::string openssl_says() {
  char text[256] = "no reason given";
  if (unsigned long code = ERR_get_error()) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return text;
}

std::unexpected<Error> bad(std::string_view what) { return fail(Errc::invalid, "{}: {}", what, openssl_says()); }

OwnedBio bio_of(const std::string& text) { return OwnedBio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

// A key that wants a passphrase is refused: nobody is there to type one.
int no_passphrase(char*, int, int, void*) { return 0; }

// The next certificate of a file, what is around it left out. null: there is none any more.
Result<OwnedX509> next_certificate(BIO* bio, std::string_view what) {
  ERR_clear_error();
  OwnedX509 next(PEM_read_bio_X509(bio, nullptr, no_passphrase, nullptr));
  unsigned long error = ERR_peek_last_error();
  if (!next && (ERR_GET_LIB(error) != ERR_LIB_PEM || ERR_GET_REASON(error) != PEM_R_NO_START_LINE)) return bad(what);
  if (!next) ERR_clear_error();
  return next;
}

Status use_certificate(SSL_CTX* context, const std::string& pem) {
  OwnedBio bio = bio_of(pem);
  OwnedX509 first(PEM_read_bio_X509_AUX(bio.get(), nullptr, no_passphrase, nullptr));
  if (!first || SSL_CTX_use_certificate(context, first.get()) != 1) return bad("the certificate");
  constexpr std::string_view what = "a certificate of the chain";
  for (;;) {
    TL_TRY_ASSIGN(OwnedX509 next, next_certificate(bio.get(), what));
    if (!next) return {};
    if (SSL_CTX_add1_chain_cert(context, next.get()) != 1) return bad(what);
  }
}

Status use_key(SSL_CTX* context, const std::string& pem) {
  OwnedBio bio = bio_of(pem);
  OwnedKey key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
  if (!key) return bad("the private key");
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1)
    return bad("the private key is not the certificate's");
  return {};
}

Status use_client_ca(SSL_CTX* context, const TlsMaterial& material) {
  if (material.client_ca.empty()) return {};
  OwnedBio bio = bio_of(material.client_ca);
  constexpr std::string_view what = "a certificate of client_ca";
  for (std::size_t count = 0;; ++count) {
    TL_TRY_ASSIGN(OwnedX509 authority, next_certificate(bio.get(), what));
    if (!authority && count == 0) return fail(Errc::invalid, "client_ca: it has no certificate");
    if (!authority) break;
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) != 1 || SSL_CTX_add_client_CA(context, authority.get()) != 1)
      return bad(what);
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | (material.client_certificate_required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0), nullptr);
  return {};
}

}  // namespace

Result<std::shared_ptr<const TlsContext>> TlsContext::create(const TlsMaterial& material) {
  ERR_clear_error();
  OwnedContext context(SSL_CTX_new(TLS_server_method()));
  if (!context) return bad("TLS");
  SSL_CTX_set_min_proto_version(context.get(), material.tls_1_2 ? TLS1_2_VERSION : TLS1_3_VERSION);
  // A renegotiation would be a second handshake at the client's wish; compression tells of contents (CVE-2012-4929).
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_TICKET);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  TL_TRY(use_certificate(context.get(), material.certificate));
  TL_TRY(use_key(context.get(), material.key));
  TL_TRY(use_client_ca(context.get(), material));
  return std::shared_ptr<const TlsContext>(new TlsContext(context.release()));
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

std::int64_t TlsContext::expires_in_days() const {
  int days = 0, seconds = 0;
  const X509* certificate = SSL_CTX_get0_certificate(context_);
  if (!certificate || ASN1_TIME_diff(&days, &seconds, nullptr, X509_get0_notAfter(certificate)) != 1) return 0;
  return seconds < 0 ? days - 1 : days;
}

}  // namespace twinloft::lmtpd
