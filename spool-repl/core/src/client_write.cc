// Writes, zeroes and trims of the clients, and the sealing of the open batch.
#include <cerrno>

#include "client_io.h"
#include "request_blocks.h"
#include "twinloft/base/check.h"

namespace twinloft::repl::core {

namespace {

// Kept free of payload, so that a full arena can always seal the open batch and hold repaired blocks.
constexpr std::size_t arena_reserve = 2 * record_meta_blocks_max + Repair::blocks_max;

}  // namespace

// True: the write leaves the queue. It was applied, has failed, or waits for its fills in filling_.
bool ClientIo::try_write(Write& w) {
  const ClientRequest& r = w.request;
  if (term_.suspended() || !term_.logged()) return false;
  std::size_t blocks = is_zeroing(r) ? 2 : end_block(r) - first_block(r);
  if (v_.arena.free() < blocks + arena_reserve) {
    checkpointer_.request();
    want_seal_ = true;
    return false;
  }
  // Zero extents use memory but no slots, so their number is limited separately.
  if (is_zeroing(r) && pending_.zero_extents() + v_.committed.zero_extents() >= v_.arena.size()) {
    checkpointer_.request();
    want_seal_ = true;
    return false;
  }
  if (!open_.has_room(blocks, 1)) {
    want_seal_ = true;
    if (!seal()) return false;
  }
  // A checkpoint since then may have written these blocks, so the fills may hold old content.
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

void ClientIo::drop_fills(Write& w) {
  for (const auto& fill : w.fills) v_.read_arena.unref(fill.slot);
  w.fills.clear();
}

// Reads the old content of the edge blocks that only the data area has.
ClientIo::FillState ClientIo::start_fills(Write& w) {
  const ClientRequest& r = w.request;
  std::uint64_t last = end_block(r) - 1;
  for (std::uint64_t block : {first_block(r), last}) {
    bool again = !w.fills.empty() && w.fills.back().lba.v == block;
    if (again || part_of(r, block).whole() || newest(Lba{block}).kind != BlockIndex::Kind::absent) continue;
    w.fills.push_back({Lba{block}});
  }
  if (w.fills.empty()) return FillState::none_needed;
  if (v_.read_arena.free() < w.fills.size()) {  // reads in flight hold it: their end retries this write
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

void ClientIo::on_fill_read(std::uint64_t n, int error) {
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
  if (unreadable || v_.failed || term_.lost()) drop_fills(done);
  if (v_.failed || term_.lost()) return complete(done.request, EIO);
  if (unreadable) {
    std::vector<Lba> blocks = std::exchange(done.unreadable, {});
    if (auto failed = repairing_writes_.begin(std::move(done), std::move(blocks), false))
      after_repair(std::move(*failed), false);
    return;
  }
  stalled_writes_.push_front(std::move(done));
  retry_stalled();
}

void ClientIo::put_block(Lba lba, std::uint32_t from, std::uint32_t bytes, const std::byte* data,
                         const Write& w) {
  auto found = pending_.find(lba);
  Slot slot;
  if (found.kind == BlockIndex::Kind::data && found.serial == open_serial_) {
    slot = found.slot;  // not sealed yet, so the block is changed in place
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

void ClientIo::apply(Write& w) {
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

void ClientIo::after_repair(Write w, bool ok) {
  if (ok && !v_.failed && !term_.lost())
    stalled_writes_.push_front(std::move(w));
  else
    complete(w.request, EIO);
}

bool ClientIo::seal_is_due() {
  if (open_.empty()) want_seal_ = false;
  return !open_.empty() && (want_seal_ || !open_.has_room(record_payload_blocks_max / 2, 1) ||
                            v_.now - open_.opened_at >= v_.config.seal_after);
}

void ClientIo::seal_if_due() {
  if (seal_is_due()) seal();
}

bool ClientIo::seal() {
  if (open_.empty() || v_.failed || !term_.logged()) return false;
  if (v_.journal_in_flight >= v_.config.journal_writes_in_flight) return false;
  if (v_.arena.free() < record_meta_blocks_max) return false;
  if (v_.far.writers_wait()) return false;
  if (!v_.log.place(record_blocks_max)) {
    checkpointer_.request();  // the journal is full: writers wait until the tail has moved
    return false;
  }
  SealedBatch batch = open_.seal(pending_, open_serial_, v_.arena);
  Body body;
  std::vector<const std::byte*> blocks;
  blocks.reserve(batch.payload.size());
  for (Slot s : batch.payload) blocks.push_back(v_.arena.data(s));
  body.header = {RecordType::data,
                 v_.sb.volume,
                 term_.epoch(),
                 v_.log.last_mark().lsn + 1,
                 static_cast<std::uint32_t>(batch.extents.size()),
                 v_.log.last_mark().hash,
                 hash_payload(blocks),
                 static_cast<std::uint32_t>(blocks.size())};
  body.extents = std::move(batch.extents);
  body.block_crc.reserve(blocks.size());
  std::size_t at = 0;
  for (const Extent& e : body.extents)
    if (e.kind == ExtentKind::data)
      for (std::uint32_t i = 0; i < e.blocks; ++i)
        body.block_crc.push_back(block_crc(v_.sb.volume, e.lba + i, {blocks[at++], block_size}));
  std::vector<std::byte> meta;
  encode_body_meta(body, meta);
  auto pos = v_.log.place(meta_blocks_for(meta.size()) + body.header.payload_blocks);
  TL_CHECK(pos.has_value());
  v_.journal_record(body, meta, std::move(batch.payload), *pos, open_serial_++);
  want_seal_ = false;
  return true;
}

}  // namespace twinloft::repl::core
