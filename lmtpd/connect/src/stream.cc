#include "twinloft/lmtpd/connect/stream.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace twinloft::lmtpd {

namespace {

struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

bool is_numeric(const std::string& name) {
  in6_addr scratch;
  return ::inet_pton(AF_INET, name.c_str(), &scratch) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), &scratch) == 1;
}

std::unexpected<Error> ended() {
  return fail(Errc::unavailable, "the connection has ended");
}
std::unexpected<Error> broken(int error) {
  return fail(Errc::unavailable, "the connection is broken: {}", std::strerror(error));
}

class SocketStream final : public Stream {
 public:
  SocketStream(Fd socket, const Clock& clock) : socket_(std::move(socket)), clock_(clock) {}

  Result<std::size_t> read(MutableByteSpan into, Instant deadline) override {
    for (;;) {
      if (tls_) {
        ERR_clear_error();
        int n = SSL_read(tls_.get(), into.data(),
                         static_cast<int>(std::min<std::size_t>(into.size(), INT_MAX)));
        if (n > 0) return static_cast<std::size_t>(n);
        TL_TRY(wait_for_tls(n, deadline));
        continue;
      }
      ssize_t n = ::recv(socket_.get(), into.data(), into.size(), 0);
      if (n > 0) return static_cast<std::size_t>(n);
      if (n == 0) return ended();
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return broken(errno);
      TL_TRY(wait(POLLIN, deadline));
    }
  }

  Status write(std::string_view bytes, Instant deadline) override {
    while (!bytes.empty()) {
      ssize_t n;
      if (tls_) {
        ERR_clear_error();
        n = SSL_write(tls_.get(), bytes.data(),
                      static_cast<int>(std::min<std::size_t>(bytes.size(), INT_MAX)));
        if (n <= 0) TL_TRY(wait_for_tls(static_cast<int>(n), deadline));
      } else {
        n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR && errno != EAGAIN) return broken(errno);
        if (n < 0 && errno == EAGAIN) TL_TRY(wait(POLLOUT, deadline));
      }
      if (n > 0) bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return {};
  }

  Status start_tls(const TlsClientContext& tls, Instant deadline) override {
    tls_.reset(SSL_new(tls.get()));
    if (!tls_ || SSL_set_fd(tls_.get(), socket_.get()) != 1)
      return fail(Errc::exhausted, "no memory for TLS");
    if (const std::string& name = tls.name(); !name.empty() && is_numeric(name)) {
      if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_.get()), name.c_str()) != 1)
        return fail(Errc::invalid, "{} is not an address", name);
    } else if (!name.empty()) {
      SSL_set_hostflags(tls_.get(), X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
      if (SSL_set1_host(tls_.get(), name.c_str()) != 1 ||
          SSL_set_tlsext_host_name(tls_.get(), name.c_str()) != 1)
        return fail(Errc::invalid, "{} is not a host name", name);
    }
    for (;;) {
      ERR_clear_error();
      int done = SSL_connect(tls_.get());
      if (done == 1) return {};
      TL_TRY(wait_for_tls(done, deadline));
    }
  }

  bool has_news() override {
    if (tls_ && SSL_pending(tls_.get()) > 0) return true;
    pollfd look{socket_.get(), POLLIN, 0};
    return ::poll(&look, 1, 0) != 0;
  }

  void shut() override { (void)::shutdown(socket_.get(), SHUT_RDWR); }

 private:
  Status wait(short events, Instant deadline) {
    pollfd look{socket_.get(), events, 0};
    for (;;) {
      auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock_.now()).count();
      if (left <= 0) return fail(Errc::timeout, "no answer in time");
      int ready = ::poll(&look, 1, static_cast<int>(std::min<std::int64_t>(left, INT_MAX)));
      if (ready > 0) return {};
      if (ready < 0 && errno != EINTR) return broken(errno);
    }
  }

  // After an operation of OpenSSL without a result.
  Status wait_for_tls(int result, Instant deadline) {
    int error = errno;
    switch (SSL_get_error(tls_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return wait(POLLIN, deadline);
      case SSL_ERROR_WANT_WRITE:
        return wait(POLLOUT, deadline);
      case SSL_ERROR_ZERO_RETURN:
        return ended();
      case SSL_ERROR_SYSCALL:
        return error == 0 ? Status(ended()) : Status(broken(error));
      default:
        // The end without a close_notify. LMTP itself detects an incomplete dialogue.
        if (ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) return ended();
        return fail(Errc::denied, "TLS: {}", reason());
    }
  }

  std::string reason() const {
    // Without verification, errors of the certificate are not the reason.
    bool verifies = SSL_get_verify_mode(tls_.get()) != SSL_VERIFY_NONE;
    if (long verified = SSL_get_verify_result(tls_.get()); verifies && verified != X509_V_OK)
      return std::string("invalid certificate: ") + X509_verify_cert_error_string(verified);
    const char* text = ERR_reason_error_string(ERR_peek_last_error());
    return text ? text : "no reason given";
  }

  Fd socket_;
  const Clock& clock_;
  std::unique_ptr<SSL, FreeSsl> tls_;
};

}  // namespace

std::unique_ptr<Stream> make_socket_stream(Fd socket, const Clock& clock) {
  return std::make_unique<SocketStream>(std::move(socket), clock);
}

}  // namespace twinloft::lmtpd
