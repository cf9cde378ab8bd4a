// The first messages of a connection between two replicas, without I/O. docs/formats/wire.md describes them.
//
//   both:  Hello (volume, size, replica id, features, a fresh nonce)
//   both:  Proof = HMAC-SHA256(secret, label | direction | own hello | the other's hello)
//
// Each side proves that it knows the shared secret for this very pair of nonces; the direction keeps a proof from
// being sent back to its maker. Without a secret (loopback only) the proofs are made with an empty key, so that a
// side with a secret never accepts a side without.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/random.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/format/wire.h"

namespace twinloft::repl::net {

inline constexpr std::uint32_t handshake_payload_max = 256;  // larger messages before the proof close the connection

struct Identity {
  Uuid volume;
  std::uint64_t volume_blocks = 0;
  ReplicaId replica = 0;
};

class Handshake {
 public:
  enum class Direction : std::uint8_t { dialed = 1, accepted = 2 };
  // `expect`: the replica that was dialed; 0 where any other replica of the volume may be calling.
  Handshake(const Identity& self, std::string secret, Direction direction, ReplicaId expect, Random& random);

  // Messages to send now: type and payload.
  struct Message {
    std::uint16_t type;
    std::vector<std::byte> payload;
  };
  std::vector<Message> take_output() { return std::exchange(output_, {}); }

  // True once the other side is known and has proved itself.
  Result<bool> receive(std::uint16_t type, ByteSpan payload);
  ReplicaId peer() const { return peer_.replica; }

 private:
  std::vector<std::byte> hello() const;
  Status take_hello(ByteSpan payload);
  std::array<std::byte, 32> proof(Direction maker, ByteSpan makers_hello, ByteSpan others_hello) const;

  Identity self_, peer_;
  std::string secret_;
  Direction direction_;
  ReplicaId expect_;
  std::array<std::byte, 32> nonce_{};
  std::vector<std::byte> own_hello_, peer_hello_;
  std::vector<Message> output_;
};

}  // namespace twinloft::repl::net
