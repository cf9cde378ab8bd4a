// Disks that corrupt their content: flipped bits, writes to the wrong place, sectors that cannot be read.
//
// The victim is switched off, and the primary has everything, as a member of the recorded set. So the lost
// content must come back from there. A record that is not proven durable is left alone, because its loss
// would look like a torn write.
//
// The formats alone decide where the damage is and whether it must be noticed (journal_view.h). Recovery has
// no part in that.
#include "journal_view.h"
#include "node.h"
#include "twinloft/spool-repl/format/bitmap.h"

namespace twinloft::repl::sim {

namespace {

void flip(SimFile& file, std::uint64_t page_offset, std::uint64_t byte, SeededRandom& random) {
  std::byte bytes[block_size];
  file.page(page_offset / block_size).read(bytes);
  bytes[byte] ^= static_cast<std::byte>(1 + random.below(255));
  file.write_durable(page_offset, {Page::of(bytes)});
}
void flip(SimFile& file, std::uint64_t page_offset, SeededRandom& random) {
  flip(file, page_offset, random.below(block_size), random);
}

struct Place {
  std::uint64_t page;  // byte offset on the journal device
  const LiveRecord* record;
  std::uint64_t in_record;  // byte offset in the record
};

// A page of a proven record; nullopt: there is none.
std::optional<Place> victim(const std::vector<LiveRecord>& records, SeededRandom& random) {
  std::vector<const LiveRecord*> proven;
  for (const LiveRecord& r : records)
    if (r.proven) proven.push_back(&r);
  if (proven.empty()) return std::nullopt;
  const LiveRecord& r = *proven[random.below(proven.size())];
  std::uint64_t at = random.below(r.frame.total_blocks) * block_size;
  return Place{r.offset + at, &r, at};
}

}  // namespace

// True if the mounted primary counts, and no other replica has taken its place.
bool Cluster::primary_holds_all() {
  Node* p = primary();
  if (!p) return false;
  ReplicaSet set = external_ && arbiter_.value ? arbiter_.value->in_sync : p->core->status().in_sync;
  return (set & set_of(p->id)) != 0 && (!external_ || (arbiter_.value && arbiter_.value->writer == p->id));
}

void Cluster::rot() {
  Node& n = *nodes_[random_.below(nodes_.size())];
  auto lacks = [](auto& o) { return o->replaced || o->damaged; };
  bool others_have_it = &n != primary() && primary_holds_all() &&
                        std::none_of(nodes_.begin(), nodes_.end(), lacks);
  if (!n.alive() || !(by_force_ || others_have_it) || n.damaged) return;
  before_loss(n);
  crash(n, true);
  std::uint64_t kind = 1 + random_.below(7);
  if (kind == 1) {
    coverage_.hit("fault: a bitmap rots");
    flip(n.journal, journal_reserved_bytes + random_.below(bitmap_slots) * block_size, random_);
  } else if (kind == 6) {
    // Nothing is known of these blocks then, so no other fault may hit them.
    coverage_.hit("fault: digests rot");
    n.digests_rotted = true;
    n.data.make_right();
    flip(n.journal,
         journal_reserved_bytes + (bitmap_slots + random_.below(digest_pages(volume_blocks_))) * block_size,
         random_);
  } else if (kind == 7) {
    rot_beside_the_log(n);
  } else {
    rot_record(n, kind);
  }
  revive_later(n);
}

void Cluster::rot_record(Node& n, std::uint64_t kind) {
  auto records = records_in(n.journal);
  auto at = victim(records, random_);
  if (!at) return;
  note(fmt::format("replica {}: its journal is damaged at {}", n.id, at->page));
  bool counts = true;
  if (kind == 2) {
    coverage_.hit("fault: a sector of the journal cannot be read");
    n.journal.make_unreadable(at->page);
  } else if (kind == 3) {
    Place from = *victim(records, random_);
    Page there = n.journal.page(from.page / block_size);
    counts = !there.same(n.journal.page(at->page / block_size));  // a write has equal blocks
    if (counts) coverage_.hit("fault: a write lands in the wrong place of the journal");
    n.journal.write_durable(at->page, {there});
  } else {
    std::uint64_t byte = random_.below(block_size);
    counts = at->record->counts(at->in_record + byte);
    coverage_.hit(counts ? "fault: the journal rots" : "fault: the journal rots outside of records");
    flip(n.journal, at->page, byte, random_);
  }
  if (counts) n.lost_disk(now_us_), n.damaged = true;
}

// Before the tail or after the last record: old frames and zeros. This loses nothing.
void Cluster::rot_beside_the_log(Node& n) {
  auto sb = superblock_in(n.journal);
  auto records = records_in(n.journal);
  std::uint64_t page = random_.below(sb->ring_bytes / block_size) * block_size + sb->ring_offset;
  for (const LiveRecord& r : records)
    if (page >= r.offset && page < r.offset + r.bytes()) return;
  coverage_.hit("fault: the journal rots outside of records");
  note(fmt::format("replica {}: its journal is damaged at {}, outside of records", n.id, page));
  flip(n.journal, page, random_);
}

}  // namespace twinloft::repl::sim
