// A peer of the primary: the state of the connection, and knowledge of its log that outlives the connection.
//
//         PeerUp             last common record found
//   Away --------> Matching --------------------------> Streaming
//                     |                                     ^
//                     | records alone do not suffice        | the peer is ready
//                     +--------------> OfferingResync ------+
//
// PeerDown leads from each of these back to Away. A refusal, by either side, leads to StandAlone until the
// peer connects again. Each state owns its data, which ends with the state.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "companion.h"
#include "volume.h"

namespace twinloft::repl::core {

struct Peer {
  // A resync sends the blocks that the peer may lack beside the records. A chunk is up to 64 blocks, one word
  // of the bitmap.
  struct Chunk {
    std::uint64_t word = 0, mask = 0;
    unsigned repairs = 0;  // so far. After a repair, only the blocks of the mask are read
  };
  struct Resync {
    // The resync starts once everything before this record is committed here. The peer may already have
    // written these records home, and must not get older content.
    RecordNo not_before = 0;
    Lsn base;                            // records behind this LSN reach the peer on this connection
    std::vector<std::uint64_t> todo;     // bitmap of the blocks to send or check
    std::uint64_t next = 0;              // next word of `todo`
    std::uint64_t total = 0, done = 0;   // blocks
    bool whole = true, nothing = false;  // nothing: the peer lacks only the records that follow
    bool chosen = false;                 // todo is filled
    bool compare = false;                // digests first, since the peer may have many of the blocks
    std::uint64_t checks = 0;            // sent
    std::deque<Chunk> checking;          // checks without an answer
    std::uint64_t seq = 0, acked = 0;    // data messages that were sent, and that are in the peer's data area
    std::uint64_t acks = 0;              // number of acknowledgements, also repeated ones
    struct Flying {
      std::uint64_t seq, bytes;
      Chunk chunk;
    };
    std::deque<Flying> flying;  // data messages in flight
    std::vector<Chunk> again;   // chunks to send: they differ, or the peer declined them
    Instant pause_until;
    bool declined = false;  // the peer declined the last data message, which will be sent again
    std::uint64_t flying_bytes = 0;
    unsigned reads = 0;
    bool end_sent = false;
    std::optional<std::uint64_t> told;  // `done` in the last SyncProgress
  };

  struct Away {};

  // The primary searches for the last record that both logs have.
  struct Matching {
    std::optional<MatchState> answer;  // of the peer
    bool again = false;                // match again once the record of the newest epoch is durable here
    // Candidates low..high: each is the end of a common part of the logs.
    struct Search {
      RecordNo low = 0, high = 0, probing = 0;
      bool low_known = false;
      LogMark mark;  // of the last probe
    };
    std::optional<Search> search;
    // The chunk of the spill that is being read, since the peer's last record may be in it.
    std::optional<std::uint64_t> reading;
  };

  // SyncBegin has been sent.
  struct OfferingResync {
    RecordNo hold = 0;  // the tail stays at or before this record, which the offer names, until the answer
    bool whole = true, compare = true;
  };

  struct Streaming {
    RecordNo begun_at = 0;  // the peer's log has the records before it
    RecordNo sent_end = 0, received_end = 0;
    bool reading = false;  // a record for the peer is being read from the journal
    LogMark commit_sent;
    Companion commit_waits;    // a newer commit point waits for a message to the peer
    RecordNo due_end = 0;      // records before it must be durable there within slow_peer. 0: none
    Instant due_since;         // the start of this time
    std::uint64_t filled = 0;  // of a peer that is being filled: its progress at due_since
    std::optional<Resync> resync;
    // A chunk of the spill, while records of it are being sent.
    struct Chunk {
      std::vector<std::byte> bytes;
      std::size_t at = 0;  // of the record sent_end
    };
    std::optional<Chunk> chunk;
    std::optional<std::uint64_t> reading_chunk;  // its number
    std::uint64_t reading_bytes = 0;             // of the record or chunk that is being read
    // What was sent and is not durable there yet. The journal's tail may have passed it.
    struct Sent {
      RecordNo end;
      LogMark mark;
      std::uint64_t bytes;
    };
    std::deque<Sent> sent;
    std::uint64_t sent_bytes = 0;    // of `sent`
    LogMark begun_after, sent_mark;  // before begun_at, before sent_end
    void note_sent(const LogMark& mark, std::uint64_t bytes);
    void note_durable(RecordNo end);
    bool place_known = false;                // by an acknowledgement of this stream
    std::optional<Behind> behind_told;       // to a peer behind a buffered link
    std::map<ReplicaId, KeepFor> keep_told;  // to the others, for each of these peers
    bool acked = false;                      // an acknowledgement has come on this stream
    // Where the peer gets its records (relay_control.h). No record goes out until the peer has answered.
    struct Source {
      ReplicaId relay = 0;  // 0: from here
      std::uint64_t seq = 0;
      bool answered = true;
      // What the relay had at `since` has to be here soon. 0: it had nothing more than the peer.
      RecordNo due_end = 0;
      RecordNo received_end = 0;  // of the peer, at `since`
      Instant since;
    };
    Source source;
    bool reads() const { return reading || reading_chunk; }
    // The peer awaits the records from `end` on, which has this mark before it.
    void go_back(RecordNo end, const LogMark& mark);
  };

