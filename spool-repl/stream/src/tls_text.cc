#include "tls_text.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <openssl/x509_vfy.h>

#include <string_view>
#include <utility>

namespace twinloft::repl::stream {

namespace {

constexpr std::string_view
    other_secret = "the other side has another shared secret: `secret_file` must be the same on both nodes";

// An alert of the other side (RFC 8446, 6.2), or an error of this side.
std::string_view words_of(int reason, bool by_certificates) {
  switch (reason) {
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
      return "the other side says that this node's certificate has expired";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
      return "the other side does not know the authority of this node's certificate";
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
      return "the other side refuses this node's certificate (its log has the reason)";
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return "the other side wants a certificate of this node";
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return "the other side has sent no certificate";
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_WRONG_SSL_VERSION:
      return "only one of the two sides speaks TLS 1.3";
    case SSL_R_BINDER_DOES_NOT_VERIFY:
      return other_secret;
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
      return by_certificates ? "" : other_secret;
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_CERTIFICATE_SET:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
      return by_certificates ? "the other side has no certificate: it uses a shared secret"
                             : "the other side does not use this shared secret";
    default:
      return "";
  }
}

}  // namespace

std::string tls_failure(SSL* ssl, bool by_certificates) {
  unsigned long code = ERR_peek_error();
  int reason = code ? ERR_GET_REASON(code) : 0;
  std::string openssl = code && ERR_reason_error_string(code) ? ERR_reason_error_string(code) : "";
  ERR_clear_error();
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    if (!by_certificates) return "the other side uses a certificate, and this node a shared secret";
    return fmt::format("the other side's certificate is not valid: {}",
                       X509_verify_cert_error_string(SSL_get_verify_result(ssl)));
  }
  std::string_view words = words_of(reason, by_certificates);
  if (!words.empty()) return std::string(words);
  return openssl.empty() ? "the connection ended during the handshake of TLS" : "TLS: " + openssl;
}

}  // namespace twinloft::repl::stream
