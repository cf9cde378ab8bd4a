#include "tls_notes.h"

#include <openssl/crypto.h>
#include <openssl/ssl.h>

#include <string_view>

namespace twinloft::repl::stream {

namespace {

TlsNotes* notes_of(const SSL* connection) {
  return static_cast<TlsNotes*>(SSL_get_app_data(connection));
}

// Exceptions must not reach OpenSSL, which is C, so nothing here allocates. A line of a key log: LABEL
// CLIENT_RANDOM SECRET, both in hexadecimal digits (SSL_CTX_set_keylog_callback(3)).
void on_secret(const SSL* connection, const char* line) {
  TlsNotes* notes = notes_of(connection);
  if (!notes) return;
  const std::string_view text(line);
  const std::string_view label = text.substr(0, text.find(' '));
  auto* to = label == "CLIENT_TRAFFIC_SECRET_0"   ? &notes->client_secret
             : label == "SERVER_TRAFFIC_SECRET_0" ? &notes->server_secret
                                                  : nullptr;
  if (!to) return;
  std::size_t bytes = 0;
  to->known = OPENSSL_hexstr2buf_ex(to->bytes.data(), to->bytes.size(), &bytes, line + text.rfind(' ') + 1,
                                    '\0') == 1 &&
              bytes == to->bytes.size();
}

void on_info(const SSL* connection, int where, int value) {
  TlsNotes* notes = notes_of(connection);
  if (!notes || (where & SSL_CB_WRITE_ALERT) != SSL_CB_WRITE_ALERT) return;
  if (notes->alert_count < notes->alerts.size())
    notes->alerts[notes->alert_count++] = {static_cast<std::uint8_t>(value >> 8),
                                           static_cast<std::uint8_t>(value)};
}

}  // namespace

void TlsNotes::wipe() {
  for (Secret* secret : {&client_secret, &server_secret}) {
    OPENSSL_cleanse(secret->bytes.data(), secret->bytes.size());
    secret->known = false;
  }
  alert_count = 0;
  wrote = false;
}

void note_secrets(ssl_ctx_st* context) {
  SSL_CTX_set_keylog_callback(context, on_secret);
}

void give_notes(ssl_st* connection, TlsNotes& notes) {
  SSL_set_app_data(connection, &notes);
  SSL_set_info_callback(connection, on_info);
}

std::optional<TrafficSecret> secret_of_output(const ssl_st* connection, const TlsNotes& notes) {
  const SSL_CIPHER* used = SSL_get_current_cipher(connection);
  const auto cipher = used ? record_cipher(SSL_CIPHER_get_protocol_id(used)) : std::nullopt;
  const auto& secret = SSL_is_server(connection) ? notes.server_secret : notes.client_secret;
  if (!cipher || !secret.known) return std::nullopt;
  return TrafficSecret(*cipher, secret.bytes);
}

}  // namespace twinloft::repl::stream
