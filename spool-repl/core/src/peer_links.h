// The primary's connections to its peers: finds the last record that both logs have, sends the records behind
// it, takes the peers' acknowledgements, and closes a peer that is too slow. peer.h has the states.
#pragma once

#include <string>
#include <vector>

#include "checkpointer.h"
#include "membership.h"
#include "relay_control.h"
#include "repair.h"
#include "resync_source.h"
#include "send_room.h"

namespace twinloft::repl::core {

// Of records that a peer gets from its relay: so many may be on their way. Both sides keep their marks.
inline constexpr std::size_t marks_window = 8192;

class PeerLinks {
 public:
  PeerLinks(Volume& volume, Checkpointer& checkpointer, Peers& peers, const Term& term,
            Membership& membership, ResyncSource& resync, const SendRoom& room)
      : v_(volume),
        checkpointer_(checkpointer),
        peers_(peers),
        term_(term),
        membership_(membership),
        resync_(resync),
        room_(room),
        relays_(volume, peers, term) {}
  PeerLinks(const PeerLinks&) = delete;
  PeerLinks& operator=(const PeerLinks&) = delete;

  // A lost primary starts nothing with a peer. It steps down once its reads have ended.
  void peer_up(ReplicaId id);
  void peer_down(ReplicaId id);
  void peer_input(ReplicaId id, PeerMessage message);
  void on_journal_read(std::uint64_t token_number, int error, std::vector<std::byte> bytes);
  void on_spill_read(std::uint64_t token_number, int error,
                     std::vector<std::byte> chunk);                       // spilled_links.cc
  void refuse_other(ReplicaId id, std::string reason, bool split_brain);  // another primary

  void match_those_that_wait();
  void close_slow();
  void choose_relays() { relays_.advance(); }
  void pump();
  // Sends each peer the commit point, with the next message or soon. `now`: at once.
  void flush_messages(bool now);
  // The journal keeps the records that members and replicas being filled need to catch up, and those of
  // buffered links. For other replicas it keeps records while less than half of it is used (close_slow).
  void update_tail_limit();

  std::vector<Stream> streams() const;
  std::optional<Instant> next_tick() const;
  void fill_status(VolumeStatus& status, bool no_room) const;  // no_room: writes wait for room in the journal
  void check_invariants() const;

 private:
  // peer_match.cc
  void handle(Peer& peer, const MatchState& message);
  void handle(Peer& peer, const ProbeReply& message);
  void match(Peer& peer, const MatchState& answer);
  void unknown_epoch(Peer& peer, std::uint64_t counter);
  void probe_next(Peer& peer);
  bool has_to_wait(Peer& peer);
  void begin(Peer& peer, RecordNo common_end, const LogMark& from);
  void begin_resync(Peer& peer, RecordNo common_end = 0);

  void handle(Peer& peer, const Ack& message);
  void handle(Peer& peer, const Refuse& message);
  void handle(Peer& peer, const SyncReady& message) { resync_.handle(peer, message); }
  void handle(Peer& peer, const SyncAck& message) { resync_.handle(peer, message); }
  void handle(Peer& peer, const SyncDiffer& message) { resync_.handle(peer, message); }
  void handle(Peer& peer, const TakeAfter& message);
  void handle(Peer& peer, const RelayLost& message) { relays_.handle(peer, message); }
  void pump(Peer& peer);
  void pump_marks(Peer& peer, Peer::Streaming& stream);
  void send_mark(Peer& peer, Peer::Streaming& stream, const LogMark& mark);
  void journal_is_damaged(Peer& peer, const std::string& how);
  std::uint64_t backlog(const Peer& peer) const;
  void watch(Peer& peer);
  void watch_filling(Peer& peer, Peer::Streaming& stream);

  // far_links.cc: buffered links
  bool search_spill(Peer& peer, const LogMark& last);
  void find_in_chunk(Peer& peer, ByteSpan records, const SpillIndex::Held& held);
  void read_chunk(Peer& peer, const SpillIndex::Held& held);
  bool pump_spilled(Peer& peer, Peer::Streaming& stream);
  static RecordMessage stored_message(const Peer& peer, const StoredBytes& record);
  std::string send_spilled(Peer& peer, Peer::Streaming& stream);
  bool open_chunk(Peer::Streaming& stream, std::vector<std::byte> chunk) const;
  void lose_spill(RecordNo end, const std::string& why);  // up to there
  bool lossy_behind(RecordNo end, Lsn lsn) const;
  std::optional<RecordNo> acknowledged(const Peer& peer, const Peer::Streaming& stream,
                                       const LogMark& mark) const;
  RecordNo received(const Peer::Streaming& stream, Lsn lsn) const;
  void bound_buffers();
  void bound_buffer(FarBuffer& buffer, Peer& peer);
  void give_up(FarBuffer& buffer, Peer& peer, const std::string& why);
  bool waits_for_line(const Peer& peer) const;
  void report_lags();
  void tell_to_keep(Peer& peer, const FarBuffer& buffer);
  std::optional<Instant> next_far_tick() const;

  Volume& v_;
  Checkpointer& checkpointer_;
  Peers& peers_;
  const Term& term_;
  Membership& membership_;
  ResyncSource& resync_;
  const SendRoom& room_;
  RelayControl relays_;
  Instant next_report_{};  // of lags
};

}  // namespace twinloft::repl::core
