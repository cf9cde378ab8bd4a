// The parts of a core that both roles share, to test one class alone. The test plays the disk.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "checkpointer.h"
#include "shell.h"
#include "volume.h"

namespace twinloft::repl::core {

inline Config of_two() {
  Config c;
  c.send_window_bytes = 4u << 20;
  c.zero_blocks_a_round = 256;
  c.peers = {{1, Protocol::C}};
  return c;
}

// Replica 2 of two, with 1024 blocks and an empty log.
struct PartsTest : testing::Test {
  static constexpr std::uint64_t volume_blocks = 1024;

  SeededRandom random{1};
  journal::AlignedBuffer memory{(arena_blocks_min(of_two()) + 64) * block_size};
  journal::AlignedBuffer scratch{read_arena_blocks_min * block_size};
  Arena arena{memory.span()}, reads{scratch.span()};
  Volume v{of_two(), new_log(2, volume_blocks), arena, reads, random};
  Checkpointer checkpointer{v};
  std::vector<std::byte> data = std::vector<std::byte>(volume_blocks * block_size);
  Output taken;          // the output that was already examined
  unsigned durable = 0;  // purposes of the superblocks that became durable
  bool superblocks_wait = false;

  PartsTest() { EXPECT_TRUE(v.load(new_log(2, volume_blocks))); }

  static Epoch epoch(std::uint64_t counter) {
    Epoch e{counter, {}};
    e.id.bytes[2] = static_cast<std::byte>(counter);
    return e;
  }

  // Performs all disk requests of the checkpointer and of the volume.
  void settle(const std::function<void()>& advance) {
    for (;;) {
      advance();
      checkpointer.advance();
      if (!perform()) return;
    }
  }
  bool perform() {
    Output out;
    out.swap(v.out);
    bool any = false;
    for (HomeWrite& w : out.home_writes) {
      std::uint64_t at = w.at.bytes();
      for (const IoPiece& p : w.pieces) std::memcpy(data.data() + at, p.data, p.bytes), at += p.bytes;
      checkpointer.on_home_written(number_of(w.token), 0), any = true;
    }
    for (HomeZero& z : out.home_zeros) checkpointer.on_home_written(number_of(z.token), 0), any = true;
    for (std::size_t i = 0; i < out.home_syncs.size(); ++i) checkpointer.on_home_synced(0), any = true;
    for (std::size_t i = 0; i < out.bitmap_writes.size(); ++i) checkpointer.on_bitmap_written(0), any = true;
    for (JournalWrite& w : out.journal_writes)
      if (kind_of(w.token) == TokenKind::journal_write)
        v.on_journal_written(number_of(w.token), 0), any = true;
    for (std::size_t i = 0; i < out.superblock_writes.size(); ++i) waiting_superblocks_++;
    while (!superblocks_wait && waiting_superblocks_ > 0) any = true, end_superblock();
    auto keep = [](auto& to, auto& from) { std::move(from.begin(), from.end(), std::back_inserter(to)); };
    for (JournalWrite& w : out.journal_writes)
      if (kind_of(w.token) == TokenKind::erase) taken.journal_writes.push_back(w);
    keep(taken.home_reads, out.home_reads);
    keep(taken.archives, out.archives);
    keep(taken.sends, out.sends);
    keep(taken.notices, out.notices);
    return any;
  }
  void end_superblock() {
    waiting_superblocks_--;
    unsigned done = v.on_superblock_written(0);
    durable |= done;
    if (done & Volume::for_epoch) v.log.release_durable();
    if (done & Volume::for_commit) checkpointer.on_commit_durable();
    if (done & Volume::for_tail) checkpointer.on_tail_durable();
  }
  bool take_durable(Volume::Purpose purpose) {
    bool is = (durable & purpose) != 0;
    durable &= ~static_cast<unsigned>(purpose);
    return is;
  }
  template <class M>
  std::vector<M> sent() {
    std::vector<M> all;
    perform();
    for (auto& each : std::exchange(taken.sends, {}))
      if (auto* send = std::get_if<Send>(&each))
        if (auto* m = std::get_if<M>(&send->message)) all.push_back(*m);
    return all;
  }
  // Appends a record of one block, of epoch 1. Its journal write is in flight.
  void append(std::uint64_t lba, int value) {
    std::vector<std::byte> block = filled(block_size, value);
    Slot slot = arena.take();
    std::memcpy(arena.data(slot), block.data(), block_size);
    const std::byte* blocks[] = {arena.data(slot)};
    Body body;
    body.header = {RecordType::data,       v.sb.volume,          epoch(1), v.log.last_mark().lsn + 1, 1,
                   v.log.last_mark().hash, hash_payload(blocks), 1};
    body.extents = {{Lba{lba}, 1, ExtentKind::data}};
    body.block_crc = {block_crc(v.sb.volume, Lba{lba}, block)};
    std::vector<std::byte> meta;
    encode_body_meta(body, meta);
    auto pos = v.log.place(meta_blocks_for(meta.size()) + 1);
    ASSERT_TRUE(pos);
    v.journal_record(body, meta, {slot}, *pos, 0);
  }

 private:
  std::size_t waiting_superblocks_ = 0;
};

}  // namespace twinloft::repl::core
