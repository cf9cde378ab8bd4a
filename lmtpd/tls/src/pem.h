// Certificates and keys in PEM, as OpenSSL takes them.
#pragma once

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

template <class T, void (*Free)(T*)>
struct Freed {
  void operator()(T* p) const { Free(p); }
};
using OwnedBio = std::unique_ptr<BIO, Freed<BIO, BIO_free_all>>;
using OwnedX509 = std::unique_ptr<X509, Freed<X509, X509_free>>;
using OwnedKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using OwnedContext = std::unique_ptr<SSL_CTX, Freed<SSL_CTX, SSL_CTX_free>>;

// With what OpenSSL says.
std::unexpected<Error> bad_tls(std::string_view what);

// The certificate, and those between it and the authority's, in this order; then its key.
Status use_certificate(SSL_CTX* context, const std::string& pem);
Status use_key(SSL_CTX* context, const std::string& pem);

enum class Authorities {
  trusted,  // their certificates are good
  asked,    // and their names are sent to the peer
};
// `what` is the key of the file, for messages. At least one.
Status use_authorities(SSL_CTX* context, const std::string& pem, std::string_view what, Authorities kind);

}  // namespace twinloft::lmtpd
