// A shell in memory around one Core. Disks are byte arrays. Each disk operation ends when the test says so,
// in an order drawn from a seed, with success or an error.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "../support/memory_file.h"
#include "twinloft/spool-repl/core/core.h"
#include "twinloft/spool-repl/format/bitmap.h"
#include "twinloft/spool-repl/journal/aligned.h"
#include "twinloft/spool-repl/journal/recovery.h"

namespace twinloft::repl::core {

enum class Disk {
  journal_write,
  journal_read,
  home_read,
  home_write,
  home_zero,
  home_sync,
  superblock,
  archive,
  bitmap,
  spill_write,
  spill_read
};

struct ShellOptions {
  ReplicaId replica = 1;
  // primary: promoted at each start, as with empty peers that grant it
  Role role = Role::secondary;
  Config config;
  std::uint64_t volume_blocks = 1024;
  std::uint64_t ring_bytes = journal_ring_bytes_min;
  std::uint64_t seed = 1;
  std::size_t arena_extra_blocks = 64;
  HomeMap home_map = {};  // replaces the volume's own map; not for a test that restarts
};

inline Config alone() {
  Config c;
  c.send_window_bytes = 4u << 20;
  return c;
}
inline Config with_peer(ReplicaId peer, Protocol protocol = Protocol::C) {
  Config c = alone();
  c.peers = {{peer, protocol}};
  return c;
}

inline Uuid volume_of_tests() {
  return Uuid::parse("5c1a0e7e-0000-4000-8000-00000000c0de").value();
}

// The result of recovery on a replica that was just created.
inline RecoveredLog new_log(ReplicaId replica, std::uint64_t volume_blocks,
                            std::uint64_t ring_bytes = journal_ring_bytes_min) {
  RecoveredLog log;
  Superblock& sb = log.superblock;
  sb.generation = 1;
  sb.volume = volume_of_tests();
  sb.replica = replica;
  sb.volume_blocks = volume_blocks;
  sb.bitmap_offset = journal_reserved_bytes;
  sb.bitmap_bytes = block_size;
  sb.digest_offset = journal_reserved_bytes + bitmap_slots * block_size;
  sb.digest_bytes = digest_pages(volume_blocks) * block_size;
  sb.ring_offset = sb.digest_offset + sb.digest_bytes;
  sb.ring_bytes = ring_bytes;
  sb.tail = {Lsn{0}, genesis_hash(sb.volume, volume_blocks)};
  log.home_map = home_map_of(sb);
  log.digests = DigestTable(sb.volume, volume_blocks);
  log.digests.put_zeros(Lba{0}, volume_blocks);
  return log;
}

class Shell {
 public:
  explicit Shell(ShellOptions options)
      : random(options.seed),
        options_(options),
        memory_((arena_blocks_min(options.config) + options.arena_extra_blocks) * block_size),
        scratch_(read_arena_blocks_min * block_size),
        arena(memory_.span()),
        reads(scratch_.span()),
        data(options.volume_blocks * block_size) {
    RecoveredLog log = new_log(options.replica, options.volume_blocks, options.ring_bytes);
    if (options.home_map.volume_blocks() > 0) log.home_map = options.home_map;
    const Superblock& sb = log.superblock;
    journal.resize(sb.ring_offset + sb.ring_bytes);
    for (std::uint32_t slot = 0; slot < bitmap_slots; ++slot)
      encode_bitmap_page(sb.volume, slot, 0, {},
                         {journal.data() + sb.bitmap_offset + slot * sb.bitmap_bytes, block_size});
    for (const DigestTable::Pages& p : log.digests.take_changed(SIZE_MAX))
      std::copy(p.bytes.begin(), p.bytes.end(),
                journal.begin() + static_cast<std::ptrdiff_t>(sb.digest_offset + p.first * block_size));
    write_superblock(sb);
    auto made = Core::create(options.config, std::move(log), arena, reads, random);
    EXPECT_TRUE(made) << made.error().message;
    core = std::move(*made);
    core->tick(now_);
    drain();
    if (options_.role == Role::primary) become_primary();
  }

  static Uuid volume() { return volume_of_tests(); }

