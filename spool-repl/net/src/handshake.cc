#include "twinloft/spool-repl/net/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "twinloft/base/check.h"

namespace twinloft::repl::net {

namespace {
constexpr std::uint64_t features_offered = 0;
constexpr std::uint64_t features_required_known = 0;
}  // namespace

Handshake::Handshake(const Identity& self, std::string secret, Direction direction, ReplicaId expect, Random& random)
    : self_(self), secret_(std::move(secret)), direction_(direction), expect_(expect) {
  random.fill(nonce_);
  own_hello_ = hello();
  output_.push_back({static_cast<std::uint16_t>(WireType::hello), own_hello_});
}

std::vector<std::byte> Handshake::hello() const {
  std::vector<std::byte> out;
  Writer w(out);
  w.put(features_offered);
  w.put(features_required_known);
  w.put_bytes(self_.volume.bytes);
  w.put(self_.volume_blocks);
  w.put(self_.replica);
  w.put_bytes(nonce_);
  return out;
}

Status Handshake::take_hello(ByteSpan payload) {
  Reader r(payload);
  r.skip(8);  // what it offers beyond the base protocol: nothing here yet
  auto required = r.get<std::uint64_t>();
  r.get_into(peer_.volume.bytes);
  peer_.volume_blocks = r.get<std::uint64_t>();
  peer_.replica = r.get<std::uint32_t>();
  r.skip(nonce_.size());
  if (!r.ok()) return fail(Errc::corrupt, "the peer's hello is too short");
  if (required & ~features_required_known)
    return fail(Errc::conflict, "the peer requires features {:#x} that this release does not have", required);
  if (peer_.volume != self_.volume)
    return fail(Errc::conflict, "the peer serves volume {}, this node {}: check both configurations",
                peer_.volume.text(), self_.volume.text());
  if (peer_.volume_blocks != self_.volume_blocks)
    return fail(Errc::conflict, "the peer's volume has {} blocks, this node's {}", peer_.volume_blocks,
                self_.volume_blocks);
  if (peer_.replica == self_.replica)
    return fail(Errc::conflict, "the peer calls itself replica {} like this node: each needs an id of its own",
                self_.replica);
  if (expect_ != 0 && peer_.replica != expect_)
    return fail(Errc::conflict, "replica {} answers where replica {} is configured", peer_.replica, expect_);
  return {};
}

std::array<std::byte, 32> Handshake::proof(Direction maker, ByteSpan makers_hello, ByteSpan others_hello) const {
  std::vector<std::byte> text;
  Writer w(text);
  w.put_bytes(as_bytes("twinloft replica proof 1"));
  w.put(static_cast<std::uint8_t>(maker));
  w.put_bytes(makers_hello);
  w.put_bytes(others_hello);
  std::array<std::byte, 32> out;
  unsigned length = 0;
  auto* made = HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
                    reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                    reinterpret_cast<unsigned char*>(out.data()), &length);
  TL_CHECK(made != nullptr && length == out.size());
  return out;
}

Result<bool> Handshake::receive(std::uint16_t type, ByteSpan payload) {
  if (type == static_cast<std::uint16_t>(WireType::hello) && peer_hello_.empty()) {
    TL_TRY(take_hello(payload));
    peer_hello_.assign(payload.begin(), payload.end());
    auto mine = proof(direction_, own_hello_, peer_hello_);
    output_.push_back({static_cast<std::uint16_t>(WireType::proof), {mine.begin(), mine.end()}});
    return false;
  }
  if (type == static_cast<std::uint16_t>(WireType::proof) && !peer_hello_.empty()) {
    Direction other = direction_ == Direction::dialed ? Direction::accepted : Direction::dialed;
    auto expected = proof(other, peer_hello_, own_hello_);
    if (payload.size() != expected.size() || CRYPTO_memcmp(payload.data(), expected.data(), expected.size()) != 0)
      return fail(Errc::denied, "the peer does not know the shared secret: `secret_file` must hold the same on both");
    return true;
  }
  return fail(Errc::corrupt, "a message of type {} in the handshake", type);
}

}  // namespace twinloft::repl::net
