#include "twinloft/tls/pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>

namespace twinloft::tls {

namespace {

std::string openssl_says() {
  char text[256] = "no reason given";
  if (unsigned long code = ERR_get_error()) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return text;
}

OwnedBio bio_of(const std::string& text) {
  return OwnedBio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// A key with a passphrase is refused, since no operator can enter it.
int no_passphrase(char*, int, int, void*) {
  return 0;
}

// The next certificate of a file, without the text around it. null: no more certificates.
Result<OwnedX509> next_certificate(BIO* bio, std::string_view what) {
  ERR_clear_error();
  OwnedX509 next(PEM_read_bio_X509(bio, nullptr, no_passphrase, nullptr));
  unsigned long error = ERR_peek_last_error();
  if (!next && (ERR_GET_LIB(error) != ERR_LIB_PEM || ERR_GET_REASON(error) != PEM_R_NO_START_LINE))
    return bad_tls(what);
  if (!next) ERR_clear_error();
  return next;
}

}  // namespace

std::unexpected<Error> bad_tls(std::string_view what) {
  return fail(Errc::invalid, "{}: {}", what, openssl_says());
}

namespace {

template <class Owned, auto Read>
Result<Owned> read_first(const std::string& pem, std::string_view what) {
  ERR_clear_error();
  Owned out(Read(bio_of(pem).get(), nullptr, no_passphrase, nullptr));
  if (!out) return bad_tls(what);
  return out;
}

}  // namespace

Result<OwnedX509> read_x509(const std::string& pem, std::string_view what) {
  return read_first<OwnedX509, PEM_read_bio_X509_AUX>(pem, what);
}

Result<OwnedKey> read_key(const std::string& pem, std::string_view what) {
  return read_first<OwnedKey, PEM_read_bio_PrivateKey>(pem, what);
}

Status use_certificate(SSL_CTX* context, const std::string& pem) {
  OwnedBio bio = bio_of(pem);
  OwnedX509 first(PEM_read_bio_X509_AUX(bio.get(), nullptr, no_passphrase, nullptr));
  if (!first || SSL_CTX_use_certificate(context, first.get()) != 1) return bad_tls("the certificate");
  constexpr std::string_view what = "a certificate of the chain";
  for (;;) {
    TL_TRY_ASSIGN(OwnedX509 next, next_certificate(bio.get(), what));
    if (!next) return {};
    if (SSL_CTX_add1_chain_cert(context, next.get()) != 1) return bad_tls(what);
  }
}

Status use_key(SSL_CTX* context, const std::string& pem) {
  TL_TRY_ASSIGN(OwnedKey key, read_key(pem, "the private key"));
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1)
    return bad_tls("the private key is not the certificate's");
  return {};
}

Status use_authorities(SSL_CTX* context, const std::string& pem, std::string_view what, Authorities kind) {
  OwnedBio bio = bio_of(pem);
  std::string each = fmt::format("a certificate of {}", what);
  for (std::size_t count = 0;; ++count) {
    TL_TRY_ASSIGN(OwnedX509 authority, next_certificate(bio.get(), each));
    if (!authority && count == 0) return fail(Errc::invalid, "{}: it has no certificate", what);
    if (!authority) return {};
    bool told = kind == Authorities::trusted || SSL_CTX_add_client_CA(context, authority.get()) == 1;
    if (!told || X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) != 1)
      return bad_tls(each);
  }
}

}  // namespace twinloft::tls