  std::uint64_t submit(ClientOp op, std::uint64_t offset = 0, std::uint32_t length = 0,
                       std::byte* bytes = nullptr, bool fua = false) {
    std::uint64_t id = next_id_++;
    step(ClientRequest{op, fua, offset, length, bytes, id});
    return id;
  }
  void step(Event event) {
    core->tick(now_);
    core->step(std::move(event));
    core->check_invariants();
    drain();
  }
  void input(ReplicaId from, PeerMessage message) { step(PeerInput{from, std::move(message)}); }
  void pass_time(Duration d) {
    now_ = now_ + d;
    core->tick(now_);
    drain();
  }

  Instant now() const { return now_; }
  bool is_done(std::uint64_t id) const { return done.contains(id); }

  std::size_t pending(Disk kind) const {
    std::size_t n = 0;
    for (const Op& op : ops_) n += op.kind == kind;
    return n;
  }
  // Completes one operation that is not held back. False: there is none.
  bool complete_one() {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < ops_.size(); ++i)
      if (!held || !held(ops_[i].kind)) ready.push_back(i);
    if (ready.empty()) return false;
    std::size_t at = ready[random.below(ready.size())];
    Op op = std::move(ops_[at]);
    ops_.erase(ops_.begin() + static_cast<std::ptrdiff_t>(at));
    int error = fault ? fault(op.kind) : 0;
    core->tick(now_);
    core->step(op.end(error));
    drain();
    return true;
  }
  // Completes operations, and lets time pass while no operation is left. Stops if nothing is due within 10 s,
  // so that no peer counts as slow.
  void settle() {
    for (;;) {
      while (complete_one()) {
      }
      auto next = core->next_tick();
      if (!next || *next > now_ + std::chrono::seconds(10)) return;
      now_ = std::max(*next, now_ + Duration(1));
      core->tick(now_);
      drain();
    }
  }
  Config& config() { return options_.config; }  // takes effect at the next start
  // A power cut: operations in flight are lost, and the core starts from the result of recovery.
  void restart() {
    core.reset();
    ops_.clear();
    MemoryFile journal_file(std::move(journal)), data_file(std::move(data));
    auto room = memory_.span().first(recovery_blocks(options_.config, arena.size()) * block_size);
    auto recovered = journal::recover(
        journal_file, data_file, [](const journal::Damage&) { return Status(); }, room);
    ASSERT_TRUE(recovered) << recovered.error().message;
    journal = std::move(journal_file.bytes);
    data = std::move(data_file.bytes);
    arena = Arena(memory_.span());
    reads = Arena(scratch_.span());
    auto made = Core::create(options_.config, std::move(recovered->log), arena, reads, random, chunks());
    ASSERT_TRUE(made) << made.error().message;
    core = std::move(*made);
    core->tick(now_);
    drain();
    if (options_.role == Role::primary) become_primary();
  }
  // The chunks of the spill as a start finds them.
  std::vector<SpillChunk> chunks() const {
    std::vector<std::uint64_t> numbers;
    for (const auto& [number, bytes] : spill) numbers.push_back(number);
    return usable_spill(
        numbers, [&](std::uint64_t n, bool) -> Result<std::vector<std::byte>> { return spill.at(n); },
        volume(), options_.replica);
  }
  void write_superblock(const Superblock& sb) {
    for (std::uint64_t at : superblock_offset) encode_superblock(sb, {journal.data() + at, block_size});
  }

  SeededRandom random;
  std::function<bool(Disk)> held;  // true: operations of this kind are held back
  std::function<int(Disk)> fault;  // the errno of the operation that is completed now
  // Reads of the data area return the content at their start, whenever they are completed.
  bool reads_at_once = false;
  std::set<std::uint64_t> unreadable;  // blocks of the data area, unreadable until they are written

 private:
  ShellOptions options_;
  journal::AlignedBuffer memory_, scratch_;

