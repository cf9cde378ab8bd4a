#include "twinloft/base/hash.h"

#ifdef __x86_64__
#include <xxh_x86dispatch.h>  // uses the widest vectors of this processor, with the same results
#else
#include <xxhash.h>
#endif

namespace twinloft {

namespace {
Hash128 to_hash(XXH128_hash_t h) {
  Hash128 out;
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, h);
  std::memcpy(out.bytes.data(), canonical.digest, out.bytes.size());
  return out;
}
}  // namespace

std::string to_hex(ByteSpan bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (std::byte b : bytes) {
    out += digits[static_cast<unsigned>(b) >> 4];
    out += digits[static_cast<unsigned>(b) & 15];
  }
  return out;
}

std::string Hash128::hex() const {
  return to_hex(bytes);
}

Hash128 hash128(ByteSpan data) {
  return to_hash(XXH3_128bits(data.data(), data.size()));
}

struct Hasher128::State {
  alignas(64) XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Hasher128::Hasher128() : state_(std::make_unique<State>()) {
  reset();
}
Hasher128::~Hasher128() = default;
void Hasher128::reset() {
  XXH3_128bits_reset(state_->xxh);
}
void Hasher128::update(ByteSpan data) {
  XXH3_128bits_update(state_->xxh, data.data(), data.size());
}
Hash128 Hasher128::digest() const {
  return to_hash(XXH3_128bits_digest(state_->xxh));
}

}  // namespace twinloft
