#include "twinloft/spool-repl/format/record.h"

#include "twinloft/base/check.h"
#include "twinloft/base/crc32c.h"

namespace twinloft::repl {

namespace {

constexpr std::uint32_t frame_magic = 0x52464c54;  // "TLFR"
constexpr std::uint32_t body_magic = 0x44424c54;   // "TLBD"
constexpr std::uint16_t body_version = 2;
constexpr std::uint32_t record_features_known = 0;  // a reader refuses a record with an unknown bit
constexpr std::size_t body_hash_at = 112;
static_assert(body_hash_at + 16 == body_header_bytes);

Hash128 hash_meta(ByteSpan meta) {
  Hasher128 h;
  h.update(meta.first(body_hash_at));
  h.update(meta.subspan(body_header_bytes));
  return h.digest();
}

}  // namespace

Hash128 genesis_hash(const Uuid& volume, std::uint64_t volume_blocks) {
  std::vector<std::byte> text;
  Writer w(text);
  w.put_bytes(as_bytes("twinloft genesis 1"));
  w.put_bytes(volume.bytes);
  w.put(volume_blocks);
  return hash128(text);
}

std::uint32_t block_crc(const Uuid& volume, Lba lba, ByteSpan block) {
  std::byte seed[24];
  std::memcpy(seed, volume.bytes.data(), 16);
  store_le(seed + 16, lba.v);
  return crc32c(block, crc32c(seed));
}

void encode_body_meta(Body& body, std::vector<std::byte>& out) {
  const BodyHeader& h = body.header;
  bool is_epoch = h.type == RecordType::epoch;
  TL_CHECK(body.extents.size() <= record_extents_max);
  TL_CHECK(h.payload_blocks <= record_payload_blocks_max);
  TL_CHECK(body.block_crc.size() == h.payload_blocks);
  TL_CHECK(h.count == (is_epoch ? 1 : body.extents.size()) && h.count > 0);

  std::size_t start = out.size();
  Writer w(out);
  w.put(body_magic);
  w.put(body_version);
  w.put(static_cast<std::uint16_t>(h.type));
  w.put_bytes(h.volume.bytes);
  put_epoch(w, h.epoch);
  w.put(h.first_lsn.v);
  w.put(h.count);
  w.put(static_cast<std::uint32_t>(body.extents.size()));
  w.put(h.payload_blocks);
  w.put(std::uint32_t{0});  // payload encoding: raw
  w.put_bytes(h.prev_hash.bytes);
  w.put_bytes(h.payload_hash.bytes);
  w.put(is_epoch ? epoch_change_bytes : 0);  // aux bytes
  w.put(record_features_known);
  TL_CHECK(out.size() - start == body_hash_at);
  w.put_zeros(16);
  for (const Extent& e : body.extents) {
    w.put(e.lba.v);
    w.put(e.blocks);
    w.put(static_cast<std::uint16_t>(e.kind));
    w.put(std::uint16_t{0});
  }
  for (std::uint32_t crc : body.block_crc) w.put(crc);
  if (is_epoch) put_change(w, body.epoch_change);
  body.hash = hash_meta(ByteSpan(out).subspan(start));
  std::memcpy(out.data() + start + body_hash_at, body.hash.bytes.data(), 16);
}

namespace {

Status check_extents(const Body& body, std::uint64_t volume_blocks) {
  std::uint64_t payload = 0, next = 0;
  for (const Extent& e : body.extents) {
    if (e.kind != ExtentKind::data && e.kind != ExtentKind::zeros)
      return fail(Errc::corrupt, "record {}: unknown extent kind {}", body.header.first_lsn.v,
                  static_cast<int>(e.kind));
    if (e.blocks == 0 || e.lba.v < next || e.lba.v >= volume_blocks || e.blocks > volume_blocks - e.lba.v)
      return fail(Errc::corrupt, "record {}: extent {}+{} out of order or beyond the volume's {} blocks",
                  body.header.first_lsn.v, e.lba.v, e.blocks, volume_blocks);
    next = e.lba.v + e.blocks;
    if (e.kind == ExtentKind::data) payload += e.blocks;
  }
  if (payload != body.header.payload_blocks)
    return fail(Errc::corrupt, "record {}: extents hold {} payload blocks, header says {}",
                body.header.first_lsn.v, payload, body.header.payload_blocks);
  return {};
}

}  // namespace

Result<Body> decode_body_meta(ByteSpan meta, const Uuid& volume, std::uint64_t volume_blocks) {
  if (meta.size() < body_header_bytes || meta.size() > body_meta_bytes_max)
    return fail(Errc::corrupt, "body of {} bytes", meta.size());
  Reader r(meta);
  Body body;
  BodyHeader& h = body.header;
  if (r.get<std::uint32_t>() != body_magic) return fail(Errc::corrupt, "body without its magic number");
  auto version = r.get<std::uint16_t>();
  auto type = r.get<std::uint16_t>();
  r.get_into(h.volume.bytes);
  auto epoch = get_epoch(r);  // checked after the hash, which shows that the bytes are intact
  h.first_lsn.v = r.get<std::uint64_t>();
  h.count = r.get<std::uint32_t>();
  auto extents = r.get<std::uint32_t>();
  h.payload_blocks = r.get<std::uint32_t>();
  auto encoding = r.get<std::uint32_t>();
  r.get_into(h.prev_hash.bytes);
  r.get_into(h.payload_hash.bytes);
  auto aux = r.get<std::uint32_t>();
  auto features = r.get<std::uint32_t>();
  r.get_into(body.hash.bytes);
  if (hash_meta(meta) != body.hash)
    return fail(Errc::corrupt, "record {}: body hash does not match", h.first_lsn.v);
  if (h.volume != volume)
    return fail(Errc::corrupt, "record {}: of volume {}, not {}", h.first_lsn.v, h.volume.text(),
                volume.text());
  if (version != body_version)
    return fail(Errc::invalid,
                "record {}: format version {}, this release has {}: run the release that made the volume, or "
                "create it again",
                h.first_lsn.v, version, body_version);
  if (features & ~record_features_known)
    return fail(Errc::invalid, "record {}: needs features {:#x} that this release does not have",
                h.first_lsn.v, features & ~record_features_known);
  h.type = static_cast<RecordType>(type);
  bool is_epoch = h.type == RecordType::epoch;
  if (!is_epoch && h.type != RecordType::data)
    return fail(Errc::corrupt, "record {}: unknown type {}", h.first_lsn.v, type);
  if (encoding != 0)
    return fail(Errc::corrupt, "record {}: unknown payload encoding {}", h.first_lsn.v, encoding);
  if (extents > record_extents_max || h.payload_blocks > record_payload_blocks_max ||
      h.count != (is_epoch ? 1 : extents) || h.count == 0 || h.first_lsn.v == 0 ||
      h.first_lsn.v > UINT64_MAX - h.count || aux != (is_epoch ? epoch_change_bytes : 0) ||
      r.remaining() != extents * 16ull + h.payload_blocks * 4ull + aux)
    return fail(Errc::corrupt, "record {}: inconsistent counts", h.first_lsn.v);
  if (!epoch) return fail(Errc::corrupt, "record {}: {}", h.first_lsn.v, epoch.error().message);
  h.epoch = *epoch;
  body.extents.resize(extents);
  for (Extent& e : body.extents) {
    e.lba.v = r.get<std::uint64_t>();
    e.blocks = r.get<std::uint32_t>();
    e.kind = static_cast<ExtentKind>(r.get<std::uint16_t>());
    r.skip(2);
  }
  body.block_crc.resize(h.payload_blocks);
  for (std::uint32_t& crc : body.block_crc) crc = r.get<std::uint32_t>();
  if (is_epoch) {
    auto change = get_change(r);
    if (!change) return fail(Errc::corrupt, "record {}: {}", h.first_lsn.v, change.error().message);
    body.epoch_change = *change;
  }
  TL_CHECK(r.ok() && r.remaining() == 0);
  TL_TRY(check_extents(body, volume_blocks));
  return body;
}

Hash128 hash_payload(std::span<const std::byte* const> blocks) {
  static thread_local Hasher128 hasher;
  hasher.reset();
  for (const std::byte* b : blocks) hasher.update({b, block_size});
  return hasher.digest();
}

Status verify_payload(const Body& body, std::span<const std::byte* const> blocks) {
  if (blocks.size() != body.header.payload_blocks)
    return fail(Errc::corrupt, "record {}: {} payload blocks of {}", body.header.first_lsn.v, blocks.size(),
                body.header.payload_blocks);
  if (hash_payload(blocks) != body.header.payload_hash)
    return fail(Errc::corrupt, "record {}: payload hash does not match", body.header.first_lsn.v);
  return {};
}

void encode_frame(const FrameHeader& f, MutableByteSpan out) {
  TL_CHECK(out.size() == frame_header_bytes);
  std::memset(out.data(), 0, out.size());
  store_le(out.data(), frame_magic);
  store_le(out.data() + 8, f.pos.v);
  store_le(out.data() + 16, f.durable_lsn.v);
  store_le(out.data() + 24, f.commit_lsn.v);
  store_le(out.data() + 32, f.incarnation);
  store_le(out.data() + 40, f.total_blocks);
  store_le(out.data() + 44, f.meta_bytes);
  store_le(out.data() + 48, f.replica);
  // The CRC covers the volume's id, which is not stored.
  store_le(out.data() + 4, crc32c(out, crc32c(f.volume.bytes)));
}

Result<FrameHeader> decode_frame(ByteSpan in, const Uuid& volume) {
  TL_CHECK(in.size() >= frame_header_bytes);
  if (load_le<std::uint32_t>(in.data()) != frame_magic) return fail(Errc::not_found, "no record here");
  std::byte copy[frame_header_bytes];
  std::memcpy(copy, in.data(), sizeof copy);
  store_le(copy + 4, std::uint32_t{0});
  if (crc32c(copy, crc32c(volume.bytes)) != load_le<std::uint32_t>(in.data() + 4))
    return fail(Errc::corrupt, "record frame with a wrong CRC");
  FrameHeader f;
  f.pos.v = load_le<std::uint64_t>(copy + 8);
  f.durable_lsn.v = load_le<std::uint64_t>(copy + 16);
  f.commit_lsn.v = load_le<std::uint64_t>(copy + 24);
  f.incarnation = load_le<std::uint64_t>(copy + 32);
  f.total_blocks = load_le<std::uint32_t>(copy + 40);
  f.meta_bytes = load_le<std::uint32_t>(copy + 44);
  f.replica = load_le<std::uint32_t>(copy + 48);
  f.volume = volume;
  if (f.meta_bytes < body_header_bytes || f.meta_bytes > body_meta_bytes_max ||
      f.total_blocks < meta_blocks_for(f.meta_bytes) || f.total_blocks > record_blocks_max)
    return fail(Errc::corrupt, "record frame with impossible lengths");
  return f;
}

}  // namespace twinloft::repl
