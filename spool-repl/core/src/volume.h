// The state that both roles share: log, committed image, superblock, failure, and the output of this step.
#pragma once

#include <array>
#include <string>

#include "far_buffers.h"
#include "twinloft/base/random.h"
#include "twinloft/spool-repl/core/block_index.h"
#include "twinloft/spool-repl/core/core.h"
#include "twinloft/spool-repl/core/dirty.h"
#include "twinloft/spool-repl/core/disk_condition.h"
#include "twinloft/spool-repl/core/history.h"

namespace twinloft::repl::core {

// The top byte of a token is its kind, so that a completion needs no table.
enum class TokenKind : std::uint8_t {
  journal_write = 1,
  journal_read,
  client_read,
  fill_read,
  home_write,
  home_sync,
  superblock,
  archive,
  arbiter,
  sync_read,
  check_read,
  bitmap,
  repair_read,
  answer_read,
  balanced_read,  // for a primary's ReadBlocks
  erase,
  spill_fill,  // a journal read for the spill
  spill_write,
  spill_read,
  relay_read  // a journal read for a neighbour
};
inline Token make_token(TokenKind kind, std::uint64_t n) {
  return (std::uint64_t(kind) << 56) | n;
}
inline TokenKind kind_of(Token t) {
  return static_cast<TokenKind>(t >> 56);
}
inline std::uint64_t number_of(Token t) {
  return t & ((std::uint64_t{1} << 56) - 1);
}

inline constexpr std::array<std::byte, block_size> zero_block{};

// The connection to another replica, and the state that it reports.
struct Link {
  PeerConfig config;
  bool up = false;
  Instant since;                   // the time of the last change of `up`
  std::uint64_t connection = 0;    // number of connections so far
  std::optional<NodeState> state;  // nullopt: not received yet on this connection
  bool refused = false;           // this connection or the last one was refused: the peer will reconnect soon
  std::optional<NodeState> said;  // the state on the last connection, if it was refused
  RecordNo covered_end = 0;       // everything before this record was durable on the peer
  std::string unfit;  // the last handshake found other settings. on_peer_loss does not leave out such a peer
  bool other_arbiter = false;  // the peer uses another arbiter, or none
  bool knows_buffers = false;  // it understands Behind and KeepFor
  bool knows_reads = false;    // it understands ReadBlocks
  bool knows_relays = false;   // it understands TakeFrom and the messages around it
};

class Volume {
 public:
  Volume(const Config& config, const RecoveredLog& recovered, Arena& arena, Arena& read_arena,
         Random& random);

  // Takes the records that recovery found. Records above its commit point keep their payload in the arena.
  // The blocks that recovery has loaded must be at the beginning of the arena, and the rest must be free.
  Status load(RecoveredLog recovered);

  // Writes `body` to the journal at `pos`. `payload` slots' references pass to the record.
  RecordNo journal_record(const Body& body, ByteSpan meta, std::vector<Slot> payload, JournalPos pos,
                          std::uint64_t serial);
  void on_journal_written(RecordNo no, int error);
  // Moves the content of the records before `end` into the committed image and frees their memory.
  // `on_record` gets each record before that.
  template <class OnRecord>
  void commit_upto(RecordNo end, OnRecord on_record);
  void release_memory(LogRecord& record);
  SendRecord record_message(ReplicaId peer, const Epoch& epoch, const LogRecord& record) const;

  // A write stores the superblock as of its start. One write is in flight at a time.
  enum Purpose : unsigned {
    for_tail = 1,
    for_cut = 2,
    for_reset = 4,
    for_consistent = 8,
    for_parting = 16,
    for_epoch = 32,
    for_commit = 64,
    for_source = 128,
    for_split_brain = 256
  };
  void write_superblock(Purpose purpose);
  void check_invariants() const;
  void check_superblock() const;
  unsigned on_superblock_written(int error);  // the purposes that are now durable; 0 on failure

  void settle_refill();  // ends Refilling once the log has the lost records again, or a newer epoch
  // The content here is the volume from now on, in spite of a loss. The superblock keeps the loss until the
  // record of the promotion, which ends at `epoch_end`, is durable.
  void accept_loss();
  void settle_loss(RecordNo epoch_end);
  void fail_device(std::string reason);

  Link* find_link(ReplicaId id);
  const Link* find_link(ReplicaId id) const { return const_cast<Volume*>(this)->find_link(id); }
  EpochEntry epoch_at(Lsn lsn) const;
  // The newest epoch in the log here. Without an epoch: counter 0, with all protocol-C peers as members.
  EpochEntry recorded() const;
  // The log was cut for the epoch sb.cut_for, and no record of its primary has arrived since.
  bool ends_in_a_cut() const { return sb.cut_for.epoch.counter > recorded().epoch.counter; }
  History history() const;             // refers to sb.epochs
  std::uint64_t newest_epoch() const;  // the highest counter that is known here
  DirtyMap* find_dirty(ReplicaId id);
  const DirtyMap* find_dirty(ReplicaId id) const { return const_cast<Volume*>(this)->find_dirty(id); }
  void note_covered();
  void note_parting(const Link& link);  // the peer is no member any more: later marks are kept separately
  void learn(const Link& link);         // marks a peer with unknown state as fully caught up
  // The log here is not empty, and no acknowledged write is known to be missing.
  bool whole() const { return !disk.inconsistent() && !disk.refilling() && log.last_mark().lsn.v > 0; }
  NodeState node_state(bool primary) const;
  EpochEntry told_epoch() const;          // the epoch for the node state
  const EpochEntry* newest_lost() const;  // the newest known epoch of a damaged journal
  void refuse_link(ReplicaId id, const std::string& reason, bool split_brain = false);
  // A split brain stays recorded on both sides until one history is given up, or proves to be part of the
  // other. `parted`: the newest common record, if it is known.
  const SplitBrain* split_brain_with(ReplicaId id) const;
  void note_split_brain(ReplicaId id, std::optional<Lsn> parted);
  void end_split_brain(ReplicaId id);
  void end_split_brains_but(ReplicaId id);
  void end_split_brain_if_one_history(const Link& link);
  // Two secondaries are not matched. Their epochs show whether each continued without the other.
  void note_split_brain_of_secondaries(const Link& link);

