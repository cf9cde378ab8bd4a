// Chunks of the spill, from a disk that may have rotted. The first byte selects a whole chunk or a record of
// it, and whether checksums are corrected, because they would stop the fuzzer.
//
// An accepted header is encoded to the same bytes' meaning, and names no more than the chunk has.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/base/crc32c.h"
#include "twinloft/spool-repl/format/spill.h"

using namespace twinloft;
using namespace twinloft::repl;

namespace {

const Uuid volume = Uuid::parse("0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff").value();
using Bytes = std::vector<std::byte>;

void chunk(Bytes in, bool repair) {
  // Short inputs reach the fields of the header; the rest of the header is zeros.
  Bytes whole(spill_header_bytes + block_size);
  std::copy_n(in.begin(), std::min<std::size_t>(in.size(), 200), whole.begin());
  if (repair) {
    store_le(whole.data(), std::uint32_t{0x4c505354});  // "TSPL"
    store_le(whole.data() + 8, std::uint32_t{1});
    store_le(whole.data() + 12, std::uint32_t{2});
    std::copy(volume.bytes.begin(), volume.bytes.end(), whole.begin() + 16);
    store_le(whole.data() + 4, std::uint32_t{0});
    store_le(whole.data() + 4, crc32c(ByteSpan(whole).first(spill_header_bytes)));
  }
  auto found = decode_spill_header(whole, volume, 2);
  TL_CHECK(!decode_spill_chunk(whole, volume, 2) || found.has_value());
  if (!found) return;
  TL_CHECK(found->bytes <= spill_chunk_bytes_max && found->bytes % block_size == 0 && found->records > 0);
  Bytes again(spill_header_bytes);
  encode_spill_header(*found, volume, 2, again);
  auto same = decode_spill_header(again, volume, 2);
  TL_CHECK(same && *same == *found);
  TL_CHECK(!decode_spill_header(again, volume, 3) && !decode_spill_header(again, Uuid{}, 2));
}

void record(Bytes in, bool repair) {
  in.resize(2 * block_size);
  if (repair) {
    store_le(in.data(), std::uint32_t{0x52464c54});  // "TLFR"
    store_le(in.data() + 4, std::uint32_t{0});
    store_le(in.data() + 4, crc32c(ByteSpan(in).first(frame_header_bytes), crc32c(volume.bytes)));
  }
  auto found = decode_stored_record(in, volume, 1000);
  if (!found) return;
  TL_CHECK(found->bytes <= in.size());
  TL_CHECK(found->payload.size() == std::size_t{found->body.header.payload_blocks} * block_size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  Bytes in(bytes + 1, bytes + size);
  bool repair = (data[0] & 1) != 0;
  if (data[0] & 2)
    record(std::move(in), repair);
  else
    chunk(std::move(in), repair);
  return 0;
}
