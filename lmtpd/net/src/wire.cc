#include "wire.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <fmt/format.h>
#include <cerrno>

namespace twinloft::lmtpd {

namespace {

std::string what_failed(const SSL* tls) {
  if (long code = SSL_get_verify_result(tls); code == X509_V_ERR_APPLICATION_VERIFICATION)
    return "the client's certificate has no name listed in tls.client_subjects";
  else if (code != X509_V_OK)
    return fmt::format("the client's certificate: {}", X509_verify_cert_error_string(code));
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  return reason ? reason : "no reason given";
}

}  // namespace

Wire::~Wire() {
  SSL_free(tls_);
}

Status Wire::start_tls(std::shared_ptr<const TlsContext> context) {
  context_ = std::move(context);
  tls_ = SSL_new(context_->get());
  if (!tls_ || SSL_set_fd(tls_, fd_) != 1) return fail(Errc::exhausted, "no memory for TLS");
  SSL_set_accept_state(tls_);
  return {};
}

// Must follow the call at once, because OpenSSL reports the error of this thread's last call.
Wire::Outcome Wire::outcome_of(int result) {
  int error = SSL_get_error(tls_, result);
  if (error == SSL_ERROR_SSL) why_ = what_failed(tls_);
  ERR_clear_error();
  switch (error) {
    case SSL_ERROR_NONE:
      return {State::done, static_cast<std::size_t>(result)};
    case SSL_ERROR_WANT_READ:
      return {State::want_read};
    case SSL_ERROR_WANT_WRITE:
      return {State::want_write};
    case SSL_ERROR_ZERO_RETURN:
      return {State::end};
    default:
      failed_ = true;
      return {State::broken};
  }
}

Wire::Outcome Wire::handshake() {
  if (failed_) return {State::broken};
  ERR_clear_error();
  return outcome_of(SSL_do_handshake(tls_));
}

Wire::Outcome Wire::receive(std::span<char> into) {
  if (tls_) {
    if (failed_) return {State::broken};
    ERR_clear_error();
    return outcome_of(SSL_read(tls_, into.data(), static_cast<int>(into.size())));
  }
  ssize_t got;
  do {
    got = ::recv(fd_, into.data(), into.size(), MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got > 0) return {State::done, static_cast<std::size_t>(got)};
  if (got == 0) return {State::end};
  return {errno == EAGAIN ? State::want_read : State::broken};
}

Wire::Outcome Wire::send(std::string_view bytes) {
  if (tls_) {
    if (failed_) return {State::broken};
    ERR_clear_error();
    return outcome_of(SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size())));
  }
  ssize_t sent;
  do {
    sent = ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return {State::done, static_cast<std::size_t>(sent)};
  return {errno == EAGAIN ? State::want_write : State::broken};
}

bool Wire::holds_input() const {
  return tls_ && !failed_ && SSL_pending(tls_) > 0;
}

std::string Wire::how() const {
  std::string out = fmt::format("{} with cipher {}", SSL_get_version(tls_), SSL_get_cipher_name(tls_));
  if (const X509* client = SSL_get0_peer_certificate(tls_)) {
    char name[256] = {};
    (void)X509_NAME_get_text_by_NID(X509_get_subject_name(client), NID_commonName, name, sizeof name);
    out += fmt::format(", client certificate {}", name[0] ? name : "without a name");
  }
  return out;
}

void Wire::announce_end() {
  if (!tls_ || failed_ || !SSL_is_init_finished(tls_)) return;
  ERR_clear_error();
  (void)SSL_shutdown(tls_);
  ERR_clear_error();
}

}  // namespace twinloft::lmtpd