  std::uint64_t journal_offset(JournalPos pos) const { return sb.ring_offset + pos.v % sb.ring_bytes; }
  Lsn commit_lsn() const { return log.mark_before(log.committed_end()).lsn; }

  const Config config;
  ReadPolicy read_policy = config.read_policy;
  std::uint64_t outputs = 0;  // taken so far
  Arena& arena;
  Arena& read_arena;
  // The content of a block that an index has found. nullptr: it has none in memory.
  const std::byte* content_of(const BlockIndex::Found& found) const {
    if (found.kind == BlockIndex::Kind::absent) return nullptr;
    return found.kind == BlockIndex::Kind::data ? arena.data(found.slot) : zero_block.data();
  }
  Random& random;
  DiskCondition disk;
  Superblock sb;  // `disk`, `dirty` and `commit` are set when a write begins
  const HomeMap home_map;
  Log log;
  FarBuffers far;
  std::optional<BehindReport> behind;  // the last one that came
  BlockIndex committed;  // committed content that the data area lacks; serial = LSN of the record's end
  DigestTable digests;   // of the content of the data area, including writes in flight
  // Whether a block that was read has wrong content. False if the block is in memory: then the read may be
  // older or newer than the digest. The caller checks home_changes for the same reason.
  bool is_wrong(Lba lba, const std::byte* block) const {
    return committed.find(lba).kind == BlockIndex::Kind::absent && !digests.fits(lba, block);
  }
  RecordNo home_end = first_record_no;  // earlier records are durable in the data area
  // The end of the log at the start of this process. An earlier process may have known a higher commit point,
  // and may have died while it wrote these records home. Until they are committed here, their blocks in the
  // data area may be newer than the commit point.
  Lsn recovered_end;
  Lsn commit_durable;  // the commit point in the durable superblock
  bool home_is_settled() const { return commit_lsn() >= std::min(recovered_end, log.last_mark().lsn); }
  // The data area may have content that is readable but not durable, also after a successful sync: an earlier
  // sync may have failed. True after a start with an unfinished resync or with records that may be committed,
  // and after a log was given up before its committed records were home.
  bool distrusts_disk = false;
  // The digests match the data area, including writes in flight. False until everything that the log had at
  // the start is home: an earlier process may have written a block home without its digest.
  bool digests_exact = false;
  bool hold_checkpoint = false;      // the log will be reset
  RecordNo readable_from = 0;        // earlier records cannot be read from the damaged journal
  RecordNo tail_limit = UINT64_MAX;  // a peer needs records from this one on, so the tail stays before it
  // The tail stays at or before this record, whatever the role is.
  RecordNo tail_bound() const { return std::min(tail_limit, far.hold()); }
  void give_up_unreachable();  // buffers whose records are gone
  std::vector<Link> links;
  std::vector<DirtyMap> dirty;  // by slot of the superblock
  unsigned journal_in_flight = 0;
  std::uint64_t home_changes = 0;  // counts releases from the committed image, which make older reads stale
  std::uint64_t relay_reads = 0;   // of the journal, so far. No answer counts for a later role
  std::uint64_t arbiter_questions = 0;  // unique in this process: no answer counts for a later primary
  Instant now;
  Instant committed_since;  // when the committed image last became non-empty, or a checkpoint began
  Instant committed_at;     // time of the last commit
  bool failed = false;
  std::string failure;
  Output out;
  VolumeStatus counters;  // only its counters are used

 private:
  void load_dirty(RecoveredLog& recovered);
  void load_committed(const RecoveredLog& recovered);
  unsigned superblock_wanted_ = 0, superblock_in_flight_ = 0;
  Lsn commit_in_flight_;                             // in the superblock in flight
  std::array<Lsn, bitmap_slots> since_in_flight_{};  // of each slot, in the superblock in flight
  void start_superblock_write();
};

template <class OnRecord>
void Volume::commit_upto(RecordNo end, OnRecord on_record) {
  if (end <= log.committed_end()) return;
  if (committed.empty()) committed_since = now;
  committed_at = now;
  for (RecordNo no = log.committed_end(); no < end; ++no) {
    LogRecord& r = log.at(no);
    on_record(r);
    for (DirtyMap& d : dirty)
      for (const Extent& e : r.extents) d.mark(e.lba, e.blocks);
    std::size_t at = 0;
    for (const Extent& e : r.extents) {
      if (e.kind == ExtentKind::zeros) {
        committed.put_zeros(e.lba, e.blocks, r.mark.lsn.v);
        continue;
      }
      for (std::uint32_t i = 0; i < e.blocks; ++i)
        committed.put_data(e.lba + i, r.payload_slots[at++], r.mark.lsn.v);
    }
    release_memory(r);
  }
  log.set_committed_end(end);
}

}  // namespace twinloft::repl::core
