// Cut records never come back: neither an archived tail, nor records that a start found after the end of its
// log.
//
// Judged by the bytes on the disk alone. A record that another replica has sent again since may be there.
#include "node.h"
#include "twinloft/spool-repl/journal/recovery.h"
#include "twinloft/spool-repl/journal/superblock_store.h"

namespace twinloft::repl::sim {

// The record whose frame is there, if any. whole: all bytes that may be read.
std::optional<Cluster::RecordKey> Cluster::record_in(ByteSpan whole) const {
  auto frame = decode_frame(whole.first(block_size), volume_uuid);
  if (!frame || frame_header_bytes + frame->meta_bytes > whole.size()) return std::nullopt;
  auto body = decode_body_meta(whole.subspan(frame_header_bytes, frame->meta_bytes), volume_uuid,
                               volume_blocks_);
  if (!body) return std::nullopt;
  return RecordKey{body->header.epoch.id, body->mark().lsn.v};
}

// The records are still in the log. They count as erased once a check of the disk does not find them.
void Cluster::note_archived(const Node& n, ByteSpan record) {
  auto key = record_in(record);
  if (!key) violated(fmt::format("replica {} archives a tail, and a part of it is not a record", n.id));
  cut_off_[n.index].emplace(*key, false);
}

// before: the journal as this start has found it. Records in it after the end of the log count as erased from
// now on.
void Cluster::note_dropped(const Node& n, SimFile before, const RecoveredLog& log) {
  auto loaded = journal::load_superblock(before);
  if (!loaded) return;
  const Superblock& sb = loaded->superblock;
  Lsn last = log.records.empty() ? log.superblock.tail.lsn : log.records.back().body.mark().lsn;
  std::vector<std::byte> bytes(std::uint64_t{record_meta_blocks_max} * block_size);
  for (std::uint64_t at = 0; at < sb.ring_bytes; at += block_size) {
    const Page& page = before.page((sb.ring_offset + at) / block_size);
    auto frame = decode_frame({page.bytes(), block_size}, sb.volume);
    if (!frame || frame->replica != n.id || frame->pos.v % sb.ring_bytes != at) continue;
    std::uint64_t part = std::min<std::uint64_t>(
        std::uint64_t{meta_blocks_for(frame->meta_bytes)} * block_size, sb.ring_bytes - at);
    if (!before.read(sb.ring_offset + at, MutableByteSpan(bytes).first(part))) continue;
    auto key = record_in(ByteSpan(bytes).first(part));
    if (!key || key->lsn <= last.v) continue;
    cut_off_[n.index][*key] = true;
    coverage_.hit("cut off: after the end that a start has found");
  }
}

void Cluster::note_received(const Node& to, const PeerMessage& message) {
  auto& cut = cut_off_[to.index];
  auto* m = std::get_if<RecordMessage>(&message);
  if (!m || cut.empty()) return;
  auto body = decode_body_meta(m->meta, volume_uuid, volume_blocks_);
  if (body) cut.erase({body->header.epoch.id, body->mark().lsn.v});
}

// Whether both places have the last superblock. With the first place only, it may still be lost, and the
// records that it cut come back. No other replica relies on it yet.
bool Cluster::superblock_is_settled(const Node& n) {
  std::uint64_t generation[2] = {0, 1};
  for (int copy : {0, 1})
    if (auto sb = decode_superblock(
            {n.journal.page(superblock_offset[copy] / block_size).bytes(), block_size});
        sb)
      generation[copy] = sb->generation;
  return generation[0] == generation[1];
}

void Cluster::check_cut_off(const Node& n, const RecoveredLog& log) {
  auto& cut = cut_off_[n.index];
  if (cut.empty()) return;
  bool settled = superblock_is_settled(n);
  std::set<RecordKey> there;
  for (const StoredRecord& r : log.records) there.insert({r.body.header.epoch.id, r.body.mark().lsn.v});
  for (auto& [key, gone] : cut) {
    bool found = there.contains(key);
    if (found && gone)
      violated(fmt::format("replica {}: the record at LSN {} was cut off, and has come back", n.id, key.lsn));
    if (found || gone || !settled) continue;
    if (key.lsn > log.superblock.tail.lsn.v)
      coverage_.hit("cut off: a tail");  // it was not passed by a checkpoint
    gone = true;
  }
}

}  // namespace twinloft::repl::sim
