#include "twinloft/spool-repl/net/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "twinloft/base/check.h"

namespace twinloft::repl::net {

namespace {
constexpr std::uint64_t features_required_known = 0;
}  // namespace

Handshake::Handshake(const Identity& self, Authentication authentication, Direction direction,
                     ReplicaId expect, Random& random)
    : self_(self),
      authentication_(std::move(authentication)),
      direction_(direction),
      expect_(expect),
      phase_(is_old() && direction == Direction::dialed ? Phase::challenge : Phase::hello) {
  random.fill(nonce_);
  if (direction_ == Direction::dialed) {
    own_hello_ = hello(expect_);
    if (!is_old()) say(WireType::hello, own_hello_);
    return;
  }
  if (!is_old()) return;
  Writer w(challenge_);
  w.put(handshake_version);
  w.put_bytes(nonce_);
  say(WireType::challenge, challenge_);
}

void Handshake::join(const JoinPath& path) {
  TL_CHECK(direction_ == Direction::dialed && !is_old());
  join_ = path;
  std::vector<std::byte> out;
  Writer w(out);
  w.put_bytes(self_.volume.bytes);
  w.put(self_.replica);
  w.put(expect_);
  w.put_bytes(path.link);
  w.put(path.number);
  w.put(path.first);
  output_.clear();
  say(WireType::join_path, out);
}

Result<bool> Handshake::take_join(ByteSpan payload) {
  Reader r(payload);
  JoinPath path;
  r.get_into(peer_.volume.bytes);
  peer_.replica = r.get<std::uint32_t>();
  wanted_ = r.get<std::uint32_t>();
  r.get_into(path.link);
  path.number = r.get<std::uint32_t>();
  path.first = r.get<std::uint32_t>();
  if (!r.ok() || r.remaining() != 0) return fail(Errc::corrupt, "a path of {} bytes", payload.size());
  TL_TRY(vouch(peer_.replica));
  TL_TRY(check_peer());
  if (path.number >= paths_max || path.first >= paths_max)
    return fail(Errc::corrupt, "path {} of a link that has begun with path {}", path.number, path.first);
  phase_ = Phase::done;
  join_ = path;
  return true;
}

LinkKey Handshake::link_key() const {
  bool dialed = direction_ == Direction::dialed;
  std::vector<std::byte> text;
  Writer w(text);
  w.put_bytes(as_bytes("twinloft link 1"));
  for (const auto* hello : {dialed ? &own_hello_ : &peer_hello_, dialed ? &peer_hello_ : &own_hello_}) {
    w.put(static_cast<std::uint32_t>(hello->size()));
    w.put_bytes(*hello);
  }
  LinkKey out;
  unsigned length = 0;
  int made = EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(out.data()), &length,
                        EVP_sha256(), nullptr);
  TL_CHECK(made == 1 && length == out.size());
  return out;
}

Status Handshake::check_dialed() const {
  return direction_ == Direction::dialed ? vouch(expect_) : Status();
}

Status Handshake::vouch(ReplicaId replica) const {
  const auto* stream = std::get_if<ByStream>(&authentication_);
  return stream && stream->vouch ? stream->vouch(replica) : Status();
}

std::vector<std::byte> Handshake::hello(ReplicaId peer) const {
  std::vector<std::byte> out;
  Writer w(out);
  w.put(self_.features);
  w.put(features_required_known);
  w.put_bytes(self_.volume.bytes);
  w.put(self_.volume_blocks);
  w.put(self_.replica);
  w.put(expect_);
  w.put_bytes(nonce_);
  w.put_text(self_.settings ? self_.settings(peer) : std::string());
  return out;
}

Status Handshake::take_challenge(ByteSpan payload) {
  Reader r(payload);
  auto version = r.get<std::uint16_t>();
  r.skip(nonce_.size());
  if (!r.ok()) return fail(Errc::corrupt, "the peer's challenge is too short");
  if (version != handshake_version)
    return fail(Errc::conflict, "the peer speaks version {} of the handshake, this node version {}", version,
                handshake_version);
  challenge_.assign(payload.begin(), payload.end());
  return {};
}

Status Handshake::take_hello(ByteSpan payload) {
  Reader r(payload);
  features_ = r.get<std::uint64_t>();
  required_ = r.get<std::uint64_t>();
  r.get_into(peer_.volume.bytes);
  peer_.volume_blocks = r.get<std::uint64_t>();
  peer_.replica = r.get<std::uint32_t>();
  wanted_ = r.get<std::uint32_t>();
  r.skip(nonce_.size());
  auto settings = r.get_text(agreement_bytes_max);
  if (!settings) return fail(Errc::corrupt, "the peer's hello is too short");
  peer_settings_ = *settings;
  peer_hello_.assign(payload.begin(), payload.end());
  return {};
}