 public:
  Arena arena, reads;
  std::vector<std::byte> data, journal;
  std::unique_ptr<Core> core;
  std::map<std::uint64_t, int> done;  // request -> errno
  std::vector<PeerMessage> sent;      // to all peers, in order
  std::vector<ReplicaId> sent_to;     // the receiver of each
  std::vector<ClosePeer> closed;
  std::vector<std::string> notices;
  std::vector<NoticeKind> notice_kinds;  // the kind of each
  std::vector<std::byte> archived;
  std::map<std::uint64_t, std::vector<std::byte>> spill;  // chunks by number
  std::vector<ArbiterRequest> arbiter_requests;
  std::vector<RoleChange> role_changes;
  std::vector<CommandDone> commands;
  std::function<void(std::uint64_t id, int error)> on_done;

 private:
  // Uses the same promotion as an operator. Its traces are removed, except for the role.
  void become_primary() {
    for (const PeerConfig& p : options_.config.peers) step(PeerUp{p.id}), input(p.id, NodeState{});
    sent.clear(), sent_to.clear();
    step(Promote{1, false});
    std::vector<PeerMessage> claims;
    std::vector<ReplicaId> asked;
    claims.swap(sent), asked.swap(sent_to);
    for (std::size_t i = 0; i < claims.size(); ++i)
      if (auto* claim = std::get_if<Claim>(&claims[i])) input(asked[i], ClaimReply{claim->attempt, true, ""});
    EXPECT_EQ(core->status().role, Role::primary) << (commands.empty() ? "no answer" : commands.back().text);
    for (const PeerConfig& p : options_.config.peers) step(PeerDown{p.id});
    sent.clear(), sent_to.clear(), closed.clear(), notices.clear(), notice_kinds.clear(), commands.clear();
  }

  std::uint64_t spill_from_ = 0;
  struct Op {
    Disk kind;
    std::function<Event(int error)> end;
  };

  void drain() {
    for (;;) {
      Output out;
      core->get_output(out);
      if (out.empty()) return;
      perform_in_order(out, *this);
    }
  }

  void add(Disk kind, Token token, std::function<void()> apply) {
    ops_.push_back({kind, [token, apply = std::move(apply)](int error) -> Event {
                      if (error == 0) apply();
                      return DiskDone{token, error};
                    }});
  }
  static std::vector<std::byte> copy_of(const std::vector<IoPiece>& pieces) {
    std::vector<std::byte> out;
    for (const IoPiece& p : pieces) out.insert(out.end(), p.data, p.data + p.bytes);
    return out;
  }
  int read_home(const HomeRead& r) {
    std::uint64_t at = r.at.bytes();
    for (const IoPiece& p : r.pieces) {
      auto bad = unreadable.lower_bound(at / block_size);
      if (bad != unreadable.end() && *bad * block_size < at + p.bytes) return EIO;
      std::memcpy(p.data, data.data() + at, p.bytes);
      at += p.bytes;
    }
    return 0;
  }
  // Makes the blocks readable once the operation that was added last succeeds.
  void makes_readable(HomeOffset at, std::uint64_t blocks) {
    ops_.back().end = [this, first = at.bytes() / block_size, blocks,
                       end = std::move(ops_.back().end)](int error) {
      if (error == 0) unreadable.erase(unreadable.lower_bound(first), unreadable.lower_bound(first + blocks));
      return end(error);
    };
  }
  // Checks that the memory does not change before the write has ended.
  void add_write(Disk kind, Token token, std::vector<std::byte>& disk, std::uint64_t at,
                 const std::vector<IoPiece>& pieces) {
    add(kind, token, [&disk, at, pieces, then = copy_of(pieces)] {
      EXPECT_EQ(copy_of(pieces) == then, true) << "memory changed under a disk write";
      ASSERT_LE(at + then.size(), disk.size());
      std::memcpy(disk.data() + at, then.data(), then.size());
    });
  }

  template <class Performer>
  friend void core::perform_in_order(Output& out, Performer& performer);

