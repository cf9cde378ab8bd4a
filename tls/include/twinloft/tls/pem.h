// Reads certificates and keys in PEM, by OpenSSL.
#pragma once

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::tls {

template <class T, void (*Free)(T*)>
struct Freed {
  void operator()(T* p) const { Free(p); }
};
using OwnedBio = std::unique_ptr<BIO, Freed<BIO, BIO_free_all>>;
using OwnedX509 = std::unique_ptr<X509, Freed<X509, X509_free>>;
using OwnedKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using OwnedContext = std::unique_ptr<SSL_CTX, Freed<SSL_CTX, SSL_CTX_free>>;

// An error with OpenSSL's message.
std::unexpected<Error> bad_tls(std::string_view what);

// The first certificate, and the key, of a text. what: for messages.
Result<OwnedX509> read_x509(const std::string& pem, std::string_view what);
Result<OwnedKey> read_key(const std::string& pem, std::string_view what);

// Sets the certificate, then the intermediate certificates, then the key.
Status use_certificate(SSL_CTX* context, const std::string& pem);
Status use_key(SSL_CTX* context, const std::string& pem);

enum class Authorities {
  trusted,  // certificates of these authorities are accepted
  asked,    // the same, and their names are sent to the peer
};
// Reads at least one certificate. what: the setting of the file, for messages.
Status use_authorities(SSL_CTX* context, const std::string& pem, std::string_view what, Authorities kind);

}  // namespace twinloft::tls
