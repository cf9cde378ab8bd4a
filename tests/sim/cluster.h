// Two to five replicas, their disks, the links between them, an arbiter, an operator and a client. All run in
// one thread, from one seed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>

#include "history.h"
#include "sim_file.h"
#include "twinloft/spool-repl/core/core.h"

namespace twinloft::repl::sim {

// The client's memory. The core treats aligned memory differently, so the seed must decide the alignment, not
// the allocator.
class ClientMemory {
 public:
  ClientMemory() = default;
  ClientMemory(std::size_t bytes, bool aligned)
      : bytes_(bytes), shift_(aligned ? 0 : 8), memory_(bytes + block_size + 8) {}
  std::size_t size() const { return bytes_; }
  std::byte* data() {
    auto at = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + (block_size - at % block_size) % block_size + (bytes_ > 0 ? shift_ : 0);
  }

 private:
  std::size_t bytes_ = 0, shift_ = 0;
  std::vector<std::byte> memory_;
};

struct Coverage {
  std::map<std::string, std::uint64_t> marks;
  void hit(const std::string& mark) { marks[mark]++; }
};

struct Violation {
  std::string what;
};

// The consensus store as the replicas see it: a compare-and-swap whose answer may be late or lost.
struct SimArbiter {
  std::optional<core::EpochValue> value;
  bool reachable = true;
  unsigned late = 0;                          // changes that are applied after their answer was given up
  std::vector<core::EpochValue> before = {};  // earlier values
};

class Cluster {
 public:
  Cluster(std::uint64_t seed, bool trace, Coverage& coverage);
  ~Cluster();
  // Throws Violation if a checker finds a broken promise.
  void run();

 private:
  core::ReadPolicy some_read_policy();
  struct Node;
  struct Pending;  // a disk operation in flight
  struct DiskFault;
  enum class DiskKind { journal, read, home, sync, superblock, journal_read, archive, spill };
  static constexpr std::size_t disk_kinds = 8;
  struct Event {
    std::int64_t at;
    std::uint64_t order;
    std::function<void()> action;
    bool operator>(const Event& o) const { return std::tie(at, order) > std::tie(o.at, o.order); }
  };
  // A link between two replicas, a < b by index.
  struct Link {
    std::size_t a, b;
    core::Protocol protocol = core::Protocol::C;  // used in a cluster with a protocol for each link
    bool up = false, cut = false;
    std::uint64_t connection = 0;
    std::int64_t up_since = -1;
    std::int64_t refused_at = -1;  // when the two last refused each other because of different settings
    // The view of each side. A side that has not noticed the end of a connection still has it, until the next
    // connection arrives.
    bool told[2] = {false, false};
    bool silent[2] = {false, false};  // messages of this side are lost
    std::int64_t slow_us = 0;         // messages take up to this much longer
    std::int64_t deliver_at[2] = {0, 0};
    std::uint64_t sent = 0;  // number of large messages
  };
  // The state when a read began, to judge an error of the read.
  struct BeforeRead {
    std::int64_t at = 0;
    std::uint64_t disturbances = 0;
    std::uint64_t untold = 0;   // VolumeStatus::unreadable_blocks at that time
    bool must_succeed = false;  // unless a fault happens meanwhile
  };
  struct Mount;  // the programs that use a primary's device
  struct Request {
    core::ClientOp op;
    bool fua;
    std::size_t node;
    std::shared_ptr<Mount> mount;
    History::State state;             // for writes: the state after the request
    History::State completed_before;  // for flushes and reads
    std::uint64_t sector, sectors;
    ClientMemory data;
    BeforeRead errors = {};
    std::uint64_t lba() const { return sector / sectors_in_block; }
    std::uint64_t blocks() const {
      return sectors == 0 ? 0 : (sector + sectors - 1) / sectors_in_block + 1 - lba();
    }
    // True if the core may have to read the rest of the blocks at its edges first.
    bool has_parts() const { return sector % sectors_in_block != 0 || sectors % sectors_in_block != 0; }
    bool changes_something() const { return op != core::ClientOp::flush && op != core::ClientOp::read; }
  };

  // cluster.cc: time, nodes, the course of a run
  void schedule(std::int64_t delay_us, std::function<void()> action);
  void run_until(std::function<bool()> done, std::int64_t limit_us, const char* what);
  std::int64_t below(std::uint64_t n) { return static_cast<std::int64_t>(random_.below(n)); }
  void note(const std::string& text);
  void digest(std::uint64_t word) { digest_ = (digest_ ^ word) * 0x9e3779b97f4a7c15 + (digest_ >> 29); }
  [[noreturn]] void violated(const std::string& text);
  static std::string describe(const Node& node);
  core::Config config_of(const Node& node);
  void create(Node& node);
  void adopt(Node& node);
  void start(Node& node);
  void crash(Node& node, bool power);
  void revive_later(Node& node);
  void crash_one(bool power);
  void cut_link();
  void isolate();
  void cut(Link& link, std::int64_t us);
  void inject_fault();
  void note_buffers();
  void inject_change(std::uint64_t kind);

