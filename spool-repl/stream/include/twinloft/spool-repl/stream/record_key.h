// The keys of TLS 1.3 records (RFC 8446, 7.1 to 7.3), for an encryption outside of OpenSSL.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "twinloft/base/result.h"

namespace twinloft::repl::stream {

// The ciphers of TlsContext. Both have SHA-256.
enum class RecordCipher { aes_128_gcm, chacha20_poly1305 };

// Of one direction, for records from number 0 on. Wiped at its end.
struct RecordKey {
  RecordKey() = default;
  RecordKey(const RecordKey&) = default;
  RecordKey& operator=(const RecordKey&) = default;
  ~RecordKey();

  RecordCipher cipher = RecordCipher::aes_128_gcm;
  std::array<unsigned char, 32> key{};  // the first 16 bytes for AES-128
  std::array<unsigned char, 12> iv{};
};

// From which the keys of one direction come, one after the other. Wiped at its end.
class TrafficSecret {
 public:
  static constexpr std::size_t bytes = 32;  // of SHA-256
  TrafficSecret(RecordCipher cipher, std::span<const unsigned char, bytes> secret);
  TrafficSecret(const TrafficSecret&) = default;
  TrafficSecret& operator=(const TrafficSecret&) = default;
  ~TrafficSecret();

  // Errors: OpenSSL cannot derive it.
  Result<RecordKey> key() const;
  // To the secret after a KeyUpdate (RFC 8446, 7.2). After an error it is unchanged.
  Status advance();

 private:
  RecordCipher cipher_;
  std::array<unsigned char, bytes> secret_;
};

// The cipher by its number in TLS (RFC 8446, B.4). Nothing: another one.
std::optional<RecordCipher> record_cipher(std::uint16_t number);

}  // namespace twinloft::repl::stream
