// Disks that change what they hold: flipped bits, writes that land in the wrong place, sectors that cannot be read.
//
// It befalls a replica that is switched off, while the primary and so a member of the recorded set is whole: what is lost
// must then come back from there. The last record of a log is left alone: nobody can tell its loss from a torn write.
#include "node.h"
#include "twinloft/spool-repl/format/bitmap.h"
#include "twinloft/spool-repl/journal/recovery.h"
#include "twinloft/spool-repl/journal/superblock_store.h"

namespace twinloft::repl::sim {

namespace {

void flip(SimFile& file, std::uint64_t page_offset, SeededRandom& random) {
  std::byte bytes[block_size];
  (void)file.read(page_offset, bytes);
  bytes[random.below(block_size)] ^= static_cast<std::byte>(1 + random.below(255));
  file.write_durable(page_offset, {Page::of(bytes)});
}

bool is_damaged(SimFile& journal) {
  auto loaded = journal::load_superblock(journal);
  auto scan = loaded ? journal::scan_journal(journal, loaded->superblock) : fail(Errc::corrupt, "no superblock");
  return !scan || scan->damage;
}

// A page of the records that recovery would find, whose loss it would notice; nullopt: there is none.
std::optional<std::uint64_t> victim(const SimFile& journal, SeededRandom& random) {
  SimFile copy = journal;
  auto loaded = journal::load_superblock(copy);
  if (!loaded) return std::nullopt;
  const Superblock& sb = loaded->superblock;
  auto scan = journal::scan_journal(copy, sb);
  if (!scan || scan->damage || scan->log.records.empty()) return std::nullopt;
  const StoredRecord& r = scan->log.records[random.below(scan->log.records.size())];
  std::uint64_t at = sb.ring_offset + r.pos.v % sb.ring_bytes + random.below(r.total_blocks) * block_size;
  std::byte garbage[block_size];
  std::fill(std::begin(garbage), std::end(garbage), std::byte{0xa5});
  copy.write_durable(at, {Page::of(garbage)});
  return is_damaged(copy) ? std::optional(at) : std::nullopt;
}

}  // namespace

// The client's primary is the one that counts, and not one that another has taken the place of.
bool Cluster::primary_holds_all() {
  Node* p = primary();
  if (!p) return false;
  ReplicaSet set = external_ && arbiter_.value ? arbiter_.value->in_sync : p->core->status().in_sync;
  return (set & set_of(p->id)) != 0 && (!external_ || (arbiter_.value && arbiter_.value->writer == p->id));
}

void Cluster::rot() {
  Node& n = *nodes_[random_.below(nodes_.size())];
  auto lacks = [](auto& o) { return o->replaced || o->damaged; };
  bool others_have_it = &n != primary() && primary_holds_all() && std::none_of(nodes_.begin(), nodes_.end(), lacks);
  if (!n.alive() || !(by_force_ || others_have_it) || n.damaged) return;
  before_loss(n);
  crash(n, true);
  std::uint64_t kind = 1 + random_.below(6);
  if (kind == 1) {
    coverage_.hit("fault: a bitmap rots");
    flip(n.journal, journal_reserved_bytes + random_.below(bitmap_slots) * block_size, random_);
  } else if (kind == 6) {
    // Of the blocks in it nothing is known then, so that nothing else may be wrong with them.
    coverage_.hit("fault: digests rot");
    n.digests_rotted = true;
    n.data.make_right();
    flip(n.journal, journal_reserved_bytes + (bitmap_slots + random_.below(digest_pages(volume_blocks_))) * block_size, random_);
  } else if (auto at = victim(n.journal, random_)) {
    note(fmt::format("replica {}: its journal is damaged at {}", n.id, *at));
    if (kind == 2) {
      coverage_.hit("fault: a sector of the journal cannot be read");
      n.journal.make_unreadable(*at);
    } else if (kind == 3) {
      coverage_.hit("fault: a write lands in the wrong place of the journal");
      auto from = victim(n.journal, random_);
      std::byte bytes[block_size];
      (void)n.journal.read(from ? *from : *at, bytes);
      bool other = from && !Page::of(bytes).same(n.journal.page(*at / block_size));  // a write fills its blocks alike
      if (other) n.journal.write_durable(*at, {Page::of(bytes)});
      else flip(n.journal, *at, random_);
    } else {
      coverage_.hit("fault: the journal rots");
      flip(n.journal, *at, random_);
    }
    // What changes in the unused rest of a block is of no account.
    if (is_damaged(n.journal)) n.lost_disk(now_us_), n.damaged = true;
  }
  revive_later(n);
}

}  // namespace twinloft::repl::sim
