// What OpenSSL tells a TlsStream, besides bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "twinloft/spool-repl/stream/record_key.h"

struct ssl_st;
struct ssl_ctx_st;

namespace twinloft::repl::stream {

struct TlsNotes {
  struct Alert {
    std::uint8_t level = 0, description = 0;
  };
  TlsNotes() = default;
  TlsNotes(const TlsNotes&) = delete;
  TlsNotes& operator=(const TlsNotes&) = delete;
  ~TlsNotes() { wipe(); }
  void wipe();

  // For content. Of another cipher's size: none.
  struct Secret {
    std::array<unsigned char, TrafficSecret::bytes> bytes{};
    bool known = false;
  };
  Secret client_secret, server_secret;
  // That OpenSSL has sent. Further ones are left out; a connection has one or two.
  std::array<Alert, 4> alerts{};
  std::size_t alert_count = 0;
  bool wrote = false;  // OpenSSL has sent a record
};

// Every connection of this context writes down its secrets, if it has notes. Of an SSL_CTX.
void note_secrets(ssl_ctx_st* context);
// The notes outlive the connection.
void give_notes(ssl_st* connection, TlsNotes& notes);

// Of this side, after the handshake. Nothing: OpenSSL has not told it, or the cipher is another one.
std::optional<TrafficSecret> secret_of_output(const ssl_st* connection, const TlsNotes& notes);

}  // namespace twinloft::repl::stream
