// What both roles share: log, committed image, superblock, failure, and the output under construction.
#pragma once

#include <string>

#include "twinloft/base/random.h"
#include "twinloft/spool-repl/core/block_index.h"
#include "twinloft/spool-repl/core/core.h"
#include "twinloft/spool-repl/core/dirty.h"
#include "twinloft/spool-repl/core/disk_condition.h"
#include "twinloft/spool-repl/core/history.h"

namespace twinloft::repl::core {

// Tokens carry what they are for in their top byte, so that a completion needs no table.
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
  erase
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

// The connection to another replica, and what that replica says of itself.
struct Link {
  PeerConfig config;
  bool up = false;
  Instant since;                   // so long
  std::uint64_t connection = 0;    // how many there have been
  std::optional<NodeState> state;  // nullopt: nothing yet on this connection
  bool refused = false;  // this connection, or the last one: the peer is there, and connects again soon
  std::optional<NodeState> said;  // on the last connection, where that was refused
  RecordNo covered_end = 0;       // it is known to have had everything before this one, durably
  std::string unfit;  // it is configured otherwise, says the last handshake: no primary leaves it out for
                      // that
  bool other_arbiter = false;  // and it asks another arbiter, or none
};

class Volume {
 public:
  Volume(const Config& config, const RecoveredLog& recovered, Arena& arena, Arena& read_arena,
         Random& random);

  // Takes the records that recovery found; those above its commit point keep their payload in the arena. What
  // recovery has loaded is in the arena already, from its beginning on, and nothing else is.
  Status load(RecoveredLog recovered);

  // Writes `body` to the journal at `pos`. `payload` slots' references pass to the record.
  RecordNo journal_record(const Body& body, ByteSpan meta, std::vector<Slot> payload, JournalPos pos,
                          std::uint64_t serial);
  void on_journal_written(RecordNo no, int error);
  // Moves the content of the records before `end` into the committed image and lets go of their memory.
  // `on_record` sees each record before that.
  template <class OnRecord>
  void commit_upto(RecordNo end, OnRecord on_record);
  void release_memory(LogRecord& record);
  SendRecord record_message(ReplicaId peer, const Epoch& epoch, const LogRecord& record) const;

  // The superblock goes out as it is when the write starts; one is in flight at a time.
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

  void settle_refill();  // `disk` is no longer Refilling once the log is there
  // What is here is the volume from now on, although it was Inconsistent. The superblock goes on saying what
  // was lost until the record that makes that known to all, which ends there, is durable.
  void accept_loss();
  void settle_loss(RecordNo epoch_end);
  void fail_device(std::string reason);

  Link* find_link(ReplicaId id);
  const Link* find_link(ReplicaId id) const { return const_cast<Volume*>(this)->find_link(id); }
  EpochEntry epoch_at(Lsn lsn) const;
  // The newest epoch in the log here. In a volume that never had one: all members under protocol C, counter
  // 0.
  EpochEntry recorded() const;
  // The log was cut for a primary of which no record has come since: sb.cut_for.
  bool ends_in_a_cut() const { return sb.cut_for.epoch.counter > recorded().epoch.counter; }
  History history() const;             // refers to sb.epochs
  std::uint64_t newest_epoch() const;  // highest counter that this node has heard of
  DirtyMap* find_dirty(ReplicaId id);
  const DirtyMap* find_dirty(ReplicaId id) const { return const_cast<Volume*>(this)->find_dirty(id); }
  void note_covered();
  void note_parting(const Link& link);  // it counts no more: what is written from now on is kept apart from
                                        // what it has
  void learn(const Link& link);         // of one of which nothing was known: that it has everything now
  // Its log is not empty, and nothing that it has acknowledged is known to be missing.
  bool whole() const { return !disk.inconsistent() && !disk.refilling() && log.last_mark().lsn.v > 0; }
  NodeState node_state(bool primary) const;
  EpochEntry told_epoch() const;          // of the node state
  const EpochEntry* newest_lost() const;  // the newest epoch known of a damaged journal
  void refuse_link(ReplicaId id, const std::string& reason, bool split_brain = false);
  // Durable on both sides until one history is given up, or shown to be in the peer's. `parted`: the newest
  // record that both have, where that has been looked at.
  const SplitBrain* split_brain_with(ReplicaId id) const;
  void note_split_brain(ReplicaId id, std::optional<Lsn> parted);
  void end_split_brain(ReplicaId id);
  void end_split_brains_but(ReplicaId id);
  void end_split_brain_if_one_history(const Link& link);
  // Two secondaries are not matched. What each says of its epochs shows that both went on, each without the
  // other.
  void note_split_brain_of_secondaries(const Link& link);

