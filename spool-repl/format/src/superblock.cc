#include "twinloft/spool-repl/format/superblock.h"

#include "twinloft/base/check.h"
#include "twinloft/base/crc32c.h"
#include "twinloft/spool-repl/format/bitmap.h"
#include "twinloft/spool-repl/format/digest.h"

namespace twinloft::repl {

namespace {

constexpr std::uint64_t superblock_magic = 0x314b4c4253544c54;  // "TLTSBLK1"
constexpr std::uint64_t label_magic = 0x314c42414c544c54;       // "TLTLABL1"
constexpr std::uint32_t superblock_version = 6, superblock_version_oldest = 4;
constexpr std::uint32_t label_version = 1;
constexpr std::uint64_t features_known = 0;

// Superblock and label begin with a magic number, a CRC32C of the block with this field zero, and a version.
void finish(std::vector<std::byte>& bytes, MutableByteSpan out) {
  TL_CHECK(bytes.size() <= block_size && out.size() == block_size);
  bytes.resize(block_size);
  store_le(bytes.data() + 8, crc32c(bytes));
  std::memcpy(out.data(), bytes.data(), block_size);
}

// Returns the version of the block.
Result<std::uint32_t> check_envelope(ByteSpan in, std::uint64_t magic, std::uint32_t oldest,
                                     std::uint32_t newest, const char* what) {
  TL_CHECK(in.size() == block_size);
  if (load_le<std::uint64_t>(in.data()) != magic) return fail(Errc::not_found, "no {} here", what);
  std::vector<std::byte> copy(in.begin(), in.end());
  store_le(copy.data() + 8, std::uint32_t{0});
  if (crc32c(copy) != load_le<std::uint32_t>(in.data() + 8))
    return fail(Errc::corrupt, "{} with a wrong CRC", what);
  auto version = load_le<std::uint32_t>(in.data() + 12);
  // The block is intact, but of another version. With an error "damaged", the operator could run `create`.
  if (version < oldest || version > newest)
    return fail(Errc::invalid,
                "{} of format version {}, this release has {}: run the release that made the volume", what,
                version, newest);
  return version;
}

Status check_geometry(const Superblock& sb) {
  auto aligned = [](std::uint64_t v) { return v % block_size == 0; };
  if (sb.feature_incompat & ~features_known)
    return fail(Errc::invalid, "superblock needs features {:#x} that this release does not have",
                sb.feature_incompat & ~features_known);
  if (sb.volume.is_nil() || sb.replica == 0 || sb.replica > replica_id_max || sb.volume_blocks == 0)
    return fail(Errc::corrupt, "superblock without a volume, a replica id or a size");
  if (!aligned(sb.ring_offset) || !aligned(sb.ring_bytes) || sb.ring_bytes < journal_ring_bytes_min ||
      !aligned(sb.tail_pos.v) || !aligned(sb.bitmap_offset) || sb.volume_blocks > UINT32_MAX ||
      sb.bitmap_bytes != bitmap_pages(sb.volume_blocks) * block_size || !aligned(sb.digest_offset) ||
      (sb.digest_bytes != 0 && sb.digest_bytes != digest_pages(sb.volume_blocks) * block_size))
    return fail(Errc::corrupt, "superblock with an impossible layout");
  return {};
}

// ---- epochs and split brains

// The form of the entries in a version.
EntryForm form_of(std::uint32_t version) {
  return version < 6 ? EntryForm::in_flags : EntryForm::own_field;
}

// Of fixed size, so that the next fields have fixed offsets.
void put_padded_table(Writer& w, const EpochTable& table) {
  put_table(w, table, EntryForm::own_field);
  w.put_zeros((epoch_table_max - table.size()) * entry_bytes(EntryForm::own_field));
}

Result<EpochTable> get_padded_table(Reader& r, EntryForm form) {
  TL_TRY_ASSIGN(EpochTable table, get_table(r, form));
  r.skip((epoch_table_max - table.size()) * entry_bytes(form));
  return table;
}

void put_split_brains(Writer& w, const std::vector<SplitBrain>& all) {
  TL_CHECK(all.size() <= split_brains_max);
  w.put(static_cast<std::uint32_t>(all.size()));
  w.put(std::uint32_t{0});
  for (const SplitBrain& s : all) {
    w.put(s.with);
    w.put(std::uint32_t{s.parted.has_value()});
    w.put(s.parted.value_or(Lsn{}).v);
  }
}

// Before version 6, a `parted` with all bits set means unknown.
Result<std::vector<SplitBrain>> get_split_brains(Reader& r, std::uint32_t version) {
  auto count = r.get<std::uint32_t>();
  r.skip(4);
  if (count > split_brains_max) return fail(Errc::corrupt, "superblock with {} split brains", count);
  std::vector<SplitBrain> all(count);
  for (SplitBrain& s : all) {
    s.with = r.get<ReplicaId>();
    bool known = r.get<std::uint32_t>() != 0;
    Lsn parted{r.get<std::uint64_t>()};
    if (version < 6) known = parted.v != UINT64_MAX;
    if (known) s.parted = parted;
    if (s.with == 0 || s.with > replica_id_max)
      return fail(Errc::corrupt, "superblock with a split brain with replica {}", s.with);
  }
  return all;
}

// ---- versions 4 and 5

Result<EpochEntry> get_entry_v4(Reader& r, bool writer_known) {
  EpochEntry e;
  TL_TRY_ASSIGN(e.epoch, get_epoch(r));
  e.start.v = r.get<std::uint64_t>();
  e.in_sync = r.get<ReplicaSet>();
  e.writer = r.get<ReplicaId>();
  set_flags(e, r.get<std::uint32_t>());
  if (!r.ok()) return fail(Errc::corrupt, "superblock too short");
  TL_TRY(check_entry(e, writer_known));
  return e;
}

// A full table may have lost promotions by force, of any replica.
Result<EpochTable> get_table_v4(Reader& r) {
  auto epochs = r.get<std::uint32_t>();
  r.skip(4);
  if (epochs > epoch_table_max) return fail(Errc::corrupt, "superblock with {} epochs", epochs);
  EpochTable table;
  for (std::uint32_t i = 0; i < epochs; ++i) {
    TL_TRY_ASSIGN(EpochEntry e, get_entry_v4(r, true));
    table.push_back(e);
  }
  if (epochs == epoch_table_max && table.front().epoch.counter > 1)
    table.forgotten_force = {{table.front().epoch.counter - 1, {}}, {}, ~ReplicaSet{0}};
  return table;
}

Result<DiskState> get_disk_state_v5(Reader& r, std::uint32_t version, const Uuid& volume) {
  DiskFieldsV5 f;
  TL_TRY_ASSIGN(f.source, get_epoch(r));
  f.until.v = r.get<std::uint64_t>();
  TL_TRY_ASSIGN(f.base.epoch, get_epoch(r));
  f.base.lsn.v = r.get<std::uint64_t>();
  TL_TRY_ASSIGN(f.newest, version == 4 ? get_entry_v4(r, false) : get_entry_if_known(r));
  return state_of(f, volume);
}

}  // namespace

void encode_superblock(const Superblock& sb, MutableByteSpan out) {
  std::vector<std::byte> bytes;
  bytes.reserve(block_size);
  Writer w(bytes);
  w.put(superblock_magic);
  w.put(std::uint32_t{0});
  w.put(superblock_version);
  w.put(sb.generation);
  w.put(sb.feature_incompat);
  w.put_bytes(sb.volume.bytes);
  w.put(sb.replica);
  w.put(sb.flags);
  w.put(sb.volume_blocks);
  w.put(sb.bitmap_offset);
  w.put(sb.bitmap_bytes);
  w.put(sb.digest_offset);
  w.put(sb.digest_bytes);
  w.put(sb.ring_offset);
  w.put(sb.ring_bytes);
  w.put(sb.tail_pos.v);
  w.put(sb.tail.lsn.v);
  w.put_bytes(sb.tail.hash.bytes);
  put_epoch(w, sb.tail_epoch);
  w.put(sb.commit.v);
  w.put(sb.incarnation);
  w.put(sb.cut_lsn.v);
  w.put(sb.cut_incarnation);
  put_disk_state(w, sb.disk);
  for (const DirtySlot& d : sb.dirty) {
    w.put(d.peer);
    w.put(std::uint32_t{d.known});
    put_epoch(w, d.since_epoch);
    w.put(d.since.lsn.v);
    w.put_bytes(d.since.hash.bytes);
  }
  put_padded_table(w, sb.epochs);
  put_split_brains(w, sb.split_brains);
  w.put(sb.arbiter);
  put_entry(w, sb.cut_for, EntryForm::own_field);
  finish(bytes, out);
}

Result<Superblock> decode_superblock(ByteSpan in) {
  TL_TRY_ASSIGN(std::uint32_t version, check_envelope(in, superblock_magic, superblock_version_oldest,
                                                      superblock_version, "superblock"));
  Reader r(in);
  r.skip(16);
  Superblock sb;
  sb.generation = r.get<std::uint64_t>();
  sb.feature_incompat = r.get<std::uint64_t>();
  r.get_into(sb.volume.bytes);
  sb.replica = r.get<std::uint32_t>();
  sb.flags = r.get<std::uint32_t>();
  sb.volume_blocks = r.get<std::uint64_t>();
  sb.bitmap_offset = r.get<std::uint64_t>();
  sb.bitmap_bytes = r.get<std::uint64_t>();
  sb.digest_offset = r.get<std::uint64_t>();
  sb.digest_bytes = r.get<std::uint64_t>();
  sb.ring_offset = r.get<std::uint64_t>();
  sb.ring_bytes = r.get<std::uint64_t>();
  sb.tail_pos.v = r.get<std::uint64_t>();
  sb.tail.lsn.v = r.get<std::uint64_t>();
  r.get_into(sb.tail.hash.bytes);
  TL_TRY_ASSIGN(sb.tail_epoch, get_epoch(r));
  sb.commit.v = r.get<std::uint64_t>();
  sb.incarnation = r.get<std::uint64_t>();
  sb.cut_lsn.v = r.get<std::uint64_t>();
  sb.cut_incarnation = r.get<std::uint64_t>();
  TL_TRY_ASSIGN(sb.disk, version < 6 ? get_disk_state_v5(r, version, sb.volume) : get_disk_state(r));
  for (DirtySlot& d : sb.dirty) {
    d.peer = r.get<std::uint32_t>();
    d.known = r.get<std::uint32_t>() != 0;
    if (d.peer > replica_id_max) return fail(Errc::corrupt, "superblock with a bitmap of replica {}", d.peer);
    TL_TRY_ASSIGN(d.since_epoch, get_epoch(r));
    d.since.lsn.v = r.get<std::uint64_t>();
    r.get_into(d.since.hash.bytes);
  }
  TL_TRY_ASSIGN(sb.epochs, version == 4 ? get_table_v4(r) : get_padded_table(r, form_of(version)));
  if (version > 4) {
    TL_TRY_ASSIGN(sb.split_brains, get_split_brains(r, version));
    sb.arbiter = r.get<std::uint64_t>();
    TL_TRY_ASSIGN(sb.cut_for, get_entry_if_known(r, form_of(version)));
  }
  if (!r.ok()) return fail(Errc::corrupt, "superblock too short");
  TL_TRY(check_geometry(sb));
  return sb;
}

void encode_data_label(const DataLabel& label, MutableByteSpan out) {
  std::vector<std::byte> bytes;
  Writer w(bytes);
  w.put(label_magic);
  w.put(std::uint32_t{0});
  w.put(label_version);
  w.put_bytes(label.volume.bytes);
  w.put(label.replica);
  w.put(std::uint32_t{0});
  w.put(label.volume_blocks);
  finish(bytes, out);
}

Result<DataLabel> decode_data_label(ByteSpan in) {
  TL_TRY(check_envelope(in, label_magic, label_version, label_version, "data label"));
  Reader r(in);
  r.skip(16);
  DataLabel label;
  r.get_into(label.volume.bytes);
  label.replica = r.get<std::uint32_t>();
  r.skip(4);
  label.volume_blocks = r.get<std::uint64_t>();
  return label;
}

}  // namespace twinloft::repl