Status Handshake::check_peer() const {
  if (required_ & ~features_required_known)
    return fail(Errc::conflict, "the peer requires features {:#x} that this release does not have",
                required_);
  if (peer_.volume != self_.volume)
    return fail(Errc::conflict, "the peer serves volume {}, this node {}: check both configurations",
                peer_.volume.text(), self_.volume.text());
  if (peer_.replica == self_.replica)
    return fail(Errc::conflict,
                "the peer is configured as replica {}, as this node is: each node needs its own id",
                self_.replica);
  if (expect_ != 0 && peer_.replica != expect_)
    return fail(Errc::conflict, "replica {} answers at the address of replica {}", peer_.replica, expect_);
  if (wanted_ != 0 && wanted_ != self_.replica)
    return fail(Errc::conflict,
                "replica {} has dialed replica {} here, which is replica {}: check its addresses",
                peer_.replica, wanted_, self_.replica);
  return {};
}

// Checks the settings that must be equal at both ends. The peer is the expected replica of this volume.
Status Handshake::check_agreement() {
  std::string differs;
  if (peer_.volume_blocks != self_.volume_blocks)
    differs = fmt::format("the volume has {} bytes here and {} there", self_.volume_blocks * block_size,
                          peer_.volume_blocks * block_size);
  std::string own = self_.settings ? self_.settings(peer_.replica) : std::string();
  std::string settings = disagreement(own, peer_settings_);
  if (!differs.empty() && !settings.empty()) differs += ", ";
  differs += settings;
  if (differs.empty()) return {};
  disagrees_ = true;
  other_arbiter_ = arbiter_lines(own) != arbiter_lines(peer_settings_);
  return fail(Errc::conflict,
              "replica {} is configured differently: {}. The replicas cannot connect until both agree "
              "(docs/operations.md)",
              peer_.replica, differs);
}

// The lengths are included, so that no two dialogues have the same text.
std::array<std::byte, 32> Handshake::proof(Direction maker) const {
  bool dialed = direction_ == Direction::dialed;
  std::vector<std::byte> text;
  Writer w(text);
  auto add = [&](ByteSpan part) {
    w.put(static_cast<std::uint32_t>(part.size()));
    w.put_bytes(part);
  };
  w.put_bytes(as_bytes("twinloft replica proof 3"));
  w.put(static_cast<std::uint8_t>(maker));
  add(challenge_);
  add(dialed ? own_hello_ : peer_hello_);
  if (maker == Direction::accepted) add(dialed ? peer_hello_ : own_hello_);
  std::array<std::byte, 32> out;
  unsigned length = 0;
  const std::string& secret = std::get<OldRelease>(authentication_).secret;
  auto* made = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                    reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                    reinterpret_cast<unsigned char*>(out.data()), &length);
  TL_CHECK(made != nullptr && length == out.size());
  return out;
}

Status Handshake::check_proof(ByteSpan payload) const {
  auto expected = proof(direction_ == Direction::dialed ? Direction::accepted : Direction::dialed);
  if (payload.size() != expected.size() ||
      CRYPTO_memcmp(payload.data(), expected.data(), expected.size()) != 0)
    return fail(Errc::denied,
                "the peer has another shared secret: `secret_file` must be the same on both nodes");
  return {};
}

// The other side is authenticated. So it gets the reason of a refusal, by the same rules as its own.
Result<bool> Handshake::finish() {
  TL_TRY(vouch(peer_.replica));
  phase_ = Phase::done;
  if (direction_ == Direction::accepted) {
    own_hello_ = hello(peer_.replica);
    say(WireType::hello, own_hello_);
    if (is_old()) say(WireType::proof, proof(Direction::accepted));
  }
  TL_TRY(check_peer());
  TL_TRY(check_agreement());
  return true;
}

Result<bool> Handshake::receive(std::uint16_t type, ByteSpan payload) {
  auto is = [&](WireType t, Phase p) { return type == static_cast<std::uint16_t>(t) && phase_ == p; };
  if (is(WireType::challenge, Phase::challenge)) {
    TL_TRY(take_challenge(payload));
    say(WireType::hello, own_hello_);
    say(WireType::proof, proof(Direction::dialed));
    phase_ = Phase::hello;
    return false;
  }
  if (is(WireType::path_joined, Phase::hello) && direction_ == Direction::dialed && join_ &&
      payload.empty()) {
    peer_.replica = expect_;
    phase_ = Phase::done;
    return true;
  }
  if (is(WireType::join_path, Phase::hello) && direction_ == Direction::accepted && !is_old())
    return take_join(payload);
  if (is(WireType::hello, Phase::hello) && !join_) {
    TL_TRY(take_hello(payload));
    if (!is_old()) return finish();
    phase_ = Phase::proof;
    return false;
  }
  if (is(WireType::proof, Phase::proof)) {
    TL_TRY(check_proof(payload));
    return finish();
  }
  return fail(Errc::corrupt, "a message of type {} in the handshake", type);
}

}  // namespace twinloft::repl::net