  void perform(JournalWrite& w) { add_write(Disk::journal_write, w.token, journal, w.offset, w.pieces); }
  void perform(JournalRead& r) {
    ops_.push_back({Disk::journal_read, [this, r](int error) -> Event {
                      std::vector<std::byte> bytes(
                          journal.begin() + static_cast<std::ptrdiff_t>(r.offset),
                          journal.begin() + static_cast<std::ptrdiff_t>(r.offset + r.bytes));
                      return JournalReadDone{r.token, error, std::move(bytes)};
                    }});
  }
  void perform(SpillWrite& w) {
    add(Disk::spill_write, w.token, [this, n = w.number, bytes = std::move(w.bytes)] {
      if (n >= spill_from_) spill[n] = bytes;
    });
  }
  void perform(SpillRead& r) {
    ops_.push_back({Disk::spill_read, [this, r](int error) -> Event {
                      auto at = spill.find(r.number);
                      if (at == spill.end()) return JournalReadDone{r.token, ENOENT, {}};
                      return JournalReadDone{r.token, error, at->second};
                    }});
  }
  void perform(SpillDrop& d) {
    spill_from_ = d.before;
    spill.erase(spill.begin(), spill.lower_bound(d.before));
  }
  void perform(HomeRead& r) {
    std::optional<int> found = reads_at_once ? std::optional(read_home(r)) : std::nullopt;
    ops_.push_back({Disk::home_read, [this, r, found](int error) -> Event {
                      return DiskDone{r.token, error != 0 ? error : found ? *found : read_home(r)};
                    }});
  }
  void perform(HomeWrite& w) {
    add_write(Disk::home_write, w.token, data, w.at.bytes(), w.pieces);
    makes_readable(w.at, bytes_of(w.pieces) / block_size);
  }
  void perform(HomeZero& z) {
    add(Disk::home_zero, z.token, [this, z] {
      ASSERT_LE(z.at.bytes() + z.blocks * block_size, data.size());
      std::memset(data.data() + z.at.bytes(), 0, z.blocks * block_size);
    });
    makes_readable(z.at, z.blocks);
  }
  void perform(HomeSync& s) {
    EXPECT_EQ(pending(Disk::home_write) + pending(Disk::home_zero), 0u)
        << "a sync covers only what has ended";
    add(Disk::home_sync, s.token, [] {});
  }
  void perform(BitmapWrite& w) {
    add(Disk::bitmap, w.token,
        [this, w] { std::memcpy(journal.data() + w.offset, w.bytes.data(), w.bytes.size()); });
  }
  void perform(SuperblockWrite& s) {
    EXPECT_EQ(pending(Disk::superblock), 0u) << "one superblock write at a time";
    add(Disk::superblock, s.token, [this, s] { write_superblock(s.superblock); });
  }
  void perform(ArchiveTail& a) {
    add(Disk::archive, a.token, [this, a] {
      for (const auto& [at, bytes] : a.parts) {
        auto from = journal.begin() + static_cast<std::ptrdiff_t>(at);
        archived.insert(archived.end(), from, from + bytes);
      }
    });
  }
  void perform(ArbiterRequest& r) { arbiter_requests.push_back(r); }
  void perform(Send& s) {
    sent_to.push_back(s.peer);
    sent.push_back(std::move(s.message));
  }
  void perform(SendRecord& r) {
    sent_to.push_back(r.peer);
    std::vector<std::byte> all = copy_of(r.pieces);
    auto split = all.begin() + r.meta_bytes;
    sent.push_back(RecordMessage{r.epoch, {all.begin(), split}, {split, all.end()}});
  }
  void all_sent() {}
  void perform(ClosePeer& c) { closed.push_back(c); }
  void perform(Notice& n) { notices.push_back(n.text), notice_kinds.push_back(n.kind); }
  void perform(Complete& c) {
    EXPECT_TRUE(done.emplace(c.id, c.error).second) << "request " << c.id << " completed twice";
    if (on_done) on_done(c.id, c.error);
  }
  void perform(RoleChange& r) { role_changes.push_back(r); }
  void perform(CommandDone& c) { commands.push_back(c); }

  std::vector<Op> ops_;
  Instant now_{1'000'000};
  std::uint64_t next_id_ = 1;
};

inline std::vector<std::byte> filled(std::size_t bytes, int value) {
  return std::vector<std::byte>(bytes, std::byte(value));
}

}  // namespace twinloft::repl::core