  std::uint64_t journal_offset(JournalPos pos) const { return sb.ring_offset + pos.v % sb.ring_bytes; }
  Lsn commit_lsn() const { return log.mark_before(log.committed_end()).lsn; }

  const Config config;
  Arena& arena;
  Arena& read_arena;
  Random& random;
  DiskCondition disk;
  Superblock sb;  // `disk`, `dirty` and `commit` are set when a write begins
  const HomeMap home_map;
  Log log;
  BlockIndex committed;  // committed content that the data area lacks; serial = LSN of the record's end
  DigestTable digests;   // of what is in the data area, or about to be
  // Whether a block that was read is not what was written there. Not where it is in memory too, or left it
  // meanwhile (home_changes): then it may be older or newer than the digest.
  bool is_wrong(Lba lba, const std::byte* block) const {
    return committed.find(lba).kind == BlockIndex::Kind::absent && !digests.fits(lba, block);
  }
  RecordNo home_end = 1;  // everything before is durable in the data area
  // End of the log when the process began. An earlier one may have known more of it to be committed, and may
  // have died while it wrote that home: until it is committed here too, such blocks are right in memory only.
  Lsn recovered_end;
  Lsn commit_durable;  // a start would know that everything up to here is committed
  bool home_is_settled() const { return commit_lsn() >= std::min(recovered_end, log.last_mark().lsn); }
  // The process began with a resync unfinished, or with records of which it does not know whether they were
  // committed; or a log was given up before what is committed in it was home. What an earlier one wrote home
  // may be readable and yet not durable, also after a sync that succeeds: an earlier one may have failed.
  bool distrusts_disk = false;
  // What the digests say of a block is what the data area holds, or is about to: all that the log had at the
  // start has been written home since, or there was nothing. An earlier process may have written a block
  // home, and not its digest.
  bool digests_exact = false;
  bool hold_checkpoint = false;      // the log is about to be reset
  RecordNo readable_from = 0;        // the journal here does not have the records before this one: it is
                                     // damaged
  RecordNo tail_limit = UINT64_MAX;  // the tail stays below: a peer still needs these records
  std::vector<Link> links;
  std::vector<DirtyMap> dirty;  // by slot of the superblock
  unsigned journal_in_flight = 0;
  std::uint64_t home_changes = 0;  // counts entries leaving the committed image: a read begun before is stale
  std::uint64_t arbiter_questions = 0;  // of every primary that this process has been: no answer counts for
                                        // another primary
  Instant now;
  Instant committed_since;  // when the committed image last became non-empty, or a checkpoint began
  Instant committed_at;     // when anything was committed last
  bool failed = false;
  std::string failure;
  Output out;
  VolumeStatus counters;  // only its counters are used

 private:
  void load_dirty(RecoveredLog& recovered);
  void load_committed(const RecoveredLog& recovered);
  unsigned superblock_wanted_ = 0, superblock_in_flight_ = 0;
  Lsn commit_in_flight_;                             // in that superblock
  std::array<Lsn, bitmap_slots> since_in_flight_{};  // of each slot, in that superblock
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
