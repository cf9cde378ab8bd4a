// OpenSSL's errors in words for the administrator.
#pragma once

#include <openssl/ssl.h>

#include <string>

namespace twinloft::repl::stream {

// The reason why `ssl` has failed. Empties OpenSSL's queue of errors.
std::string tls_failure(SSL* ssl, bool by_certificates);

}  // namespace twinloft::repl::stream
