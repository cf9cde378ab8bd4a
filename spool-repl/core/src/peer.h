// A peer of the primary: what is known of its log beyond one connection, and the state of the connection.
//
//         PeerUp             last common record found
//   Away --------> Matching --------------------------> Streaming
//                     |                                     ^
//                     | records alone do not suffice        | the peer is ready
//                     +--------------> OfferingResync ------+
//
// PeerDown leads from each of these back to Away. A refusal, by either side, leads to StandAlone, until the
// peer connects anew.
//
// A state has what is meaningful in it, and nothing else: the end of a state is the end of all that.
#pragma once

#include <deque>
#include <string>
#include <variant>
#include <vector>

#include "volume.h"

namespace twinloft::repl::core {

struct Peer {
  // Resync: the blocks that the peer may lack go to it in the stream of records, 64 at a time: one word of
  // the bitmap.
  struct Chunk {
    std::uint64_t word = 0, mask = 0;
    unsigned repairs = 0;  // so far; then only what is needed is read, and not the blocks between
  };
  struct Resync {
    // Not before everything is committed here that the peer may have written home already: it must not get
    // older content.
    RecordNo not_before = 0;
    Lsn base;                            // records behind this one reach the peer on this connection
    std::vector<std::uint64_t> todo;     // what was not looked at yet
    std::uint64_t next = 0;              // word of it
    std::uint64_t total = 0, done = 0;   // blocks
    bool whole = true, nothing = false;  // nothing: the records that follow are all that it lacks
    bool chosen = false;                 // todo is filled
    bool compare = false;                // digests first: much of it may be there already
    std::uint64_t checks = 0;            // sent
    std::deque<Chunk> checking;          // those without an answer
    std::uint64_t seq = 0, acked = 0;    // messages sent, and known to be in its data area
    std::uint64_t acks = 0;              // how often it has told that: also that its disk goes on
    struct Flying {
      std::uint64_t seq, bytes;
      Chunk chunk;
    };
    std::deque<Flying> flying;  // those between
    std::vector<Chunk> again;   // found to differ, or the peer had no room for it
    Instant pause_until;
    bool declined = false;  // the last answer to data was that: it is to be sent again
    std::uint64_t flying_bytes = 0;
    unsigned reads = 0;
    bool end_sent = false;
    std::optional<std::uint64_t> told;  // how far it is, as the target was told
  };

  struct Away {};

  // The last record that both have is looked for.
  struct Matching {
    std::optional<MatchState> answer;  // of the peer
    bool again = false;                // looked at again when the record of the newest epoch is durable here
    // Candidates low..high, each meaning "everything before this number".
    struct Search {
      RecordNo low = 0, high = 0, probing = 0;
      bool low_known = false;
      LogMark mark;  // that was asked for last
    };
    std::optional<Search> search;
  };

  // SyncBegin has been sent.
  struct OfferingResync {
    RecordNo hold = 0;  // it named the tail before this record, which stays until the peer answers
    bool whole = true, compare = true;
  };

  struct Streaming {
    RecordNo begun_at = 0;  // the peer has what comes before, says its log
    RecordNo sent_end = 0, received_end = 0;
    bool reading = false;  // a record for the peer is being read from the journal
    LogMark commit_sent;
    RecordNo due_end = 0;      // what had been sent when this was looked at last; 0: nothing is waited for
    Instant due_since;         // and when that was: it is to be durable there within slow_peer
    std::uint64_t filled = 0;  // while it is being filled: how far that was then
    std::optional<Resync> resync;
  };

  // One side has refused. Until the connection is closed, what an offer names stays, and a resync may still
  // be said to have ended.
  struct StandAlone {
    RecordNo hold = 0;
    std::optional<Resync> resync;
  };

  using State = std::variant<Away, Matching, OfferingResync, Streaming, StandAlone>;

  explicit Peer(PeerConfig c) : config(std::move(c)) {}

  ReplicaId id() const { return config.id; }
  ConnectionState connection() const;  // as the status names it
  bool away() const;                   // not connected, or not for long
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

  // Transitions. Each checks where it comes from.
  void connect(const Epoch& named);  // from any state; `named`: this node's epoch
  void disconnect();                 // from any state; StandAlone stays
  void offer(const OfferingResync& offer);
  Streaming& stream(RecordNo from);  // the peer's log is ours before `from`
  void stand_alone(std::string reason);
  void end_resync();

  PeerConfig config;
  std::uint64_t connection_no = 0;
  Epoch epoch;  // as this node named it when the connection began; names all messages of the connection
  bool adding = false;       // counts in every acknowledgement, and is to become a member
  RecordNo add_barrier = 0;  // durable there up to here, it holds all that was acknowledged without it
  RecordNo durable_end = 0;  // 0: not known since this process started
  RecordNo refill = 0;  // it had lost what it had acknowledged: it holds everything again when durable up
                        // to here
  // A resync into it was begun, on this connection or an earlier one, and it has not said that it is
  // consistent: its acks tell of the records that came meanwhile, and of nothing before them.
  bool incomplete = false;
  std::string why;  // it was refused last, or has refused

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

// Tells the peer, and the log, why the connection is closed.
void refuse(Volume& volume, Peer& peer, std::string reason, bool split_brain = false);

}  // namespace twinloft::repl::core
