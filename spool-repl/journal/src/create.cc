#include "twinloft/spool-repl/journal/create.h"

#include <algorithm>

#include "twinloft/spool-repl/format/bitmap.h"
#include "twinloft/spool-repl/format/digest.h"
#include "twinloft/spool-repl/format/record.h"
#include "twinloft/spool-repl/journal/aligned.h"
#include "twinloft/spool-repl/journal/superblock_store.h"

namespace twinloft::repl::journal {

namespace {

// Pages without dirty blocks. A page of zeros would count as damaged.
Status write_bitmaps(const Superblock& sb, ports::BlockFile& journal) {
  constexpr std::uint64_t batch = 256;
  AlignedBuffer pages(batch * block_size);
  std::uint64_t each = bitmap_pages(sb.volume_blocks);
  for (std::uint32_t slot = 0; slot < bitmap_slots; ++slot) {
    for (std::uint64_t first = 0; first < each; first += batch) {
      std::uint64_t n = std::min(batch, each - first);
      for (std::uint64_t i = 0; i < n; ++i)
        encode_bitmap_page(sb.volume, slot, first + i, {}, pages.span().subspan(i * block_size, block_size));
      TL_TRY(journal.write(sb.bitmap_offset + slot * sb.bitmap_bytes + first * block_size,
                           pages.span().first(n * block_size)));
    }
  }
  return {};
}

// A new volume is all zeros. The digests of an adopted volume are unknown.
Status write_digests(const Superblock& sb, ports::BlockFile& journal, bool adopted) {
  constexpr std::uint64_t batch = 256;
  AlignedBuffer pages(batch * block_size);
  std::vector<Digest> digests(digest_page_blocks, adopted ? digest_unknown : digest_zeros);
  for (std::uint64_t first = 0; first < sb.digest_bytes / block_size; first += batch) {
    std::uint64_t n = std::min(batch, sb.digest_bytes / block_size - first);
    for (std::uint64_t i = 0; i < n; ++i)
      encode_digest_page(sb.volume, first + i, digests, pages.span().subspan(i * block_size, block_size));
    TL_TRY(journal.write(sb.digest_offset + first * block_size, pages.span().first(n * block_size)));
  }
  return {};
}

}  // namespace

Result<Superblock> plan_layout(const CreateOptions& o, std::uint64_t journal_bytes) {
  if (o.volume_blocks == 0 || o.volume_blocks > UINT32_MAX)
    return fail(Errc::invalid, "a volume of {} blocks: from 1 block to 16 TiB are possible", o.volume_blocks);
  if (o.replica == 0 || o.replica > replica_id_max)
    return fail(Errc::invalid, "replica id {}: it must be from 1 to {}", o.replica, replica_id_max);
  Superblock sb;
  sb.generation = 1;
  sb.volume = o.volume;
  sb.replica = o.replica;
  sb.flags = o.data_label ? std::uint32_t{flag_data_label} : 0;
  sb.volume_blocks = o.volume_blocks;
  sb.bitmap_offset = journal_reserved_bytes;
  sb.bitmap_bytes = bitmap_pages(o.volume_blocks) * block_size;
  sb.digest_offset = sb.bitmap_offset + bitmap_slots * sb.bitmap_bytes;
  sb.digest_bytes = digest_pages(o.volume_blocks) * block_size;
  sb.ring_offset = sb.digest_offset + sb.digest_bytes;
  if (journal_bytes < sb.ring_offset + journal_ring_bytes_min)
    return fail(Errc::invalid, "a journal of {} MiB is too small: a volume of {} MiB needs at least {} MiB",
                journal_bytes >> 20, o.volume_blocks * block_size >> 20,
                (sb.ring_offset + journal_ring_bytes_min + (1u << 20) - 1) >> 20);
  sb.ring_bytes = (journal_bytes - sb.ring_offset) / block_size * block_size;
  sb.tail = {Lsn{0}, genesis_hash(o.volume, o.volume_blocks)};
  if (o.adopt) {
    sb.tail = {Lsn{1}, o.adopt->beginning};
    sb.tail_epoch = o.adopt->epoch;
    sb.commit = Lsn{1};
    sb.epochs.push_back({o.adopt->epoch, Lsn{1}, o.replica, set_of(o.replica)});
  }
  return sb;
}

Result<Superblock> create_replica(const CreateOptions& o, ports::BlockFile& journal, ports::BlockFile& data,
                                  bool zero_data) {
  TL_TRY_ASSIGN(Superblock sb, plan_layout(o, journal.size_bytes()));
  std::uint64_t data_bytes = (o.volume_blocks + (o.data_label ? 1 : 0)) * block_size;
  if (data.size_bytes() < data_bytes)
    return fail(Errc::invalid, "{}: {} bytes, {} are needed", data.name(), data.size_bytes(), data_bytes);
  if (zero_data) TL_TRY(data.write_zeros(0, o.volume_blocks * block_size));
  if (o.data_label) {
    AlignedBuffer block(block_size);
    encode_data_label({o.volume, o.replica, o.volume_blocks}, block.span());
    TL_TRY(data.write(o.volume_blocks * block_size, block.span()));
  }
  TL_TRY(data.sync());
  // Zeros are written, since later writes of the journal need allocated and initialised blocks.
  AlignedBuffer zeros(1 << 20);
  for (std::uint64_t at = 0; at < sb.ring_offset + sb.ring_bytes; at += zeros.span().size()) {
    std::uint64_t n = std::min<std::uint64_t>(zeros.span().size(), sb.ring_offset + sb.ring_bytes - at);
    TL_TRY(journal.write(at, zeros.span().first(n)));
  }
  TL_TRY(write_bitmaps(sb, journal));
  TL_TRY(write_digests(sb, journal, o.adopt.has_value()));
  TL_TRY(journal.sync());
  TL_TRY(store_superblock(journal, sb));
  return sb;
}

}  // namespace twinloft::repl::journal
