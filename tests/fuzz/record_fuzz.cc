// The first byte selects the kind of input: body meta, a frame, a superblock or a data label. An accepted
// object is within its limits, and its encoding decodes to the same object.
//
// In half of the runs, the checksums are corrected, because they would stop the fuzzer.
#include <cstdint>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/base/crc32c.h"
#include "twinloft/spool-repl/format/record.h"
#include "twinloft/spool-repl/format/superblock.h"

using namespace twinloft;
using namespace twinloft::repl;

namespace {

const Uuid volume = Uuid::parse("0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff").value();
constexpr std::uint64_t volume_blocks = 1000;
using Bytes = std::vector<std::byte>;

void body(Bytes in, bool repair) {
  if (repair && in.size() >= body_header_bytes) {
    std::memcpy(in.data() + 8, volume.bytes.data(), 16);
    Hasher128 h;
    h.update(ByteSpan(in).first(112));
    h.update(ByteSpan(in).subspan(body_header_bytes));
    std::memcpy(in.data() + 112, h.digest().bytes.data(), 16);
  }
  auto out = decode_body_meta(in, volume, volume_blocks);
  if (!out) return;
  TL_CHECK(out->header.payload_blocks == out->block_crc.size());
  TL_CHECK(out->header.last_lsn() >= out->header.first_lsn);
  std::uint64_t next = 0, payload = 0;
  for (const Extent& e : out->extents) {
    TL_CHECK(e.blocks > 0 && e.lba.v >= next && e.lba.v + e.blocks <= volume_blocks);
    next = e.lba.v + e.blocks;
    if (e.kind == ExtentKind::data) payload += e.blocks;
  }
  TL_CHECK(payload == out->header.payload_blocks);
  if (out->header.type == RecordType::epoch)
    TL_CHECK(out->epoch_change.writer >= 1 && out->epoch_change.writer <= replica_id_max);
  Body copy = *out;
  Bytes again;
  encode_body_meta(copy, again);
  TL_CHECK(again.size() == in.size());
  TL_CHECK(decode_body_meta(again, volume, volume_blocks)->extents == out->extents);
}

void frame(Bytes in, bool repair) {
  in.resize(frame_header_bytes);
  if (repair) {
    store_le(in.data(), std::uint32_t{0x52464c54});
    store_le(in.data() + 4, std::uint32_t{0});
    store_le(in.data() + 4, crc32c(in, crc32c(volume.bytes)));
  }
  auto out = decode_frame(in, volume);
  if (!out) return;
  TL_CHECK(out->total_blocks <= record_blocks_max && out->total_blocks >= meta_blocks_for(out->meta_bytes));
  Bytes again(frame_header_bytes);
  encode_frame(*out, again);
  TL_CHECK(decode_frame(again, volume)->pos == out->pos);
}

void block(Bytes in, bool repair, std::uint64_t magic) {
  in.resize(block_size);
  if (repair) {
    store_le(in.data(), magic);
    store_le(in.data() + 8, std::uint32_t{0});
    bool is_label = magic == 0x314c42414c544c54;
    store_le(in.data() + 12, is_label ? 1u : 4u + (load_le<std::uint32_t>(in.data() + 12) & 1));  // version
    store_le(in.data() + 8, crc32c(in));
  }
  if (auto sb = decode_superblock(in)) {
    Bytes again(block_size);
    encode_superblock(*sb, again);
    TL_CHECK(*decode_superblock(again) == *sb);
    TL_CHECK(sb->epochs.size() <= epoch_table_max);
    for (const EpochEntry& e : sb->epochs) TL_CHECK(e.writer >= 1 && e.writer <= replica_id_max);
    for (const SplitBrain& s : sb->split_brains) TL_CHECK(s.with >= 1 && s.with <= replica_id_max);
  }
  if (auto label = decode_data_label(in)) {
    Bytes again(block_size);
    encode_data_label(*label, again);
    TL_CHECK(*decode_data_label(again) == *label);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  auto* bytes = reinterpret_cast<const std::byte*>(data);
  Bytes rest(bytes + 1, bytes + size);
  bool repair = data[0] & 1;
  switch (data[0] >> 1 & 3) {
    case 0:
      body(std::move(rest), repair);
      break;
    case 1:
      frame(std::move(rest), repair);
      break;
    case 2:
      block(std::move(rest), repair, 0x314b4c4253544c54);
      break;
    default:
      block(std::move(rest), repair, 0x314c42414c544c54);
      break;
  }
  return 0;
}
