// The replicated volume of one node as a pure state machine: step(event), tick(now), get_output().
//
// No I/O, no clock, no thread, no lock. The same code runs in production and in the simulator (tests/sim).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "twinloft/base/random.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/core/effects.h"
#include "twinloft/spool-repl/format/agreement.h"
#include "twinloft/spool-repl/format/recovered.h"

namespace twinloft::repl::core {

enum class Protocol : std::uint8_t {
  A,
  B,
  C
};  // names and meaning as DRBD's, with the guarantees of DESIGN 6.2

struct PeerConfig {
  ReplicaId id = 0;
  Protocol protocol = Protocol::C;
};

// Who decides which replicas may go on alone (DESIGN 6.4).
enum class Arbiter : std::uint8_t {
  manual,    // nobody: a promotion needs every other recorded member here and demoted; on_peer_loss says the
             // rest
  external,  // a compare-and-swap of the epoch value (ArbiterRequest)
};
enum class OnPeerLoss : std::uint8_t { suspend, go_on };  // under Arbiter::manual

struct Config {
  Arbiter arbiter = Arbiter::manual;
  std::uint64_t arbiter_place = 1;  // a digest of its kind and of where it is; not 0
  OnPeerLoss on_peer_loss = OnPeerLoss::suspend;
  Duration suspend_timeout{0};  // requests that waited so long in a suspension fail; 0: never
  // For so long after the start a promotion waits for replicas that are not connected yet, and asks them: one
  // of them may be primary. After a refused connection: longer than the pause until the next connection.
  Duration ask_refused_for = std::chrono::seconds(5);
  Duration ask_peers_for = std::chrono::seconds(3);
  unsigned min_in_sync = 1;                          // replicas, this one counted: with fewer writes wait
  Duration arbiter_retry = std::chrono::seconds(1);  // after an unknown outcome
  std::uint64_t sync_window_bytes = 8u << 20;  // resync data sent to a peer and not yet in its data area
  // A resync slows down, to this rate if need be, while flushes or reads take longer than that, and than
  // twice of what they took before.
  Duration resync_latency_target{0};         // 0: it never does
  std::uint64_t resync_rate_min = 4u << 20;  // bytes a second
  // A connected peer on which something that was sent is not durable for so long is closed; a member, if it
  // may be left out.
  Duration slow_peer = std::chrono::seconds(20);
  std::vector<PeerConfig> peers;
  Duration fetch_timeout = std::chrono::seconds(5);  // for a block that cannot be read here, from each
                                                     // replica
  Duration seal_after = std::chrono::milliseconds(5);
  bool write_ack_durable = false;
  std::uint32_t journal_writes_in_flight = 4;
  std::uint64_t send_window_bytes = 16u << 20;  // journal bytes sent to a peer and not yet durable there
  std::uint32_t home_writes_in_flight = 16;
  // Zeros in a round of the checkpointer: some devices take them as writes only, and the tail waits for the
  // round.
  std::uint64_t zero_blocks_a_round = (1u << 30) / block_size;
  std::uint64_t known_zeros_min = (1u << 20) / block_size;  // blocks that are zeros already; fewer are not
                                                            // worth two operations around them
  // Blocks are written home once nothing has been committed for so long, or the oldest of them is so old.
  // Before that, and beside clients, only as the journal or the arena fills.
  Duration checkpoint_idle = std::chrono::seconds(1), checkpoint_age = std::chrono::seconds(10);
};

// What the replica at the other end of that link must be configured alike in.
Agreement agreement_of(const Config& config, std::string_view arbiter, ReplicaId peer);

enum class ConnectionState { StandAlone, Connecting, Matching, Connected };  // DRBD's words where it has one

struct PeerStatus {
  ReplicaId id = 0;
  Protocol protocol = Protocol::C;
  ConnectionState connection = ConnectionState::Connecting;
  Lsn sent, received, durable;
  std::string why;       // the last reason for a closed or refused connection
  bool in_sync = false;  // a member of the recorded set, as the log here has it
  Instant since = {};  // it connected, or the connection was lost; it was never connected: the start of this
                       // process
  bool seen = false;   // it was connected in the time of this process
  bool primary = false;                                    // what it says of itself
  bool known = false;                                      // it has said anything since it connected
  bool inconsistent = false;                               // a resync into it has not been finished
  bool sync_source = false, sync_target = false;           // of a resync that is under way on this connection
  std::uint64_t synced_blocks = 0, sync_total_blocks = 0;  // sent or found equal so far, as sync source; of
                                                           // how many
  std::uint64_t dirty_blocks = 0;                          // that it may lack, as far as known here
  bool dirty_known = false;  // else it needs all of the volume, if the journal does not reach back to it
  bool split_brain = false;  // both histories hold what the other lacks and somebody may rely on
};

struct VolumeStatus {
  Instant now = {};  // when this was so
  Role role = Role::secondary;
  Epoch epoch;
  bool failed = false;  // the device answers EIO until it is attached anew
  std::string failure;
  bool suspended = false;      // primary: writes wait for a peer
  ReplicaId discards_for = 0;  // its history is to be given up for the history of this replica, once that
                               // connects
  std::string waits_for;  // why a suspended primary waits, or why this node is not primary though it is to be
  ReplicaId slowed_by = 0;  // primary, not suspended: writes wait for room, and this one has not made durable
                            // what takes it; 0: nobody
  std::uint64_t slowed_by_bytes = 0;  // of the journal
  ReplicaSet in_sync = 0;             // of the newest epoch
  std::uint64_t resync_held_to = 0;  // sync source: bytes a second, while clients' requests take too long; 0:
                                     // not held up by them
  bool inconsistent = false;
  bool refilling = false;  // it was created anew, and does not have everything again that it had
  std::size_t waiting_requests = 0;
  Lsn last, durable, commit, tail;
  std::uint64_t journal_used = 0, journal_size = 0;        // bytes
  std::uint64_t arena_used = 0, arena_size = 0;            // bytes
  std::uint64_t dirty_blocks = 0;                          // committed and not yet home
  std::uint64_t records = 0, records_bytes = 0;            // written since start
  std::uint64_t checkpoints = 0, home_blocks_written = 0;  // since start
  // Since start: blocks of the data area that could not be read and were written again with another replica's
  // content; how often no replica had the content; and how often neither was needed after all: the
  // block was readable by itself when it was tried again, or had been written meanwhile.
  std::uint64_t repaired_blocks = 0, unreadable_blocks = 0, reread_blocks = 0, overwritten_blocks = 0;
  std::uint64_t wrong_blocks = 0;  // since start: how often a block could be read and was not what had been
                                   // written there
  std::vector<PeerStatus> peers;
};

// Blocks that an arena needs at least; below it the core could run into a state that it can not leave.
std::size_t arena_blocks_min(const Config& config);
// How much of an arena of so many blocks recovery may fill with what is committed, from its first block on: a
// quarter stays for what comes next.
std::size_t recovery_blocks(const Config& config, std::size_t arena_blocks);
inline constexpr std::size_t read_arena_blocks_min = 512;

class Core {
 public:
  // `arena` holds the volume's blocks, `read_arena` is scratch for reads of the data area; both outlive the
  // core. Errc::exhausted where the journal's uncommitted records do not fit the arena.
  static Result<std::unique_ptr<Core>> create(const Config& config, RecoveredLog recovered, Arena& arena,
                                              Arena& read_arena, Random& random);
  ~Core();

  void step(Event event);
  void tick(Instant now);
  // When tick() wants to be called at the latest, if nothing else happens.
  std::optional<Instant> next_tick() const;
  // Moves everything that is to be done into `out`, which must be empty.
  void get_output(Output& out);

  VolumeStatus status() const;
  // Everything logged here is durable here, everything committed is in the data area, the tail has moved up
  // to it.
  bool settled() const;
  // Stops the process where something does not hold that holds between any two events. step() and tick() do
  // it in debug builds.
  void check_invariants() const;

 private:
  struct Parts;
  explicit Core(std::unique_ptr<Parts> parts);
  void advance();
  std::unique_ptr<Parts> parts_;
};

}  // namespace twinloft::repl::core
