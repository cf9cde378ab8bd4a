#include "twinloft/mailbench/tls_client.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "twinloft/base/check.h"

namespace twinloft::mailbench {

namespace {

// The oldest error of this thread's queue, which is emptied.
std::string openssl_reason() {
  unsigned long code = ::ERR_get_error();
  ::ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ::ERR_reason_error_string(code);
  return reason == nullptr ? "unknown reason" : reason;
}

}  // namespace

Result<TlsContext> TlsContext::make(const TlsSettings& settings) {
  TlsContext out;
  out.context_.reset(::SSL_CTX_new(::TLS_client_method()));
  TL_CHECK(out.context_ != nullptr);
  ::SSL_CTX_set_options(out.context_.get(), SSL_OP_NO_RENEGOTIATION);
  if (settings.authority.empty()) return out;
  if (::SSL_CTX_load_verify_file(out.context_.get(), settings.authority.c_str()) != 1)
    return fail(Errc::invalid, "{}: no certificates of an authority in PEM: {}", settings.authority,
                openssl_reason());
  ::SSL_CTX_set_verify(out.context_.get(), SSL_VERIFY_PEER, nullptr);
  out.name_ = settings.name;
  out.checked_ = true;
  return out;
}

TlsClient::TlsClient(const TlsContext& context)
    : ssl_(::SSL_new(context.context_.get())),
      received_(::BIO_new(::BIO_s_mem())),
      sent_(::BIO_new(::BIO_s_mem())),
      checked_(context.checked_) {
  TL_CHECK(ssl_ != nullptr && received_ != nullptr && sent_ != nullptr);
  ::SSL_set_bio(ssl_.get(), received_, sent_);
  ::SSL_set_connect_state(ssl_.get());
  const char* name = context.name_.c_str();
  if (context.name_.empty() || ::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(ssl_.get()), name) == 1)
    return;
  ::ERR_clear_error();  // the name is no IP address
  TL_CHECK(::SSL_set1_host(ssl_.get(), name) == 1);
  SSL_set_tlsext_host_name(ssl_.get(), name);
}

Status TlsClient::handshake() {
  ::ERR_clear_error();
  int result = ::SSL_do_handshake(ssl_.get());
  established_ = result == 1;
  if (established_ || ::SSL_get_error(ssl_.get(), result) == SSL_ERROR_WANT_READ) return {};
  long verified = ::SSL_get_verify_result(ssl_.get());
  if (checked_ && verified != X509_V_OK)
    return fail(Errc::denied, "the server's certificate is refused: {}",
                ::X509_verify_cert_error_string(verified));
  return fail(Errc::unavailable, "TLS handshake: {}", openssl_reason());
}

Status TlsClient::feed(std::string_view received) {
  if (!received.empty())
    TL_CHECK(::BIO_write(received_, received.data(), static_cast<int>(received.size())) ==
             static_cast<int>(received.size()));
  return established_ ? Status{} : handshake();
}

Result<std::size_t> TlsClient::read(std::span<char> out) {
  if (!established_) return 0;
  ::ERR_clear_error();
  std::size_t size = 0;
  int result = ::SSL_read_ex(ssl_.get(), out.data(), out.size(), &size);
  if (result == 1) return size;
  int error = ::SSL_get_error(ssl_.get(), result);
  if (error == SSL_ERROR_WANT_READ) return 0;
  if (error == SSL_ERROR_ZERO_RETURN) return fail(Errc::unavailable, "the server has ended TLS");
  return fail(Errc::corrupt, "TLS: {}", openssl_reason());
}

Status TlsClient::write(std::string_view plain) {
  TL_CHECK(established_);
  if (plain.empty()) return {};
  ::ERR_clear_error();
  std::size_t written = 0;
  if (::SSL_write_ex(ssl_.get(), plain.data(), plain.size(), &written) != 1 || written != plain.size())
    return fail(Errc::unavailable, "TLS: {}", openssl_reason());
  return {};
}

std::string& TlsClient::output() {
  char* bytes = nullptr;
  long size = BIO_get_mem_data(sent_, &bytes);
  if (size > 0) {
    output_.append(bytes, static_cast<std::size_t>(size));
    TL_CHECK(BIO_reset(sent_) == 1);
  }
  return output_;
}

}  // namespace twinloft::mailbench
