// A replica's two files in memory, and a writer that fills the journal as the core does, and as a crash
// leaves it.
#pragma once

#include <gtest/gtest.h>

#include "../support/memory_file.h"
#include "twinloft/base/random.h"
#include "twinloft/spool-repl/journal/aligned.h"
#include "twinloft/spool-repl/journal/create.h"
#include "twinloft/spool-repl/journal/recovery.h"
#include "twinloft/spool-repl/journal/superblock_store.h"

namespace twinloft::repl::journal {

inline const Uuid volume = Uuid::parse("1b2c3d4e-5f60-4711-8822-93a4b5c6d7e8").value();
inline constexpr std::uint64_t volume_blocks = 200;
// A bitmap of up to 32,000 blocks is one page.
constexpr std::uint64_t ring_offset_of(std::uint64_t blocks) {
  return journal_reserved_bytes + (bitmap_slots + digest_pages(blocks)) * block_size;
}
inline constexpr std::uint64_t ring_offset = ring_offset_of(volume_blocks);

struct Written {  // the place of a test's record
  JournalPos pos;
  std::uint32_t blocks = 0;
  LogMark mark;
  std::uint64_t offset = 0;  // the offset in the file
};

struct Part {
  std::uint64_t lba;
  std::uint32_t blocks;
  int value;  // the value of every byte; -1: an extent of zeros
};

class Replica {
 public:
  explicit Replica(bool label = true, std::uint64_t blocks = volume_blocks,
                   std::uint64_t ring_bytes = journal_ring_bytes_min)
      : journal(std::vector<std::byte>(ring_offset_of(blocks) + ring_bytes), "j.img"),
        data(std::vector<std::byte>((blocks + label) * block_size), "d.img"),
        model(blocks * block_size) {
    auto made = create_replica({volume, 2, blocks, label}, journal, data, true);
    EXPECT_TRUE(made) << made.error().message;
    sb = *made;
    head = sb.tail_pos;
    last = sb.tail;
  }

  // The frame holds the writer's knowledge at the time of submission.
  Written append(const std::vector<Part>& parts, Lsn durable, Lsn commit) {
    Body body;
    std::vector<std::byte> payload;
    std::vector<const std::byte*> blocks;
    for (const Part& p : parts) {
      for (std::uint64_t b = 0; p.value >= 0 && b < p.blocks; ++b)
        body.block_crc.push_back(
            block_crc(volume, Lba{p.lba + b}, std::vector<std::byte>(block_size, std::byte(p.value))));
      body.extents.push_back({Lba{p.lba}, p.blocks, p.value < 0 ? ExtentKind::zeros : ExtentKind::data});
      if (p.value >= 0) payload.insert(payload.end(), std::size_t{p.blocks} * block_size, std::byte(p.value));
    }
    for (std::size_t at = 0; at < payload.size(); at += block_size) blocks.push_back(payload.data() + at);
    body.header = {RecordType::data,
                   volume,
                   epoch,
                   last.lsn + 1,
                   static_cast<std::uint32_t>(parts.size()),
                   last.hash,
                   hash_payload(blocks),
                   static_cast<std::uint32_t>(blocks.size())};
    return store(body, payload, durable, commit);
  }
  // The usual case: every earlier record is durable and committed.
  Written append(const std::vector<Part>& parts) { return append(parts, last.lsn, last.lsn); }

  // Data and zeros, also added to the model. The last record says that all earlier records are committed.
  void append_at_random(SeededRandom& random, int records) {
    int value = 1;
    for (int i = 0; i < records; ++i) {
      std::vector<Part> parts;
      std::uint64_t at = random.below(20);
      while (at < volume_blocks && parts.size() < 6) {
        auto n = static_cast<std::uint32_t>(1 +
                                            random.below(std::min<std::uint64_t>(12, volume_blocks - at)));
        parts.push_back({at, n, random.below(3) == 0 ? -1 : value++ % 251});
        at += n + random.below(40);
      }
      append(parts);
      apply(parts);
    }
    append({{199, 1, 0x77}});
  }

  Written append_epoch(const EpochChange& change) {
    Body body;
    body.header = {RecordType::epoch, volume, change.epoch, last.lsn + 1, 1, last.hash, hash_payload({}), 0};
    body.epoch_change = change;
    epoch = change.epoch;
    return store(body, {}, last.lsn, last.lsn);
  }

  Written store(Body& body, const std::vector<std::byte>& payload, Lsn durable, Lsn commit) {
    std::vector<std::byte> meta;
    encode_body_meta(body, meta);
    Written w;
    w.blocks = meta_blocks_for(meta.size()) + body.header.payload_blocks;
    std::uint64_t to_end = sb.ring_bytes - head.v % sb.ring_bytes, n = std::uint64_t{w.blocks} * block_size;
    w.pos = {n > to_end ? head.v + to_end : head.v};
    w.offset = sb.ring_offset + w.pos.v % sb.ring_bytes;
    std::vector<std::byte> image(n);
    encode_frame({w.pos, durable, commit, sb.incarnation, w.blocks, static_cast<std::uint32_t>(meta.size()),
                  sb.replica, volume},
                 MutableByteSpan(image).first(frame_header_bytes));
    std::memcpy(image.data() + frame_header_bytes, meta.data(), meta.size());
    std::copy(payload.begin(), payload.end(), image.end() - static_cast<std::ptrdiff_t>(payload.size()));
    EXPECT_TRUE(journal.write(w.offset, image));
    head = {w.pos.v + n};
    last = w.mark = body.mark();
    return w;
  }

  void apply(const std::vector<Part>& parts) {
    for (const Part& p : parts)
      std::fill_n(model.begin() + static_cast<std::ptrdiff_t>(p.lba * block_size),
                  std::size_t{p.blocks} * block_size, std::byte(p.value < 0 ? 0 : p.value));
  }
  bool data_is_model() const { return std::equal(model.begin(), model.end(), data.bytes.begin()); }

  // Moves the tail like the checkpointer. The model's content up to here is in the data area.
  void move_tail_to_head() {
    sb.tail_pos = head;
    sb.tail = last;
    sb.tail_epoch = {1, volume};
    sb.commit = last.lsn;
    sb.generation++;
    std::copy(model.begin(), model.end(), data.bytes.begin());
    EXPECT_TRUE(store_superblock(journal, sb));
  }

  // Cuts the log like a secondary. The frames after the cut stay on the disk.
  void cut_back(const LogMark& to, JournalPos end) {
    last = to;
    head = end;
    sb.incarnation++;
    sb.cut_lsn = to.lsn;
    sb.cut_incarnation = sb.incarnation;
    sb.generation++;
    EXPECT_TRUE(store_superblock(journal, sb));
  }

  void forget_writes() { journal.writes = data.writes = 0; }
  std::uint64_t writes() const { return journal.writes + data.writes; }

  MemoryFile journal, data;
  std::vector<std::byte> model;
  Superblock sb;
  JournalPos head;
  LogMark last;
  Epoch epoch{1, volume};
};

inline testing::AssertionResult fails_with(const Error& e, Errc code,
                                           std::initializer_list<std::string_view> words) {
  if (e.code != code) return testing::AssertionFailure() << to_string(e.code) << ": " << e.message;
  for (auto word : words)
    if (e.message.find(word) == std::string::npos)
      return testing::AssertionFailure() << "\"" << e.message << "\" does not say \"" << word << "\"";
  return testing::AssertionSuccess();
}

}  // namespace twinloft::repl::journal
