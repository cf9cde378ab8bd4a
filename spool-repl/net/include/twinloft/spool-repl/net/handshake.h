// The first messages of a connection between two replicas, without I/O. docs/formats/wire.md describes them.
//
//   called:  Challenge (a fresh nonce)
//   dialer:  Hello (volume, size, replica id, features, settings that must agree, a nonce of its own), Proof
//   called:  Hello, Proof
//
// A proof is an HMAC-SHA256 with the shared secret over who makes it and everything that was said before it,
// so it is good for one pair of nonces and can not be sent back to its maker. The side that was called says
// nothing of itself before the caller has proved itself. Without a secret (loopback only) the proofs are made
// with an empty key, so that a side with a secret never accepts a side without.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/random.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/format/agreement.h"
#include "twinloft/spool-repl/format/wire.h"

namespace twinloft::repl::net {

inline constexpr std::uint32_t handshake_payload_max = 128 + agreement_bytes_max;  // larger messages before
                                                                                   // the proof close the
                                                                                   // connection
inline constexpr std::uint16_t handshake_version = 2;

struct Identity {
  Uuid volume;
  std::uint64_t volume_blocks = 0;
  ReplicaId replica = 0;
  // What that peer must be configured alike in, see Agreement. Not set: nothing.
  std::function<std::string(ReplicaId peer)> settings{};
};

class Handshake {
 public:
  enum class Direction : std::uint8_t { dialed = 1, accepted = 2 };
  // `expect`: the replica that was dialed; 0 where any other replica of the volume may be calling.
  Handshake(const Identity& self, std::string secret, Direction direction, ReplicaId expect, Random& random);

  // Messages to send now, also where receive() has just failed: type and payload.
  struct Message {
    std::uint16_t type;
    std::vector<std::byte> payload;
  };
  std::vector<Message> take_output() { return std::exchange(output_, {}); }

  // True once the other side is known and has proved itself. Errc::denied: a wrong proof; Errc::conflict: it
  // does not fit what this side is, and has proved that it may know why; Errc::corrupt: not this protocol.
  Result<bool> receive(std::uint16_t type, ByteSpan payload);
  ReplicaId peer() const { return peer_.replica; }  // 0: not known yet
  // It has proved itself, and has another size or other settings than this side: until that is mended there
  // is nothing between the two.
  bool disagrees() const { return disagrees_; }
  bool has_other_arbiter() const { return other_arbiter_; }  // and that is among it
  // The dialer has proved itself and waits for the other side to do so.
  bool waits_for_proof() const { return direction_ == Direction::dialed && phase_ == Phase::hello; }

 private:
  // Of the side that was called: hello, proof, done. Of the dialer: challenge, hello, proof, done.
  enum class Phase { challenge, hello, proof, done };
  std::vector<std::byte> hello(ReplicaId peer) const;
  Status take_challenge(ByteSpan payload);
  Status take_hello(ByteSpan payload);
  Status check_peer() const;
  Status check_agreement();
  Status check_proof(ByteSpan payload) const;
  std::array<std::byte, 32> proof(Direction maker) const;
  void say(WireType type, ByteSpan payload) {
    output_.push_back({static_cast<std::uint16_t>(type), {payload.begin(), payload.end()}});
  }

  Identity self_, peer_;
  std::string secret_;
  Direction direction_;
  ReplicaId expect_;
  Phase phase_;
  std::array<std::byte, 32> nonce_{};
  std::vector<std::byte> challenge_, own_hello_, peer_hello_;  // as sent
  std::uint64_t required_ = 0;                                 // features that the peer requires
  ReplicaId wanted_ = 0;                                       // that the peer has dialed, 0: any
  std::string peer_settings_;
  bool disagrees_ = false;
  bool other_arbiter_ = false;
  std::vector<Message> output_;
};

}  // namespace twinloft::repl::net
