// The primary's handling of client requests: reads, writes, zeroes, flushes.
#include <algorithm>
#include <cerrno>

#include "primary.h"
#include "twinloft/base/check.h"

namespace twinloft::repl::core {

namespace {

// Kept free of payload so that a full arena can always seal its open batch, and take repaired blocks.
constexpr std::size_t arena_reserve = 2 * record_meta_blocks_max + Repair::blocks_max;

std::uint64_t first_block(const ClientRequest& r) {
  return r.offset / block_size;
}
std::uint64_t end_block(const ClientRequest& r) {
  return (r.offset + r.length + block_size - 1) / block_size;
}
bool is_zeroing(const ClientRequest& r) {
  return r.op == ClientOp::trim || r.op == ClientOp::write_zeroes;
}

// The part of a block that the request covers.
struct Part {
  std::uint32_t from, bytes;
  bool whole() const { return bytes == block_size; }
};
Part part_of(const ClientRequest& r, std::uint64_t block) {
  std::uint64_t begin = std::max(r.offset, block * block_size);
  std::uint64_t end = std::min(r.offset + r.length, (block + 1) * block_size);
  return {static_cast<std::uint32_t>(begin - block * block_size), static_cast<std::uint32_t>(end - begin)};
}

// Wide enough that no read needs more than 10 bits of run number.
constexpr unsigned run_bits = 10;

}  // namespace

BlockIndex::Found Primary::newest(Lba lba) const {
  auto found = pending_.find(lba);
  return found.kind != BlockIndex::Kind::absent ? found : v_.committed.find(lba);
}

void Primary::complete(const ClientRequest& request, int error) {
  v_.out.completions.push_back({request.id, error});
}

void Primary::submit(const ClientRequest& r) {
  if (lost_) return complete(r, EIO);
  if (r.offset + r.length > v_.sb.volume_blocks * block_size) return complete(r, EINVAL);
  if (r.op == ClientOp::flush) return submit_flush(r);
  if (r.length == 0) return complete(r, 0);
  if (r.op == ClientOp::read) return submit_read(r);
  if (v_.failed) return complete(r, EIO);
  stalled_writes_.emplace_back().request = r;
  retry_stalled();
}

// ---- reads
// ---------------------------------------------------------------------------------------------------------

void Primary::submit_read(const ClientRequest& r) {
  if (!stalled_reads_.empty() || !try_read({r, v_.now})) stalled_reads_.push_back({r, v_.now});
}

// Copies what memory has at once and asks the data area for the rest. False: no scratch memory now.
bool Primary::try_read(const ReadRequest& wanted) {
  const ClientRequest& r = wanted.request;
  if (v_.read_arena.free() < end_block(r) - first_block(r)) return false;
  std::uint64_t op = next_op_++;
  Read read;
  read.request = wanted;
  read.home_changes = v_.home_changes;
  std::uint64_t block = first_block(r), end = end_block(r);
  bool aligned = r.offset % block_size == 0 && r.length % block_size == 0 &&
                 reinterpret_cast<std::uintptr_t>(r.data) % block_size == 0;
  while (block < end) {
    auto found = newest(Lba{block});
    Part part = part_of(r, block);
    std::byte* to = r.data + (block * block_size + part.from - r.offset);
    if (found.kind == BlockIndex::Kind::data) {
      std::memcpy(to, v_.arena.data(found.slot) + part.from, part.bytes);
      ++block;
      continue;
    }
    if (found.kind == BlockIndex::Kind::zeros) {
      std::memset(to, 0, part.bytes);
      ++block;
      continue;
    }
    std::uint64_t run_end = block + 1;
    while (run_end < end && v_.home_map.follows(Lba{run_end}) &&
           newest(Lba{run_end}).kind == BlockIndex::Kind::absent)
      ++run_end;
    HomeRead home{make_token(TokenKind::client_read, op << run_bits | read.runs.size()),
                  v_.home_map.at(Lba{block}),
                  {}};
    Read::Run run{Lba{block}, run_end - block, {}};
    if (aligned) {
      home.pieces.push_back({to, static_cast<std::uint32_t>((run_end - block) * block_size)});
    } else {
      for (std::uint64_t b = block; b < run_end; ++b) {
        run.slots.push_back(v_.read_arena.take());
        add_piece(home.pieces, v_.read_arena.data(run.slots.back()), block_size);
      }
    }
    read.runs.push_back(std::move(run));
    read.outstanding++;
    v_.out.home_reads.push_back(std::move(home));
    block = run_end;
  }
  if (read.outstanding == 0)
    complete(r, 0);
  else
    reads_.emplace(op, std::move(read));
  return true;
}

void Primary::on_client_read(std::uint64_t n, int error) {
  std::uint64_t op = n >> run_bits;
  auto it = reads_.find(op);
  TL_CHECK(it != reads_.end());
  Read& read = it->second;
  Read::Run& run = read.runs[n & ((1u << run_bits) - 1)];
  const ClientRequest& r = read.request.request;
  for (std::uint64_t i = 0; error != 0 && i < run.blocks; ++i) read.unreadable.push_back(run.lba + i);
  if (error == 0) check_run(read, run);
  for (std::size_t i = 0; i < run.slots.size(); ++i) {
    std::uint64_t block = run.lba.v + i;
    Part part = part_of(r, block);
    std::memcpy(r.data + (block * block_size + part.from - r.offset),
                v_.read_arena.data(run.slots[i]) + part.from, part.bytes);
    v_.read_arena.unref(run.slots[i]);
  }
  if (--read.outstanding > 0) return;
  if (read.stale)
    stalled_reads_.push_front(read.request);
  else if (read.unreadable.empty())
    answer_read(read.request);
  else
    repair(read.request, std::move(read.unreadable));
  reads_.erase(it);
}

// One that others had to be asked for tells nothing of this disk.
void Primary::answer_read(const ReadRequest& r) {
  if (r.repairs == 0) pace_.answered(Pace::Kind::read, v_.now - r.since);
  complete(r.request, 0);
}

// A block that a checkpoint has written meanwhile may be older than its digest: the request is tried again,
// without blame.
void Primary::check_run(Read& read, const Read::Run& run) {
  const ClientRequest& r = read.request.request;
  for (std::uint64_t i = 0; i < run.blocks; ++i) {
    Lba lba = run.lba + i;
    const std::byte* block = run.slots.empty() ? r.data + (lba.v * block_size - r.offset)
                                               : v_.read_arena.data(run.slots[i]);
    if (v_.digests.fits(lba, block)) continue;
    if (read.home_changes != v_.home_changes || !v_.is_wrong(lba, block))
      read.stale = true;
    else
      read.unreadable.push_back(lba);
  }
}

// ---- flush
// ---------------------------------------------------------------------------------------------------------

void Primary::submit_flush(const ClientRequest& r) {
  if (v_.failed) return complete(r, EIO);
  std::uint64_t target = open_.empty() ? open_serial_ - 1 : open_serial_;
  if (!open_.empty()) want_seal_ = true;
  wait_durable(target, r);
}

void Primary::wait_durable(std::uint64_t serial, const ClientRequest& r) {
  if (serial <= acked_serial_) return complete(r, 0);
  TL_CHECK(waiters_.empty() || waiters_.back().serial <= serial);
  waiters_.push_back({serial, r.id, v_.now});
}

// ---- writes
// --------------------------------------------------------------------------------------------------------

void Primary::retry_stalled() {
  while (!stalled_writes_.empty() && try_write(stalled_writes_.front())) stalled_writes_.pop_front();
  while (!stalled_reads_.empty() && try_read(stalled_reads_.front())) stalled_reads_.pop_front();
}

// True: the write needs nothing more from the queue (applied, failed, or waiting for its fills elsewhere).
bool Primary::try_write(Write& w) {
  const ClientRequest& r = w.request;
  if (suspended() || !epoch_logged_) return false;
  std::size_t blocks = is_zeroing(r) ? 2 : end_block(r) - first_block(r);
  if (v_.arena.free() < blocks + arena_reserve) {
    checkpointer_.request();
    want_seal_ = true;
    return false;
  }
  // Zero extents take memory too, and no slot that would be counted.
  if (is_zeroing(r) && pending_.zero_extents() + v_.committed.zero_extents() >= v_.arena.size()) {
    checkpointer_.request();
    want_seal_ = true;
    return false;
  }
  if (!open_.has_room(blocks, 1)) {
    want_seal_ = true;
    if (!try_seal()) return false;
  }
  // A checkpoint that ended meanwhile may have written these very blocks: what was read may be old.
  if (!w.fills.empty() && w.home_changes != v_.home_changes) drop_fills(w);
  if (w.fills.empty()) {
    switch (start_fills(w)) {
      case FillState::none_needed:
        break;
      case FillState::no_memory:
        return false;
      case FillState::waiting:
        return true;
    }
  }
  apply(w);
  return true;
}

void Primary::drop_fills(Write& w) {
  for (const auto& fill : w.fills) v_.read_arena.unref(fill.slot);
  w.fills.clear();
}

// Asks for the old content of the edge blocks where only the data area has it.
Primary::FillState Primary::start_fills(Write& w) {
  const ClientRequest& r = w.request;
  std::uint64_t last = end_block(r) - 1;
  for (std::uint64_t block : {first_block(r), last}) {
    bool again = !w.fills.empty() && w.fills.back().lba.v == block;
    if (again || part_of(r, block).whole() || newest(Lba{block}).kind != BlockIndex::Kind::absent) continue;
    w.fills.push_back({Lba{block}});
  }
  if (w.fills.empty()) return FillState::none_needed;
  if (v_.read_arena.free() < w.fills.size()) {  // only reads under way hold it: tried again when one ends
    w.fills.clear();
    return FillState::no_memory;
  }
  std::uint64_t op = next_op_++;
  w.home_changes = v_.home_changes;
  for (std::size_t i = 0; i < w.fills.size(); ++i) {
    w.fills[i].slot = v_.read_arena.take();
    v_.out.home_reads.push_back({make_token(TokenKind::fill_read, op << run_bits | i),
                                 v_.home_map.at(w.fills[i].lba),
                                 {{v_.read_arena.data(w.fills[i].slot), block_size}}});
    w.outstanding++;
  }
  filling_.emplace(op, std::move(w));
  return FillState::waiting;
}

void Primary::on_fill_read(std::uint64_t n, int error) {
  auto it = filling_.find(n >> run_bits);
  TL_CHECK(it != filling_.end());
  Write& w = it->second;
  const Write::Fill& fill = w.fills[n & ((1u << run_bits) - 1)];
  bool wrong = w.home_changes == v_.home_changes && v_.is_wrong(fill.lba, v_.read_arena.data(fill.slot));
  if (error != 0 || wrong) w.unreadable.push_back(fill.lba);
  if (--w.outstanding > 0) return;
  Write done = std::move(w);
  filling_.erase(it);
  bool unreadable = !done.unreadable.empty();
  if (unreadable || v_.failed || lost_) drop_fills(done);
  if (v_.failed || lost_) return complete(done.request, EIO);
  if (unreadable) {
    std::vector<Lba> blocks = std::exchange(done.unreadable, {});
    return repair(std::move(done), std::move(blocks));
  }
  stalled_writes_.push_front(std::move(done));
  retry_stalled();
}

void Primary::put_block(Lba lba, std::uint32_t from, std::uint32_t bytes, const std::byte* data,
                        const Write& w) {
  auto found = pending_.find(lba);
  Slot slot;
  if (found.kind == BlockIndex::Kind::data && found.serial == open_serial_) {
    slot = found.slot;  // not sealed yet: changed in place, stored once
  } else {
    slot = v_.arena.take();
    if (bytes < block_size) {
      auto base = found.kind != BlockIndex::Kind::absent ? found : v_.committed.find(lba);
      const std::byte* old = base.kind == BlockIndex::Kind::data ? v_.arena.data(base.slot) : nullptr;
      for (const auto& fill : w.fills)
        if (base.kind == BlockIndex::Kind::absent && fill.lba == lba) old = v_.read_arena.data(fill.slot);
      TL_CHECK(old || base.kind == BlockIndex::Kind::zeros);
      if (old)
        std::memcpy(v_.arena.data(slot), old, block_size);
      else
        std::memset(v_.arena.data(slot), 0, block_size);
    }
    pending_.put_data(lba, slot, open_serial_);
    v_.arena.unref(slot);  // the index holds it
    open_.note_data(lba);
  }
  if (data)
    std::memcpy(v_.arena.data(slot) + from, data, bytes);
  else
    std::memset(v_.arena.data(slot) + from, 0, bytes);
}

void Primary::apply(Write& w) {
  const ClientRequest& r = w.request;
  if (open_.empty()) open_.opened_at = v_.now;
  std::uint64_t zeros_from = 0, zeros = 0;
  for (std::uint64_t block = first_block(r); block < end_block(r); ++block) {
    Part part = part_of(r, block);
    if (!is_zeroing(r)) {
      put_block(Lba{block}, part.from, part.bytes, r.data + (block * block_size + part.from - r.offset), w);
    } else if (part.whole()) {
      zeros_from = block;
      zeros = (r.offset + r.length) / block_size - block;
      pending_.put_zeros(Lba{zeros_from}, zeros, open_serial_);
      open_.note_zeros(Lba{zeros_from}, zeros);
      block += zeros - 1;
    } else {
      put_block(Lba{block}, part.from, part.bytes, nullptr, w);
    }
  }
  drop_fills(w);
  if ((r.fua || v_.config.write_ack_durable) && !open_.empty()) {
    want_seal_ = true;
    wait_durable(open_serial_, r);
  } else {
    complete(r, 0);
  }
}

// After fail_device(): everything that waits, and everything that comes, gets EIO. Reads under way end as
// they do.
void Primary::fail_everything() {
  for (const Waiter& w : waiters_) v_.out.completions.push_back({w.id, EIO});
  waiters_.clear();
  for (Write& w : stalled_writes_) {
    drop_fills(w);
    complete(w.request, EIO);
  }
  stalled_writes_.clear();
  retry_stalled();
}

}  // namespace twinloft::repl::core