  // faults.cc: failing disks, and links that fail silently
  void rot();
  void rot_record(Node& node, std::uint64_t kind);
  void rot_beside_the_log(Node& node);
  bool primary_holds_all();
  void inject_partial_fault();
  void stutter(Node& node, unsigned again);
  void silence(Link& link);
  void lose(Link& link, std::size_t side);
  void break_disk(Node& node);
  int error_of(Node& node, const Pending& pending);
  void fail_operation(Node& node, Pending& pending, int error);
  void repair(Node& node, bool power);
  void fail_from_now(Node& node);
  void on_bound(Node& node);
  void end_faults();
  void check_device(Node& node, const Request& request, std::uint64_t id, int error);
  void check_kept(const Node& node, Lsn last);
  void note_crash(const Node& node, bool power);
  void probe_damage(const Node& node);  // damage.cc
  void damage_superblock(Node& node);
  void note_recovery(Node& node, const RecoveredLog& log);

  // cut.cc: cut records never come back
  struct RecordKey {
    Uuid epoch;
    std::uint64_t lsn;
    auto operator<=>(const RecordKey&) const = default;
  };
  std::optional<RecordKey> record_in(ByteSpan whole) const;
  void note_archived(const Node& node, ByteSpan record);
  void note_dropped(const Node& node, SimFile before, const RecoveredLog& log);
  void note_received(const Node& to, const PeerMessage& message);
  static bool superblock_is_settled(const Node& node);
  void check_cut_off(const Node& node, const RecoveredLog& log);

  // latent.cc: unreadable sectors of the data area
  void make_latent();
  void harm_spill();
  std::vector<SpillChunk> find_spill(Node& node);
  void make_wrong();
  void aim_at_unreadable(const Node& node, std::uint64_t& lba, std::uint64_t blocks);
  BeforeRead before_read(const Node& node, std::uint64_t lba, std::uint64_t blocks) const;
  bool has_helper(const Node& node, std::uint64_t lba, std::uint64_t blocks) const;
  void check_read_error(Node& node, std::uint64_t lba, std::uint64_t blocks, const BeforeRead& before,
                        const std::string& what);
  void restore(Node& node, std::uint64_t lba, std::uint64_t blocks);
  void note_repair(const Node& to, const PeerMessage& message);
  void note_repairs(const Node& node);
  void read_everything();

  // changes.cc: changes of the configuration, and losses
  void detach();
  void reconfigure(Node& node, std::set<ReplicaId> without);
  void change_peers();
  void roll_back_arbiter();
  void flap(Link& link, unsigned again);
  void flap_some_link();

  void note_ring();
  void heal();
  void settle_and_compare();

  // settings.cc: different settings, and long chains of epochs
  std::string disagreement_between(const Node& here, const Node& there);
  bool refuse_unfit(Link& link);
  void change_settings();
  void set(Node& node, std::function<void(core::Config&)> settings);
  void end_settings_change(Node& node);
  void settle_settings();
  void begin_chain();
  void chain_step(Node& node, Node& away, std::uint64_t from, unsigned left);

  // force.cc: an operator who uses force, accepts losses, and discards histories
  bool overrule(Node& node);
  void promote_by_force(Node& node);
  void give_up(Node& node, bool force);
  std::vector<History::State> only_here(const Node& node);
  void lose_disk(Node& node);
  void partition();
  void before_loss(const Node& node);
  void resolve();
  void resolve_step();
  bool follows(Node& primary, const Node& node) const;
  bool at_rest();
  static bool shows_split(const Node& node);
  bool says_split(const Node& node) const;
  void check_winner(Node& winner);
  bool give_up_losers(Node& winner);

  // perform.cc: performs a core's effects
  void feed(Node& node, core::Event event);
  void drain(Node& node);
  void perform(Node& node, core::Output& out);
  void check_reason(const Node& node, const std::string& reason);
  void on_notice(Node& node, const core::Notice& notice);
  class Performer;
  void note_member(const Node& primary, Node& member);
  void note_rejoin(Node& node, const core::Notice& notice);
  void perform_arbiter(Node& node, const core::ArbiterRequest& request);
  void complete_disk(Node& node, std::uint64_t pending);
  void arm_tick(Node& node);
  Link& link_of(std::size_t a, std::size_t b);
  void connect(Link& link);
  void disconnect(Link& link);
  void close(Link& link, std::size_t side, std::uint64_t connection);
  void tell_down(Link& link, std::size_t side);
  void send(Node& from, ReplicaId to, PeerMessage message);

  // relays.cc
  void choose_sites();
  void add_sites(const Node& node, core::Config& config);
  bool passes_on(const Node& relay, RecordMessage& record);
  void note_relay(const Node& from, const PeerMessage& message);