  // One side has refused. Until the connection is closed, the records of an offer stay, and the peer may
  // still report the end of a resync.
  struct StandAlone {
    RecordNo hold = 0;
    std::optional<Resync> resync;
  };

  using State = std::variant<Away, Matching, OfferingResync, Streaming, StandAlone>;

  explicit Peer(PeerConfig c) : config(std::move(c)) {}

  ReplicaId id() const { return config.id; }
  ConnectionState connection() const;  // for the status
  bool away() const;                   // not connected, or the connection is being closed
  bool filling() const { return incomplete || refill > durable_end; }
  template <class S>
  S* in() {
    return std::get_if<S>(&state_);
  }
  template <class S>
  const S* in() const {
    return std::get_if<S>(&state_);
  }
  Streaming* streaming() { return in<Streaming>(); }
  const Streaming* streaming() const { return in<Streaming>(); }
  bool is_streaming() const { return streaming() != nullptr; }
  Resync* resync();  // also of a connection that is being closed
  const Resync* resync() const { return const_cast<Peer*>(this)->resync(); }
  RecordNo hold() const;  // 0: none
  // For the status: of this stream, or of the last one.
  RecordNo sent_end() const;
  RecordNo received_end() const;

  // Transitions. Each checks the present state.
  void connect(const Epoch& named);  // from any state; `named`: this node's epoch
  void disconnect();                 // from any state; StandAlone stays
  void offer(const OfferingResync& offer);
  // Both logs are equal before `from`, up to this mark.
  Streaming& stream(RecordNo from, const LogMark& mark);
  void stand_alone(std::string reason);
  void end_resync();

  PeerConfig config;
  std::uint64_t connection_no = 0;
  Epoch epoch;               // of the match request of this connection; all its messages name this epoch
  bool adding = false;       // every acknowledgement needs the peer, and it will become a member
  RecordNo add_barrier = 0;  // when durable up to here, the peer has all writes acknowledged without it
  RecordNo durable_end = 0;  // 0: not known since this process started
  LogMark durable_mark;      // before it, by the last acknowledgement
  RecordNo refill = 0;       // the peer had lost acknowledged writes: it has them when durable up to here
  // A resync into the peer has begun, on this connection or an earlier one, and the peer is not consistent
  // yet. Its acks cover only the records of this connection.
  bool incomplete = false;
  std::string why;  // reason of the last refusal, by either side
  // The relays that have failed this peer, and when each may be asked for again.
  struct Rest {
    Instant until;
    Duration next;
  };
  std::map<ReplicaId, Rest> rests;

 private:
  void leave_stream();
  State state_;
  RecordNo last_sent_ = 0, last_received_ = 0;
};

// All peers, in the order of the configuration.
class Peers {
 public:
  explicit Peers(const Config& config);
  Peer* find(ReplicaId id);
  const Peer* find(ReplicaId id) const { return const_cast<Peers*>(this)->find(id); }
  std::size_t size() const { return peers_.size(); }
  Peer& operator[](std::size_t i) { return peers_[i]; }
  auto begin() { return peers_.begin(); }
  auto end() { return peers_.end(); }
  auto begin() const { return peers_.begin(); }
  auto end() const { return peers_.end(); }

 private:
  std::vector<Peer> peers_;
};

// Closes the connection. The peer and the log get the reason.
void refuse(Volume& volume, Peer& peer, std::string reason, bool split_brain = false);

}  // namespace twinloft::repl::core
