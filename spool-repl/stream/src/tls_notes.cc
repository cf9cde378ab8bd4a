#include "tls_notes.h"

#include <openssl/crypto.h>
#include <openssl/ssl.h>

#include <string_view>

namespace twinloft::repl::stream {

namespace {

TlsNotes* notes_of(const SSL* connection) {
  return static_cast<TlsNotes*>(SSL_get_app_data(connection));
}

// A line of a key log: LABEL CLIENT_RANDOM SECRET, both in hexadecimal digits
// (SSL_CTX_set_keylog_callback(3)).
void on_secret(const SSL* connection, const char* line) {
  TlsNotes* notes = notes_of(connection);
  if (!notes) return;
  const std::string_view text(line);
  const std::string_view label = text.substr(0, text.find(' '));
  auto* to = label == "CLIENT_TRAFFIC_SECRET_0"   ? &notes->client_secret
             : label == "SERVER_TRAFFIC_SECRET_0" ? &notes->server_secret
                                                  : nullptr;
  if (!to) return;
  long bytes = 0;
  unsigned char* secret = OPENSSL_hexstr2buf(line + text.rfind(' ') + 1, &bytes);
  if (!secret) return;
  to->assign(secret, secret + bytes);
  OPENSSL_clear_free(secret, static_cast<std::size_t>(bytes));
}

void on_info(const SSL* connection, int where, int value) {
  TlsNotes* notes = notes_of(connection);
  if (!notes || (where & SSL_CB_WRITE_ALERT) != SSL_CB_WRITE_ALERT) return;
  notes->alerts.push_back({static_cast<std::uint8_t>(value >> 8), static_cast<std::uint8_t>(value)});
}

}  // namespace

void TlsNotes::wipe() {
  for (auto* secret : {&client_secret, &server_secret}) {
    OPENSSL_cleanse(secret->data(), secret->size());
    secret->clear();
  }
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
  if (!cipher || secret.size() != TrafficSecret::bytes) return std::nullopt;
  return TrafficSecret(*cipher, std::span<const unsigned char, TrafficSecret::bytes>(secret));
}

}  // namespace twinloft::repl::stream
