#include "twinloft/spool-repl/format/epoch.h"

#include <algorithm>
#include <cstring>

#include "twinloft/base/check.h"

namespace twinloft::repl {

namespace {

// In the form in_flags, the bits above the flags are `granted_after`.
constexpr unsigned flag_bits = 3;
constexpr std::uint32_t mark_max = UINT32_MAX >> flag_bits;

std::uint32_t flags_with_mark(std::uint32_t flags, EpochMark granted_after) {
  TL_CHECK(flags >> flag_bits == 0 && granted_after.v <= mark_max);
  return flags | granted_after.v << flag_bits;
}

}  // namespace

EpochMark mark_of(const Epoch& epoch) {
  if (epoch.id.is_nil()) return {};
  std::uint32_t bits;
  std::memcpy(&bits, epoch.id.bytes.data(), sizeof bits);
  return {std::max<std::uint32_t>(bits >> flag_bits, 1)};
}

bool comes_after(const EpochEntry& entry, const Epoch& before) {
  return !before.id.is_nil() && entry.granted_after == mark_of(before);
}

EpochEntry entry_of(const EpochChange& change, Lsn start) {
  return {change.epoch, start, change.writer, change.in_sync, change.flags, change.granted_after};
}

// ---- the table

void EpochTable::note(const EpochEntry& entry) {
  EpochEntry added = entry;
  for (const EpochEntry& e : *this)
    if (e.epoch == entry.epoch) added.flags |= e.flags & epoch_lossy;
  std::erase_if(*this, [&](const EpochEntry& e) { return e.start >= entry.start; });
  if (size() == epoch_table_max) {
    const EpochEntry& oldest = front();
    if (oldest.flags & epoch_by_force) {
      forgotten_force.epoch = oldest.epoch;
      forgotten_force.start = oldest.start;
      forgotten_force.writers |= set_of(oldest.writer);
    }
    (*this)[1].flags |= oldest.flags & epoch_lossy;
    erase(begin());
  }
  push_back(added);
}

bool EpochTable::holds(const Epoch& epoch) const {
  return std::any_of(begin(), end(), [&](const EpochEntry& e) { return e.epoch == epoch; });
}

bool EpochTable::by_force_behind(Lsn lsn) const {
  if (forgotten_force.writers != 0 && forgotten_force.start > lsn) return true;
  return std::any_of(begin(), end(),
                     [&](const EpochEntry& e) { return e.start > lsn && (e.flags & epoch_by_force); });
}

// If the newest forgotten promotion by force is cut off too, the earlier ones are no longer known. Then any
// epoch up to its counter may be one.
void EpochTable::cut_behind(Lsn lsn) {
  std::erase_if(*this, [&](const EpochEntry& e) { return e.start > lsn; });
  if (forgotten_force.start <= lsn) return;
  std::uint64_t before = forgotten_force.epoch.counter;
  forgotten_force = {{before > 0 ? before - 1 : 0, {}}, {}, forgotten_force.writers};
}

ReplicaSet forcers_unknown_to(const EpochTable& here, const EpochTable& there) {
  const ForgottenForce& force = there.forgotten_force;
  if (force.writers == 0) return 0;
  bool known = false;
  if (force.epoch.id.is_nil()) {
    known = !here.empty() && here.back().epoch.counter > force.epoch.counter;
  } else {
    known = here.forgotten_force.epoch == force.epoch || here.holds(force.epoch);
  }
  return known ? 0 : force.writers;
}

// ---- bytes

void put_epoch(Writer& w, const Epoch& e) {
  w.put(e.counter);
  w.put_bytes(e.id.bytes);
}

void put_change(Writer& w, const EpochChange& c) {
  put_epoch(w, c.epoch);
  w.put(c.writer);
  w.put(c.in_sync);
  w.put(flags_with_mark(c.flags, c.granted_after));
}

void put_entry(Writer& w, const EpochEntry& e, EntryForm form) {
  if (form == EntryForm::in_flags) {
    put_change(w, {e.epoch, e.writer, e.in_sync, e.flags, e.granted_after});
  } else {
    put_epoch(w, e.epoch);
    w.put(e.writer);
    w.put(e.in_sync);
    w.put(e.flags);
    w.put(e.granted_after.v);
  }
  w.put(e.start.v);
}

void put_forgotten_force(Writer& w, const ForgottenForce& force) {
  put_epoch(w, force.epoch);
  w.put(force.start.v);
  w.put(force.writers);
}

void put_table(Writer& w, const EpochTable& table, EntryForm form) {
  TL_CHECK(table.size() <= epoch_table_max);
  w.put(static_cast<std::uint32_t>(table.size()));
  for (const EpochEntry& e : table) put_entry(w, e, form);
  put_forgotten_force(w, table.forgotten_force);
}

Result<Epoch> get_epoch(Reader& r) {
  Epoch e;
  e.counter = r.get<std::uint64_t>();
  r.get_into(e.id.bytes);
  if (!r.ok()) return fail(Errc::corrupt, "a truncated epoch");
  if (e.counter > epoch_counter_max)
    return fail(Errc::corrupt, "an epoch counter of {}: the limit is {}", e.counter, epoch_counter_max);
  return e;
}

Status check_entry(const EpochEntry& e, bool writer_known) {
  if (e.writer > replica_id_max || (e.writer == 0 && writer_known))
    return fail(Errc::corrupt, "an epoch of replica {}: ids are 1 to {}", e.writer, replica_id_max);
  return {};
}

void set_flags(EpochEntry& e, std::uint32_t in_flags) {
  e.flags = in_flags & ((std::uint32_t{1} << flag_bits) - 1);
  e.granted_after = {in_flags >> flag_bits};
}

namespace {

Result<EpochEntry> take_change(Reader& r, bool writer_known, EntryForm form) {
  EpochEntry e;
  TL_TRY_ASSIGN(e.epoch, get_epoch(r));
  e.writer = r.get<ReplicaId>();
  e.in_sync = r.get<ReplicaSet>();
  auto flags = r.get<std::uint32_t>();
  if (form == EntryForm::in_flags) {
    set_flags(e, flags);
  } else {
    e.flags = flags;
    e.granted_after = {r.get<std::uint32_t>()};
  }
  if (!r.ok()) return fail(Errc::corrupt, "a truncated epoch");
  if (e.flags >> flag_bits != 0 || e.granted_after.v > mark_max)
    return fail(Errc::corrupt, "an epoch with flags {:#x}, granted after {:#x}", e.flags, e.granted_after.v);
  TL_TRY(check_entry(e, writer_known));
  return e;
}

Result<EpochEntry> take_entry(Reader& r, bool writer_known, EntryForm form) {
  TL_TRY_ASSIGN(EpochEntry e, take_change(r, writer_known, form));
  e.start.v = r.get<std::uint64_t>();
  if (!r.ok()) return fail(Errc::corrupt, "a truncated epoch");
  return e;
}

}  // namespace

Result<EpochChange> get_change(Reader& r) {
  TL_TRY_ASSIGN(EpochEntry e, take_change(r, true, EntryForm::in_flags));
  return EpochChange{e.epoch, e.writer, e.in_sync, e.flags, e.granted_after};
}

Result<EpochEntry> get_entry(Reader& r, EntryForm form) {
  return take_entry(r, true, form);
}
Result<EpochEntry> get_entry_if_known(Reader& r, EntryForm form) {
  return take_entry(r, false, form);
}

Result<ForgottenForce> get_forgotten_force(Reader& r) {
  ForgottenForce force;
  TL_TRY_ASSIGN(force.epoch, get_epoch(r));
  force.start.v = r.get<std::uint64_t>();
  force.writers = r.get<ReplicaSet>();
  if (!r.ok()) return fail(Errc::corrupt, "a truncated epoch");
  return force;
}

Result<EpochTable> get_table(Reader& r, EntryForm form) {
  auto count = r.get<std::uint32_t>();
  if (!r.ok() || count > epoch_table_max) return fail(Errc::corrupt, "a table of {} epochs", count);
  EpochTable table;
  for (std::uint32_t i = 0; i < count; ++i) {
    TL_TRY_ASSIGN(EpochEntry e, get_entry(r, form));
    table.push_back(e);
  }
  TL_TRY_ASSIGN(table.forgotten_force, get_forgotten_force(r));
  return table;
}

}  // namespace twinloft::repl
