// How much may be on its way to each peer: a send window, and the link's share of the process' memory for
// links. What a link holds is counted anew before each decision, from the states of the peers.
#pragma once

#include <cstdint>

#include "peer.h"
#include "twinloft/spool-repl/core/link_memory.h"

namespace twinloft::repl::core {

class SendRoom {
 public:
  static constexpr std::uint64_t resync_chunk = 65 * block_size;  // the largest message
  // Of each link, for resyncs alone. The rest of its reserve is for records alone.
  static constexpr std::uint64_t resync_reserve = 4 * resync_chunk;
  SendRoom(const Volume& volume, const Peers& peers) : v_(volume), peers_(peers) {}
  ~SendRoom();
  SendRoom(const SendRoom&) = delete;
  SendRoom& operator=(const SendRoom&) = delete;

  // True: records of so many bytes may be sent, or read to be sent. A window that is not full takes one.
  bool for_records(const Peer& peer, std::uint64_t bytes) const;
  // True: another chunk of a resync may be read and sent.
  bool for_resync(const Peer& peer) const;
  void update() const;  // what is held, after acknowledgements or a lost connection
  std::uint64_t on_its_way(const Peer& peer) const;  // bytes, for the status

 private:
  std::uint64_t of_records(const Peer& peer) const;
  std::uint64_t held(const Peer& peer, std::uint64_t more_records, std::uint64_t more_resync) const;
  bool take(const Peer& peer, std::uint64_t records, std::uint64_t resync) const;

  const Volume& v_;
  const Peers& peers_;
};

}  // namespace twinloft::repl::core
