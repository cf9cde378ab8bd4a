#include "twinloft/spool-repl/format/disk_state.h"

#include "twinloft/base/check.h"

namespace twinloft::repl {

using namespace disk_state;

namespace {

enum class Tag : std::uint8_t { consistent = 0, refilling = 1, damaged = 2, syncing = 3 };
// A bit for each optional field that is present.
constexpr unsigned has_of = 1, has_newest = 2, has_base = 4;

constexpr std::uint32_t head_bytes = 8;  // tag, present, reserved

// No LSN, in versions before 6.
constexpr Lsn none_v5{UINT64_MAX};

void put_head(Writer& w, Tag tag, unsigned present = 0) {
  w.put(static_cast<std::uint8_t>(tag));
  w.put(static_cast<std::uint8_t>(present));
  w.put_zeros(head_bytes - 2);
}

void put_point(Writer& w, const LogPoint& p) {
  put_epoch(w, p.epoch);
  w.put(p.lsn.v);
}

Result<LogPoint> get_point(Reader& r) {
  LogPoint p;
  TL_TRY_ASSIGN(p.epoch, get_epoch(r));
  p.lsn.v = r.get<std::uint64_t>();
  return p;
}

void put_fields(Writer& w, const Consistent&) {
  put_head(w, Tag::consistent);
}

void put_fields(Writer& w, const Refilling& s) {
  put_head(w, Tag::refilling);
  w.put(s.until.v);
  put_epoch(w, s.reported_in);
}

// An absent field is written as zeros, so that all fields have fixed offsets.
void put_fields(Writer& w, const Damaged& s) {
  put_head(w, Tag::damaged, (s.of ? has_of : 0u) | (s.newest ? has_newest : 0u));
  w.put(s.until.v);
  put_epoch(w, s.of.value_or(Epoch{}));
  put_point(w, s.base);
  put_entry(w, s.newest.value_or(EpochEntry{}), EntryForm::own_field);
}

void put_fields(Writer& w, const Syncing& s) {
  put_head(w, Tag::syncing, s.base ? has_base : 0u);
  put_epoch(w, s.source);
  put_point(w, s.base.value_or(LogPoint{}));
}

auto impossible(std::string_view what) {
  return fail(Errc::corrupt, "superblock with {}", what);
}

Result<DiskState> get_refilling(Reader& r) {
  Refilling s;
  s.until.v = r.get<std::uint64_t>();
  TL_TRY_ASSIGN(s.reported_in, get_epoch(r));
  if (s.until == Lsn{}) return impossible("missing writes up to LSN 0");
  return s;
}

Result<DiskState> get_damaged(Reader& r, unsigned present) {
  Damaged s;
  s.until.v = r.get<std::uint64_t>();
  TL_TRY_ASSIGN(Epoch of, get_epoch(r));
  TL_TRY_ASSIGN(s.base, get_point(r));
  TL_TRY_ASSIGN(EpochEntry newest, get_entry_if_known(r, EntryForm::own_field));
  if (present & has_of) s.of = of;
  if (present & has_newest) s.newest = newest;
  return s;
}

Result<DiskState> get_syncing(Reader& r, unsigned present) {
  Syncing s;
  TL_TRY_ASSIGN(s.source, get_epoch(r));
  TL_TRY_ASSIGN(LogPoint base, get_point(r));
  if (present & has_base) s.base = base;
  return s;
}

Result<DiskState> get_fields(Reader& r) {
  auto tag = Tag{r.get<std::uint8_t>()};
  auto present = r.get<std::uint8_t>();
  r.skip(head_bytes - 2);
  unsigned may_have = tag == Tag::damaged ? has_of | has_newest : tag == Tag::syncing ? has_base : 0u;
  if (present & ~may_have) return impossible("fields that its disk state does not have");
  switch (tag) {
    case Tag::consistent:
      return Consistent{};
    case Tag::refilling:
      return get_refilling(r);
    case Tag::damaged:
      return get_damaged(r, present);
    case Tag::syncing:
      return get_syncing(r, present);
  }
  return fail(Errc::corrupt, "superblock with a disk state {}, which does not exist",
              static_cast<unsigned>(tag));
}

}  // namespace

bool is_inconsistent(const DiskState& state) {
  return std::holds_alternative<Damaged>(state) || std::holds_alternative<Syncing>(state);
}

void put_disk_state(Writer& w, const DiskState& state) {
  std::vector<std::byte> bytes;
  Writer fields(bytes);
  std::visit([&](const auto& s) { put_fields(fields, s); }, state);
  TL_CHECK(bytes.size() <= disk_state_bytes);
  w.put_bytes(bytes);
  w.put_zeros(disk_state_bytes - bytes.size());
}

Result<DiskState> get_disk_state(Reader& r) {
  ByteSpan bytes = r.get_bytes(disk_state_bytes);
  if (!r.ok()) return fail(Errc::corrupt, "superblock too short");
  Reader fields(bytes);
  return get_fields(fields);
}

Result<DiskState> state_of(const DiskFieldsV5& f, const Uuid& volume) {
  bool no_base = f.base.lsn == none_v5;
  if (f.source.id.is_nil()) {
    if (f.until == Lsn{}) return Consistent{};
    if (f.until == none_v5) return impossible("a resync without an epoch");
    return Refilling{f.until, f.base.epoch};
  }
  if (f.until == none_v5) return Syncing{f.source, no_base ? std::nullopt : std::optional(f.base)};
  if (no_base) return impossible("a damaged journal without an end");
  Damaged s{f.until, f.source, f.newest, f.base};
  if (f.source.id == volume) s.of.reset();
  if (f.newest == EpochEntry{}) s.newest.reset();
  return s;
}

}  // namespace twinloft::repl