  // client.cc: programs that use the primaries' devices
  void client_step(Node& node, std::shared_ptr<Mount> mount);
  void submit(Node& node, core::ClientOp op, bool fua);
  void place(Node& node, Request& request);
  void not_done(const Node& node, Request& request);
  void check_read(const Node& node, Request& request);
  void on_complete(Node& node, std::uint64_t id, int error);
  void on_role(Node& node, core::RoleChange change);
  void begin_survey(Node& node);
  bool on_surveyed(Node& node, std::uint64_t id, int error);
  void mount(Node& node, const Image& image);
  void unmount(Node& node);
  void promise(History::State state, const Node& node);
  void check_width(History::State state, const Node& node);
  void note_accepted(Node& node);
  void check_asked(const Node& node);
  bool is_granted(const Node& node) const;
  Node* primary();  // mounted; of several, the primary that counts

  // operator.cc
  void operator_step();
  bool forgotten_by(const Node& primary, const Node& n);
  void demote_in_order(Node& node);
  void on_command(Node& node, const core::CommandDone& done);
  bool is_cut_off(const Node& node) const;

  // checks.cc
  struct Found {
    Image image;
    ReplicaSet in_sync = 0;   // in the newest epoch on this disk
    bool consistent = false;  // the content must be the state after some prefix
    std::vector<History::State> states;
    Lsn last;
    Epoch epoch;  // the epoch of the last record
    EpochTable epochs;
    std::array<DirtySlot, bitmap_slots> dirty;
    // Also those of the records that are in the journal.
    std::array<std::vector<std::uint64_t>, bitmap_slots> marks;
  };
  Found after_power_cut(const Node& node);
  void check_digests(const Node& node, const DigestTable& digests, const SimFile& data);
  void check_records(const Node& node, const RecoveredLog& log);
  void check_proven(const Node& node, const SimFile& before, const RecoveredLog& log);
  void check(const Node& node, const Found& found, bool need_promised, const char* when);
  std::vector<Found> check_all(const char* when);
  void check_marks(const std::vector<Found>& found, const char* when);
  void check_kept(const std::vector<Found>& found, const char* when);

  SeededRandom random_;
  bool trace_;
  Coverage& coverage_;
  std::uint64_t digest_ = 0;  // of every event, message and answer; shown at the end of a trace
  std::int64_t now_us_ = 0;
  std::uint64_t next_event_ = 1;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Link> links_;
  bool external_ = false;  // with an arbiter
  // The operator may use force, and any disk may be lost. forced_: this has happened.
  bool by_force_ = false;
  bool forced_ = false, loss_accepted_ = false;
  bool mixed_ = false;            // each link has its own protocol
  bool settings_change_ = false;  // at least one machine has other settings
  bool parts_ = false;            // clients write and read parts of blocks
  bool write_ack_durable_ = false;
  std::optional<core::BufferConfig> buffer_;  // of all links under protocol A
  bool spills_ = false;
  bool adopted_ = false;  // the first replica's data area existed before the volume
  unsigned min_in_sync_ = 1;
  Duration suspend_timeout_{0};
  unsigned refusals_ = 0;                           // since the last success, while a split brain is resolved
  std::set<History::State> may_go_;                 // promises that only a replica to be discarded had
  std::map<RecordKey, Hash128> records_;            // all records that were ever found on a disk
  std::map<Uuid, ReplicaId> writers_;               // the writer of each epoch
  std::vector<std::map<RecordKey, bool>> cut_off_;  // by node; true: no longer on its disk
  core::OnPeerLoss on_loss_ = core::OnPeerLoss::suspend;
  SimArbiter arbiter_;
  std::map<Uuid, std::int64_t> asked_at_;  // by epoch: when the arbiter was first asked for it
  std::uint64_t volume_blocks_;
  History history_;
  bool heavy_ = false;
  Duration ask_peers_for_{0}, slow_peer_{0}, fetch_timeout_{0}, resync_latency_target_{0};
  std::uint64_t disturbances_ = 0;  // number of faults, lost connections and changes of role
  std::uint64_t send_window_bytes_ = 0, sync_window_bytes_ = 0;
  core::ReadPolicy read_policy_;
  Duration balanced_read_timeout_{}, relay_patience_{};
  bool relays_lie_ = false;
  bool bounds_links_ = false;              // the links of each process share a memory
  std::int64_t slow_us_[disk_kinds] = {};  // by DiskKind: up to this much longer

  std::size_t client_at_ = SIZE_MAX;  // the index of the last mounted primary that counts
  std::map<std::uint64_t, Request> requests_;
  // A new primary's device is read as a whole before it is used.
  static constexpr std::uint64_t survey_blocks = 256;
  struct SurveyPart {
    std::size_t node;
    std::uint64_t survey;
    std::uint64_t lba;
    ClientMemory data;
    BeforeRead errors = {};
  };
  std::map<std::uint64_t, SurveyPart> survey_;  // parts of an abandoned survey stay until they are answered
  std::uint64_t survey_no_ = 0;
  std::uint64_t next_request_ = 1;
  bool client_runs_ = true, operator_runs_ = true;
  std::uint64_t digest_checks_ = 0;
};

}  // namespace twinloft::repl::sim
