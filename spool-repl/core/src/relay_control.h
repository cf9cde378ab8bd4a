// The primary's side of relays: tells each replica where it gets its records, and changes that when a relay
// is lost, brings nothing, or a better one is there. Part of PeerLinks.
//
//   records from here --TakeFrom--> no records --TakeAfter--> marks of records --TakeFrom--> no records ...
//
// Each answer names the last record that the peer has, so nothing is missed, and what is durable there is not
// sent again. docs/decisions/relays.md
#pragma once

#include <optional>
#include <string>

#include "peer.h"
#include "term.h"

namespace twinloft::repl::core {

class RelayControl {
 public:
  RelayControl(Volume& volume, Peers& peers, const Term& term) : v_(volume), peers_(peers), term_(term) {}

  void advance();
  void handle(Peer& peer, const RelayLost& message);
  // Whether the primary awaits this answer. False: it was refused.
  bool answers(Peer& peer, const TakeAfter& message);
  RecordNo marks_end(const Peer& peer) const;  // marks of earlier records may go to a peer with a relay
  std::optional<Instant> next_tick() const;

 private:
  bool fit(const Peer& peer) const;
  bool may_take(const Peer& who, const Peer& relay) const;
  bool has_failed(Peer& peer);
  void rest(Peer& peer, const std::string& why);
  void ask(Peer& peer, ReplicaId relay);
  Duration patience() const { return std::min(v_.config.relay_patience, v_.config.slow_peer / 4); }

  Volume& v_;
  Peers& peers_;
  const Term& term_;
  std::uint64_t seq_ = 0;
};

}  // namespace twinloft::repl::core
