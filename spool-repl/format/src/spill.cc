#include "twinloft/spool-repl/format/spill.h"

#include <algorithm>

#include "twinloft/base/check.h"
#include "twinloft/base/crc32c.h"

namespace twinloft::repl {

namespace {

constexpr std::uint32_t spill_magic = 0x4c505354;  // "TSPL"
constexpr std::uint32_t spill_version = 1;

std::uint32_t header_crc(ByteSpan header) {
  std::vector<std::byte> copy(header.begin(), header.end());
  store_le(copy.data() + 4, std::uint32_t{0});
  return crc32c(copy);
}

void put_mark(Writer& w, const LogMark& m) {
  w.put(m.lsn.v);
  w.put_bytes(m.hash.bytes);
}

LogMark get_mark(Reader& r) {
  LogMark m;
  m.lsn.v = r.get<std::uint64_t>();
  r.get_into(m.hash.bytes);
  return m;
}

}  // namespace

void encode_spill_header(const SpillChunk& c, const Uuid& volume, ReplicaId replica, MutableByteSpan out) {
  TL_CHECK(out.size() == spill_header_bytes);
  std::vector<std::byte> bytes;
  Writer w(bytes);
  w.put(spill_magic);
  w.put(std::uint32_t{0});  // CRC
  w.put(spill_version);
  w.put(replica);
  w.put_bytes(volume.bytes);
  w.put(c.number);
  put_mark(w, c.before);
  put_mark(w, c.last);
  w.put(c.from.v);
  w.put(c.to.v);
  w.put(c.records);
  w.put(c.bytes);
  w.put(c.crc);
  TL_CHECK(bytes.size() <= out.size());
  std::fill(std::copy(bytes.begin(), bytes.end(), out.begin()), out.end(), std::byte{0});
  store_le(out.data() + 4, header_crc(out));
}

Result<SpillChunk> decode_spill_header(ByteSpan in, const Uuid& volume, ReplicaId replica) {
  if (in.size() < spill_header_bytes) return fail(Errc::corrupt, "a chunk of {} bytes", in.size());
  in = in.first(spill_header_bytes);
  Reader r(in);
  if (r.get<std::uint32_t>() != spill_magic) return fail(Errc::corrupt, "not a chunk of a spill");
  if (r.get<std::uint32_t>() != header_crc(in)) return fail(Errc::corrupt, "a header with a wrong CRC");
  if (auto version = r.get<std::uint32_t>(); version != spill_version)
    return fail(Errc::invalid, "a chunk of version {}", version);
  auto of_replica = r.get<std::uint32_t>();
  Uuid of_volume;
  r.get_into(of_volume.bytes);
  if (of_volume != volume || of_replica != replica)
    return fail(Errc::conflict, "a chunk of volume {}, replica {}", of_volume.text(), of_replica);
  SpillChunk c;
  c.number = r.get<std::uint64_t>();
  c.before = get_mark(r);
  c.last = get_mark(r);
  c.from.v = r.get<std::uint64_t>();
  c.to.v = r.get<std::uint64_t>();
  c.records = r.get<std::uint32_t>();
  c.bytes = r.get<std::uint32_t>();
  c.crc = r.get<std::uint32_t>();
  bool possible = c.records > 0 && c.bytes > 0 && c.bytes <= spill_chunk_bytes_max &&
                  c.bytes % block_size == 0 && c.last.lsn > c.before.lsn && c.to >= c.from &&
                  c.to.v - c.from.v >= c.bytes && c.records <= c.last.lsn.v - c.before.lsn.v;
  if (!possible) return fail(Errc::corrupt, "a header with impossible lengths");
  return c;
}

Result<SpillChunk> decode_spill_chunk(ByteSpan in, const Uuid& volume, ReplicaId replica) {
  TL_TRY_ASSIGN(SpillChunk c, decode_spill_header(in, volume, replica));
  ByteSpan records = in.subspan(spill_header_bytes);
  if (records.size() != c.bytes || crc32c(records) != c.crc)
    return fail(Errc::corrupt, "chunk {} has other records than it names", c.number);
  return c;
}

std::vector<SpillChunk> usable_spill(const std::vector<std::uint64_t>& numbers, const ReadSpillChunk& read,
                                     const Uuid& volume, ReplicaId replica) {
  std::vector<SpillChunk> found;  // newest first
  for (auto number = numbers.rbegin(); number != numbers.rend(); ++number) {
    auto bytes = read(*number, found.empty());
    if (!bytes && !found.empty()) break;
    if (!bytes) continue;
    auto chunk = found.empty() ? decode_spill_chunk(*bytes, volume, replica)
                               : decode_spill_header(*bytes, volume, replica);
    bool continues = chunk && chunk->number == *number &&
                     (found.empty() ||
                      (found.back().number == *number + 1 && found.back().before == chunk->last));
    if (continues)
      found.push_back(*chunk);
    else if (!found.empty())
      break;
  }
  return {found.rbegin(), found.rend()};
}

Result<StoredBytes> decode_stored_record(ByteSpan in, const Uuid& volume, std::uint64_t volume_blocks) {
  if (in.size() < block_size) return fail(Errc::corrupt, "a record of {} bytes", in.size());
  TL_TRY_ASSIGN(FrameHeader frame, decode_frame(in, volume));
  StoredBytes out;
  out.bytes = frame.total_blocks * block_size;
  std::size_t payload_at = std::size_t{meta_blocks_for(frame.meta_bytes)} * block_size;
  if (out.bytes > in.size()) return fail(Errc::corrupt, "a record that is cut short");
  out.meta = in.subspan(frame_header_bytes, frame.meta_bytes);
  out.payload = in.subspan(payload_at, out.bytes - payload_at);
  TL_TRY_ASSIGN(out.body, decode_body_meta(out.meta, volume, volume_blocks));
  if (out.payload.size() != std::size_t{out.body.header.payload_blocks} * block_size)
    return fail(Errc::corrupt, "a record with a payload of the wrong size");
  std::vector<const std::byte*> blocks;
  for (std::size_t at = 0; at < out.payload.size(); at += block_size)
    blocks.push_back(out.payload.data() + at);
  TL_TRY(verify_payload(out.body, blocks));
  return out;
}

}  // namespace twinloft::repl
