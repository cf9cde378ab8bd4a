// The first messages of a connection between two replicas, without I/O. docs/formats/wire.md describes them.
//
//   dialer:  Hello (volume, size, replica id, features, settings that must agree)
//   called:  Hello
//
// Or the dialer joins a further path to a link that is there:
//
//   dialer:  JoinPath (volume, replica id, the link's key, number of the path)
//   called:  PathJoined
//
// TLS has authenticated the other side before, or the connection is clear text on loopback or a direct cable.
// The called side sends no message before the caller's hello. TLS shows its certificate to every caller.
//
// Old releases have no TLS. Towards them both sides prove that they know the shared secret:
//
//   called:  Challenge (a fresh nonce)
//   dialer:  Hello, Proof
//   called:  Hello, Proof
//
// A proof is an HMAC-SHA256 with the shared secret over its maker and all earlier messages. So it is valid
// for one pair of nonces, and cannot be sent back to its maker.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "twinloft/base/random.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/compress/setting.h"
#include "twinloft/spool-repl/format/agreement.h"
#include "twinloft/spool-repl/format/wire.h"

namespace twinloft::repl::net {

inline constexpr std::uint32_t handshake_payload_max = 128 + agreement_bytes_max;  // larger messages before
                                                                                   // the proof close the
                                                                                   // connection
inline constexpr std::uint16_t handshake_version = 2;
// Features that a hello offers, as bits. A peer that does not offer one gets none of its messages.
inline constexpr std::uint64_t feature_buffers = 1;  // Behind, KeepFor
inline constexpr std::uint64_t feature_frames = 2;   // frames behind the hellos, if both sides offer them
inline constexpr std::uint64_t feature_short_records = 4;  // ShortRecord
inline constexpr std::uint64_t feature_reads = 8;          // ReadBlocks, BlocksRead
inline constexpr std::uint64_t feature_paths = 16;         // chunks behind the hellos, likewise. A dialer
                                                           // offers it if it has several addresses
inline constexpr std::uint64_t feature_relays = 32;        // TakeFrom and the messages around it
inline constexpr unsigned codecs_shift = 8;  // the codecs of CodecSet that the sender can decode
inline constexpr std::uint64_t features_known = feature_buffers | feature_frames | feature_short_records |
                                                feature_reads | feature_paths | feature_relays |
                                                compress::CodecSet::all().bits() << codecs_shift;

struct Identity {
  Uuid volume;
  std::uint64_t volume_blocks = 0;
  ReplicaId replica = 0;
  // The settings that must be equal to the peer's, see Agreement. Empty: none.
  std::function<std::string(ReplicaId peer)> settings{};
  std::uint64_t features = features_known;  // offered
};

// The messages of releases without TLS.
struct OldRelease {
  std::string secret;
};
// The stream below has authenticated the other side, or it is clear text.
struct ByStream {
  // Whether the other side may be this replica, by its certificate. Errors: Errc::denied.
  std::function<Status(ReplicaId)> vouch;  // empty: there is no certificate
};
using Authentication = std::variant<ByStream, OldRelease>;

// Of both hellos of a link, so that a further path finds the very connection of which it is a path.
using LinkKey = std::array<std::byte, 32>;

inline constexpr unsigned paths_max = 8;  // of a link

struct JoinPath {
  LinkKey link{};
  std::uint32_t number = 0;  // of the path
  std::uint32_t first = 0;   // of the path with the hellos
  bool operator==(const JoinPath&) const = default;
};

class Handshake {
 public:
  enum class Direction : std::uint8_t { dialed = 1, accepted = 2 };
  // expect: the replica that was dialed; 0 for any other replica of the volume.
  Handshake(const Identity& self, Authentication authentication, Direction direction, ReplicaId expect,
            Random& random);

  // A further path in place of a new link. Before take_output(), by the dialer.
  void join(const JoinPath& path);
  // What the other side, or this one, has joined. Nothing: it is a link of its own.
  const std::optional<JoinPath>& joined() const { return join_; }
  // The answer of the called side. The owner has found the link.
  void accept_join() { say(WireType::path_joined, {}); }
  LinkKey link_key() const;  // after the hellos

  Direction direction() const { return direction_; }

  // Before the first message: whether the dialed side may be the expected replica. Errors: Errc::denied.
  Status check_dialed() const;

  // A message to send, also after an error of receive().
  struct Message {
    std::uint16_t type;
    std::vector<std::byte> payload;
  };
  std::vector<Message> take_output() { return std::exchange(output_, {}); }

  // True once the other side is authenticated. Errors: Errc::denied (a wrong proof), Errc::conflict (the
  // authenticated side does not fit, and gets the reason), Errc::corrupt (not this protocol).
  Result<bool> receive(std::uint16_t type, ByteSpan payload);
  ReplicaId peer() const { return peer_.replica; }      // 0: unknown
  std::uint64_t features() const { return features_; }  // that the peer offers
  // Whether frames follow the hellos, and the codecs that this side and the other side can decode.
  bool has_frames() const { return !is_old() && (features_ & self_.features & feature_frames) != 0; }
  bool has_paths() const { return !is_old() && (features_ & self_.features & feature_paths) != 0; }
  compress::CodecSet own_codecs() const { return codecs_of(self_.features); }
  compress::CodecSet peer_codecs() const { return codecs_of(features_); }
  // The authenticated side has another size or other settings. No connection is possible until both agree.
  bool disagrees() const { return disagrees_; }
  bool has_other_arbiter() const { return other_arbiter_; }  // the arbiter is one of the differences
  // Whether the dialer has sent its proof, and waits for the other side's.
  bool waits_for_proof() const {
    return is_old() && direction_ == Direction::dialed && phase_ == Phase::hello;
  }
  bool is_old() const { return std::holds_alternative<OldRelease>(authentication_); }

 private:
  static compress::CodecSet codecs_of(std::uint64_t features) {
    return compress::CodecSet(features >> codecs_shift & compress::CodecSet::all().bits());
  }
  // The called side: hello, done. The dialer: hello, done. With an old release, the called side: hello,
  // proof, done. The dialer: challenge, hello, proof, done.
  enum class Phase { challenge, hello, proof, done };
  std::vector<std::byte> hello(ReplicaId peer) const;
  Status take_challenge(ByteSpan payload);
  Status take_hello(ByteSpan payload);
  Result<bool> take_join(ByteSpan payload);
  Status vouch(ReplicaId replica) const;
  Result<bool> finish();
  Status check_peer() const;
  Status check_agreement();
  Status check_proof(ByteSpan payload) const;
  std::array<std::byte, 32> proof(Direction maker) const;
  void say(WireType type, ByteSpan payload) {
    output_.push_back({static_cast<std::uint16_t>(type), {payload.begin(), payload.end()}});
  }

  Identity self_, peer_;
  Authentication authentication_;
  Direction direction_;
  ReplicaId expect_;
  Phase phase_;
  std::optional<JoinPath> join_;
  std::array<std::byte, 32> nonce_{};
  std::vector<std::byte> challenge_, own_hello_, peer_hello_;  // as sent
  std::uint64_t features_ = 0;                                 // that the peer offers
  std::uint64_t required_ = 0;                                 // the features that the peer requires
  ReplicaId wanted_ = 0;                                       // the replica that the peer has dialed; 0: any
  std::string peer_settings_;
  bool disagrees_ = false;
  bool other_arbiter_ = false;
  std::vector<Message> output_;
};

}  // namespace twinloft::repl::net
