#include "twinloft/spool-repl/stream/record_key.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "twinloft/tls/pem.h"

namespace twinloft::repl::stream {

namespace {

using twinloft::tls::bad_tls;
using twinloft::tls::Freed;

// HKDF-Expand-Label with an empty context (RFC 8446, 7.1).
Status expand(std::span<const unsigned char> secret, std::string_view label, std::span<unsigned char> out) {
  constexpr std::string_view prefix = "tls13 ";
  std::vector<unsigned char> info{static_cast<unsigned char>(out.size() >> 8),
                                  static_cast<unsigned char>(out.size()),
                                  static_cast<unsigned char>(prefix.size() + label.size())};
  info.insert(info.end(), prefix.begin(), prefix.end());
  info.insert(info.end(), label.begin(), label.end());
  info.push_back(0);
  std::unique_ptr<EVP_KDF, Freed<EVP_KDF, EVP_KDF_free>> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  std::unique_ptr<EVP_KDF_CTX, Freed<EVP_KDF_CTX, EVP_KDF_CTX_free>> work(EVP_KDF_CTX_new(kdf.get()));
  char digest[] = "SHA256";
  int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<unsigned char*>(secret.data()),
                                        secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
      OSSL_PARAM_construct_end()};
  if (work && EVP_KDF_derive(work.get(), out.data(), out.size(), params) == 1) return {};
  return bad_tls("deriving a key");
}

}  // namespace

RecordKey::~RecordKey() {
  OPENSSL_cleanse(key.data(), key.size());
  OPENSSL_cleanse(iv.data(), iv.size());
}

TrafficSecret::TrafficSecret(RecordCipher cipher, std::span<const unsigned char, bytes> secret)
    : cipher_(cipher) {
  std::copy(secret.begin(), secret.end(), secret_.begin());
}

TrafficSecret::~TrafficSecret() {
  OPENSSL_cleanse(secret_.data(), secret_.size());
}

Result<RecordKey> TrafficSecret::key() const {
  RecordKey out;
  out.cipher = cipher_;
  const std::size_t key_bytes = cipher_ == RecordCipher::aes_128_gcm ? 16 : out.key.size();
  TL_TRY(expand(secret_, "key", std::span(out.key).first(key_bytes)));
  TL_TRY(expand(secret_, "iv", out.iv));
  return out;
}

Status TrafficSecret::advance() {
  std::array<unsigned char, bytes> next;
  TL_TRY(expand(secret_, "traffic upd", next));
  secret_ = next;
  OPENSSL_cleanse(next.data(), next.size());
  return {};
}

std::optional<RecordCipher> record_cipher(std::uint16_t number) {
  constexpr std::uint16_t aes_128_gcm_sha256 = 0x1301, chacha20_poly1305_sha256 = 0x1303;
  if (number == aes_128_gcm_sha256) return RecordCipher::aes_128_gcm;
  if (number == chacha20_poly1305_sha256) return RecordCipher::chacha20_poly1305;
  return std::nullopt;
}

}  // namespace twinloft::repl::stream
