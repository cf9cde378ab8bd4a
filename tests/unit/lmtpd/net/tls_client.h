// Certificates for tests, and a client that speaks LMTP over TLS.
#pragma once

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

#include "lmtp_client.h"

namespace twinloft::lmtpd {

struct Credentials {
  std::string certificate, key;  // PEM
};

inline std::string pem_text(BIO* bio) {
  char* data = nullptr;
  long size = BIO_get_mem_data(bio, &data);
  std::string out(data, static_cast<std::size_t>(size));
  BIO_free(bio);
  return out;
}

// Self-signed, so the certificate is its own authority. It expires after `days`.
inline Credentials make_credentials(const std::string& name, int days = 30) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -3L * 86'400);
  X509_gmtime_adj(X509_getm_notAfter(certificate), days * 86'400L + 3600);
  X509_NAME* subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(certificate, subject);
  X509_set_pubkey(certificate, key);
  EXPECT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
  BIO* text = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(text, certificate);
  Credentials out{pem_text(text), {}};
  text = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(text, key, nullptr, nullptr, 0, nullptr, nullptr);
  out.key = pem_text(text);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return out;
}

// Uses an LmtpClient that has got 220 to STARTTLS. The bytes on the wire can be cut into single bytes.
class TlsClient {
 public:
  explicit TlsClient(LmtpClient& wire, const Credentials* own = nullptr, bool trickled = false)
      : wire_(wire), trickled_(trickled) {
    context_ = SSL_CTX_new(TLS_client_method());
    if (own) {
      BIO* text = BIO_new_mem_buf(own->certificate.data(), static_cast<int>(own->certificate.size()));
      X509* certificate = PEM_read_bio_X509(text, nullptr, nullptr, nullptr);
      SSL_CTX_use_certificate(context_, certificate);
      X509_free(certificate);
      BIO_free(text);
      text = BIO_new_mem_buf(own->key.data(), static_cast<int>(own->key.size()));
      EVP_PKEY* key = PEM_read_bio_PrivateKey(text, nullptr, nullptr, nullptr);
      SSL_CTX_use_PrivateKey(context_, key);
      EVP_PKEY_free(key);
      BIO_free(text);
    }
    tls_ = SSL_new(context_);
    SSL_set_bio(tls_, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(tls_);
  }
  ~TlsClient() {
    SSL_free(tls_);
    SSL_CTX_free(context_);
  }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  // Returns false if the server refuses or disconnects. With TLS 1.3, a refused client certificate shows only
  // in the first answer.
  // `ahead` leaves in one segment with the client's last message.
  bool handshake(std::string_view ahead = {}) {
    for (;;) {
      int done = SSL_do_handshake(tls_);
      if (done == 1 && !ahead.empty()) SSL_write(tls_, ahead.data(), static_cast<int>(ahead.size()));
      flush();
      if (done == 1) return true;
      if (SSL_get_error(tls_, done) != SSL_ERROR_WANT_READ || !fill()) return false;
    }
  }
  void send(std::string_view text) {
    while (!text.empty()) {
      int sent = SSL_write(tls_, text.data(), static_cast<int>(text.size()));
      if (sent <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(sent));
      flush();
    }
  }
  // One reply line. "": the connection has ended, with or without a TLS notice.
  std::string line() {
    for (;;) {
      std::size_t end = input_.find("\r\n");
      if (end != std::string::npos) {
        std::string out = input_.substr(0, end);
        input_.erase(0, end + 2);
        return out;
      }
      char buffer[4096];
      int got = SSL_read(tls_, buffer, sizeof buffer);
      if (got > 0)
        input_.append(buffer, static_cast<std::size_t>(got));
      else if (SSL_get_error(tls_, got) != SSL_ERROR_WANT_READ || !fill())
        return {};
    }
  }
  std::string reply() {
    std::string out;
    do out = line();
    while (out.size() > 3 && out[3] == '-');
    return out;
  }
  std::string ask(std::string_view text) {
    send(text);
    return reply();
  }
  void close_notify() {
    SSL_shutdown(tls_);
    flush();
  }

 private:
  void flush() {
    char buffer[16384];
    for (int n; (n = BIO_read(SSL_get_wbio(tls_), buffer, sizeof buffer)) > 0;) {
      std::string_view bytes(buffer, static_cast<std::size_t>(n));
      if (!trickled_)
        (void)wire_.try_send(bytes);
      else
        for (char c : bytes) (void)wire_.try_send(std::string_view(&c, 1));
    }
  }
  bool fill() {
    char buffer[16384];
    ssize_t got = ::recv(wire_.fd(), buffer, sizeof buffer, 0);
    if (got <= 0) return false;
    BIO_write(SSL_get_rbio(tls_), buffer, static_cast<int>(got));
    return true;
  }

  LmtpClient& wire_;
  bool trickled_;
  SSL_CTX* context_;
  SSL* tls_;
  std::string input_;
};

}  // namespace twinloft::lmtpd
