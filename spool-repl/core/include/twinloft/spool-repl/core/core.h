// The replicated volume of one node as a pure state machine: step(event), tick(now), get_output().
//
// It has no I/O, clock, thread or lock. The same code runs in production and in the simulator (tests/sim).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "twinloft/base/random.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/core/effects.h"
#include "twinloft/spool-repl/core/link_memory.h"
#include "twinloft/spool-repl/format/agreement.h"
#include "twinloft/spool-repl/format/recovered.h"
#include "twinloft/spool-repl/format/spill.h"

namespace twinloft::repl::core {

enum class Protocol : std::uint8_t {
  A,
  B,
  C
};  // names and meanings as of DRBD; docs/spool-repl.md has the guarantees

// A buffered link, under protocol A: the peer may lag, and writers do not wait for it up to a bound.
struct BufferConfig {
  enum class WhenFull : std::uint8_t {
    slow_down,  // writers wait while the lag is at the bound, as long as the peer makes progress
    resync,     // the peer's records are given up, and a resync follows once the line can carry the load
  };
  std::uint64_t bytes = 0;  // of the journal: the bound. Without a spill, at most half of the ring
  WhenFull when_full = WhenFull::slow_down;
  bool operator==(const BufferConfig&) const = default;
};

struct PeerConfig {
  ReplicaId id = 0;
  Protocol protocol = Protocol::C;
  std::optional<BufferConfig> buffer = {};
  std::string site = {};  // where the peer stands; empty: nothing is known
  ReplicaId through = 0;  // this peer passes the records on to it, while it can. 0: none
};

// Who decides which replicas may continue alone (docs/spool-repl.md, "The arbiter").
enum class Arbiter : std::uint8_t {
  manual,    // the operator. A promotion needs every other recorded member connected and secondary;
             // on_peer_loss decides the rest
  external,  // a compare-and-swap of the epoch value (ArbiterRequest)
};
enum class OnPeerLoss : std::uint8_t { suspend, go_on };  // under Arbiter::manual

struct Config {
  Arbiter arbiter = Arbiter::manual;
  std::uint64_t arbiter_place = 1;  // a digest of its kind and address; not 0
  OnPeerLoss on_peer_loss = OnPeerLoss::suspend;
  Duration suspend_timeout{0};  // suspended requests fail after this time; 0: never
  // How long after the start a promotion waits for replicas that are not connected yet, since one of them may
  // be primary. ask_refused_for: after a refused connection; longer than the pause until the next connection.
  Duration ask_refused_for = std::chrono::seconds(5);
  Duration ask_peers_for = std::chrono::seconds(3);
  unsigned min_in_sync = 1;                          // replicas, with this replica; with fewer, writes wait
  Duration arbiter_retry = std::chrono::seconds(1);  // after an unknown outcome
  std::uint64_t sync_window_bytes = 8u << 20;  // resync data that was sent to a peer, and is not in its data
                                               // area yet
  // A resync slows down, at most to resync_rate_min, while flushes or reads take longer than this target, and
  // longer than twice their usual time.
  Duration resync_latency_target{0};         // 0: the resync does not slow down
  std::uint64_t resync_rate_min = 4u << 20;  // bytes a second
  // The connection of a peer is closed if sent data is not durable there for this time. A member's connection
  // is closed only if the primary may continue without the member.
  Duration slow_peer = std::chrono::seconds(20);
  std::vector<PeerConfig> peers;
  std::string site;  // where this replica stands. Records cross to another site once, to a relay there
  // A replica whose relay brings nothing for this time gets its records directly. It asks for the same relay
  // again after relay_rest, and after each further loss twice as late, up to 64 times.
  Duration relay_patience = std::chrono::seconds(5), relay_rest = std::chrono::seconds(5);
  bool spill = false;  // there is a place for records that the journal has no room for
  // Of buffered links: how often the lag is reported to other replicas, and rates are measured. After
  // buffer_patience, a resync does not wait any longer for a line that can carry the load.
  Duration buffer_interval = std::chrono::seconds(1), buffer_patience = std::chrono::minutes(5);
  Duration fetch_timeout = std::chrono::seconds(5);  // of each replica, for a block that cannot be read here
  ReadPolicy read_policy;                            // at the start; see SetReadPolicy
  // Of a question to a peer for blocks that a client reads. They are read here then.
  Duration balanced_read_timeout = std::chrono::milliseconds(500);
  Duration seal_after = std::chrono::milliseconds(5);
  bool write_ack_durable = false;
  std::uint32_t journal_writes_in_flight = 4;
  std::uint64_t send_window_bytes = 16u << 20;  // journal bytes that were sent to a peer, and are not durable
                                                // there yet
  // Bounds what all links of a process hold, beside the windows. Null: the windows alone.
  std::shared_ptr<LinkMemory> link_memory;
  std::uint32_t home_writes_in_flight = 16;
  // Zeros in a round of the checkpointer. Some devices need writes for them, and the tail waits for the
  // round.
  std::uint64_t zero_blocks_a_round = (1u << 30) / block_size;
  // Blocks that are zeros already. Fewer blocks are not worth two operations around them.
  std::uint64_t known_zeros_min = (1u << 20) / block_size;
  // Blocks are written home after checkpoint_idle without a commit, or when the oldest block has
  // checkpoint_age. Earlier, and beside clients, only as the journal or the arena fills.
  Duration checkpoint_idle = std::chrono::seconds(1), checkpoint_age = std::chrono::seconds(10);
};

// The settings that must be equal at both ends of the link.
Agreement agreement_of(const Config& config, std::string_view arbiter, ReplicaId peer);

enum class ConnectionState {
  StandAlone,
  Connecting,
  Matching,
  Connected
};  // DRBD's words, as far as it has them

// Of a buffered link.
struct BufferStatus {
  std::uint64_t bound = 0, lag_bytes = 0, lag_lsns = 0;  // bytes of the journal
  Duration lag{0};        // since the oldest record that the peer lacks was written
  bool slows = false;     // writers wait for this peer
  bool given_up = false;  // no records are kept for it: it needs a resync
  bool waits = false;     // the resync waits until the line can carry the load
};
// What the primary last said about the records that this replica lacks.
struct BehindReport {
  Lsn last, durable;
  std::uint64_t bytes = 0;
  Duration lag{0};  // at that time
  Instant at;       // when it came
};

struct PeerStatus {
  ReplicaId id = 0;
  Protocol protocol = Protocol::C;
  ConnectionState connection = ConnectionState::Connecting;
  Lsn sent, received, durable;
  std::string why;       // the last reason for a closed or refused connection
  bool in_sync = false;  // a member of the recorded set of this log
  Instant since = {};    // when it connected, or the connection was lost. Never connected: the start of this
                         // process
  bool seen = false;     // it has been connected since the start of this process
  bool primary = false;  // as it reports
  bool known = false;    // it has reported its state since it connected
  bool inconsistent = false;                               // a resync into it is not complete
  bool sync_source = false, sync_target = false;           // of a running resync on this connection
  std::uint64_t synced_blocks = 0, sync_total_blocks = 0;  // as sync source: sent or found equal so far, of
                                                           // all
  std::uint64_t dirty_blocks = 0;                          // that it may lack, as far as this replica knows
  bool dirty_known = false;  // false: it needs the whole volume, if the journal does not reach back to it
  bool split_brain = false;  // both histories have acknowledged writes that the other lacks
  std::optional<BufferStatus> buffer = {};
  // Of a primary: since its promotion, questions that the peer has answered for clients' reads, and answers
  // with other content than was written.
  std::uint64_t reads = 0, wrong_reads = 0;
  ReplicaId relay = 0;      // of a primary: the peer gets its records from this replica. 0: from here
  bool relays_to = false;   // of a secondary: it passes records on to this peer
  bool takes_from = false;  // of a secondary: it gets its records from this peer, and not from the primary
  std::uint64_t on_its_way = 0;  // bytes of records and of a resync, of a primary
};

struct VolumeStatus {
  Instant now = {};  // the time of this status
  Role role = Role::secondary;
  Epoch epoch;
  bool failed = false;  // the device answers EIO until it is attached again
  std::string failure;
  bool suspended = false;      // primary: writes wait for a peer
  ReplicaId discards_for = 0;  // its history will be discarded for the history of this replica, once it
                               // connects
  std::string waits_for;       // why a suspended primary waits, or why this replica is not promoted yet
  ReplicaId slowed_by = 0;     // of a primary that is not suspended: writes wait for room that this replica
                               // occupies. 0: none
  std::uint64_t slowed_by_bytes = 0;  // of the journal
  ReplicaSet in_sync = 0;             // of the newest epoch
  std::uint64_t resync_held_to = 0;   // of a sync source: bytes a second, while clients' requests take too
                                      // long. 0: not slowed down
  bool inconsistent = false;
  bool refilling = false;  // it was created again, and has not got back everything
  std::size_t waiting_requests = 0;
  Lsn last, durable, commit, tail;
  std::uint64_t journal_used = 0, journal_size = 0;        // bytes
  std::uint64_t arena_used = 0, arena_size = 0;            // bytes
  std::uint64_t dirty_blocks = 0;                          // committed, and not home yet
  std::uint64_t records = 0, records_bytes = 0;            // written since the start
  std::uint64_t checkpoints = 0, home_blocks_written = 0;  // since start
  // Since the start: blocks of the data area that could not be read, and were written again with another
  // replica's content; blocks whose content no replica had; blocks that could be read at the second attempt;
  // and blocks that were overwritten meanwhile.
  std::uint64_t repaired_blocks = 0, unreadable_blocks = 0, reread_blocks = 0, overwritten_blocks = 0;
  std::uint64_t wrong_blocks = 0;  // since the start: reads of blocks with other content than was written
  std::optional<BehindReport> behind = {};  // of a secondary behind a buffered link, since its start
  std::uint64_t spilled = 0;                // bytes in the spill
  ReadPolicy read_policy = {};              // of a primary
  std::vector<PeerStatus> peers;
};

// The smallest number of blocks of an arena. With fewer blocks, the core could get stuck.
std::size_t arena_blocks_min(const Config& config);
// How many blocks of an arena recovery may fill with committed content, from the first block on. A quarter
// stays free for new writes.
std::size_t recovery_blocks(const Config& config, std::size_t arena_blocks);
inline constexpr std::size_t read_arena_blocks_min = 512;

class Core {
 public:
  // arena: for the volume's blocks. read_arena: for reads of the data area. Both must outlive the core.
  // Errors: Errc::exhausted if the journal's uncommitted records do not fit into the arena.
  // spill: the chunks that an earlier process has left, oldest first; verified.
  static Result<std::unique_ptr<Core>> create(const Config& config, RecoveredLog recovered, Arena& arena,
                                              Arena& read_arena, Random& random,
                                              const std::vector<SpillChunk>& spill = {});
  ~Core();

  // Before step(), so that its deadlines begin now. Earlier than the last time: no effect.
  void note_time(Instant now);
  void step(Event event);
  void tick(Instant now);
  // The latest time of the next tick(), if no event comes earlier.
  std::optional<Instant> next_tick() const;
  // Moves all effects into `out`, which must be empty. The call ends a turn: writes and flushes since the
  // last call go into one record.
  void get_output(Output& out);

  VolumeStatus status() const;
  // Whether every record is durable here, everything committed is in the data area, and the tail has moved up
  // to it.
  bool settled() const;
  // Stops the process if an invariant between two events does not hold. step() and tick() call it in debug
  // builds.
  void check_invariants() const;

 private:
  struct Parts;
  explicit Core(std::unique_ptr<Parts> parts);
  void advance();
  std::unique_ptr<Parts> parts_;
};

}  // namespace twinloft::repl::core
