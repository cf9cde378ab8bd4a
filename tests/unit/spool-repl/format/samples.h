// One small example of everything that spool-repl stores or sends. The golden files hold these examples.
#pragma once

#include <vector>

#include "twinloft/spool-repl/format/digest.h"
#include "twinloft/spool-repl/format/record.h"
#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/format/wire.h"

namespace twinloft::repl::samples {

using Bytes = std::vector<std::byte>;

inline constexpr std::uint64_t volume_blocks = 1000;
inline const Uuid volume = Uuid::parse("0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff").value();
inline const Uuid other_volume = Uuid::parse("11111111-2222-4333-8444-555555555555").value();
inline const Epoch epoch{7, Uuid::parse("aabbccdd-0011-4223-8445-66778899aabb").value()};
inline const Epoch older_epoch{6, Uuid::parse("99999999-0011-4223-8445-66778899aabb").value()};

inline Hash128 hash_of(std::string_view text) {
  return hash128(as_bytes(text));
}
inline LogMark mark(std::uint64_t lsn) {
  return {Lsn{lsn}, hash_of("mark" + std::to_string(lsn))};
}

inline Bytes block(int value) {
  return Bytes(block_size, static_cast<std::byte>(value));
}

inline std::vector<const std::byte*> pointers(const std::vector<Bytes>& blocks) {
  std::vector<const std::byte*> out;
  for (const Bytes& b : blocks) out.push_back(b.data());
  return out;
}

// A data record with any extents. The payload is one value for each block.
inline Body data_body(std::vector<Extent> extents, const std::vector<Bytes>& payload) {
  Body b;
  auto blocks = pointers(payload);
  b.header = {RecordType::data,
              volume,
              epoch,
              Lsn{41},
              static_cast<std::uint32_t>(extents.size()),
              hash_of("before"),
              hash_payload(blocks),
              static_cast<std::uint32_t>(payload.size())};
  b.extents = std::move(extents);
  std::size_t at = 0;
  for (const Extent& e : b.extents)
    if (e.kind == ExtentKind::data)
      for (std::uint32_t i = 0; i < e.blocks && at < payload.size(); ++i, ++at)
        b.block_crc.push_back(block_crc(volume, e.lba + i, payload[at]));
  b.block_crc.resize(payload.size());
  return b;
}

inline Body small_body() {
  return data_body(
      {{Lba{5}, 1, ExtentKind::data}, {Lba{6}, 10, ExtentKind::zeros}, {Lba{900}, 1, ExtentKind::data}},
      {block(0xa1), block(0xa2)});
}

inline Body epoch_body() {
  Body b;
  b.header = {RecordType::epoch, volume, epoch, Lsn{1}, 1, genesis_hash(volume, volume_blocks),
              hash_payload({}),  0};
  b.epoch_change = {epoch, 2, 0b11};
  return b;
}

inline Bytes encoded(Body body) {
  Bytes out;
  encode_body_meta(body, out);
  return out;
}

inline FrameHeader frame() {
  return {JournalPos{3 * 4096}, Lsn{40}, Lsn{39}, 12, 3, 184, 2, volume};
}
inline Bytes encoded(const FrameHeader& f) {
  Bytes out(frame_header_bytes);
  encode_frame(f, out);
  return out;
}

inline const ForgottenForce forgotten{{5, other_volume}, Lsn{2}, 0b101};
inline EpochTable table(std::vector<EpochEntry> entries, const ForgottenForce& force = {}) {
  EpochTable out;
  out.assign(entries.begin(), entries.end());
  out.forgotten_force = force;
  return out;
}

// Each state, with and without its optional parts.
inline std::vector<std::pair<const char*, DiskState>> disk_states() {
  using namespace disk_state;
  LogPoint base{older_epoch, Lsn{950}};
  EpochEntry newest{epoch, Lsn{31}, 2, 0b110, epoch_witnessed, mark_of(older_epoch)};
  return {{"consistent", Consistent{}},
          {"refilling", Refilling{Lsn{1001}, epoch}},
          {"damaged", Damaged{Lsn{1001}, older_epoch, newest, base}},
          {"damaged-unknown", Damaged{Lsn{0}, std::nullopt, std::nullopt, base}},
          {"syncing", Syncing{epoch, base}},
          {"syncing-unknown", Syncing{epoch, std::nullopt}}};
}

inline Superblock superblock() {
  Superblock sb;
  sb.generation = 99;
  sb.volume = volume;
  sb.replica = 2;
  sb.flags = flag_data_label;
  sb.volume_blocks = volume_blocks;
  sb.bitmap_offset = journal_reserved_bytes;
  sb.bitmap_bytes = 4096;
  sb.digest_offset = journal_reserved_bytes + 4 * 4096;
  sb.digest_bytes = digest_pages(volume_blocks) * 4096;
  sb.ring_offset = sb.digest_offset + sb.digest_bytes;
  sb.ring_bytes = journal_ring_bytes_min;
  sb.tail_pos = {journal_ring_bytes_min * 3 + 8192};
  sb.tail = mark(1234);
  sb.tail_epoch = older_epoch;
  sb.commit = {1300};
  sb.incarnation = 17;
  sb.cut_lsn = {1100};
  sb.cut_incarnation = 15;
  sb.disk = disk_state::Damaged{
      Lsn{1001}, older_epoch, EpochEntry{epoch, Lsn{31}, 2, 0b110, epoch_witnessed}, {older_epoch, Lsn{950}}};
  sb.dirty[1] = {3, true, older_epoch, mark(940)};
  sb.dirty[2] = {4, false, {}, {}};
  sb.epochs = {{older_epoch, Lsn{900}, 1, 0b11}, {epoch, Lsn{1290}, 2, 0b10}};
  sb.epochs.forgotten_force = forgotten;
  sb.split_brains = {{1, Lsn{880}}, {3, std::nullopt}};
  sb.arbiter = 0x1122334455667788;
  sb.cut_for = {older_epoch, Lsn{981}, 3, 0b110, epoch_by_force};
  return sb;
}
inline Bytes encoded(const Superblock& sb) {
  Bytes out(block_size);
  encode_superblock(sb, out);
  return out;
}

inline DataLabel label() {
  return {volume, 2, volume_blocks};
}
inline Bytes encoded(const DataLabel& l) {
  Bytes out(block_size);
  encode_data_label(l, out);
  return out;
}

// One of each alternative, in the order of their wire types.
inline std::vector<PeerMessage> messages() {
  Bytes meta = encoded(small_body());
  Bytes payload(64, std::byte{0xa1});  // the code that carries it does not examine it
  return {MatchRequest{epoch},
          MatchState{older_epoch, mark(10), mark(20), Lsn{15}},
          Probe{mark(17)},
          ProbeReply{mark(17), true},
          Begin{epoch, mark(17), Lsn{12},
                table({{older_epoch, Lsn{3}, 1, 3}, {epoch, Lsn{18}, 2, 2, epoch_witnessed}}, forgotten)},
          RecordMessage{epoch, meta, payload},
          Ack{epoch, Lsn{44}, mark(43)},
          Commit{epoch, mark(43)},
          Refuse{"split brain: it is at epoch 6", true},
          NodeState{true,
                    false,
                    true,
                    LogPoint{older_epoch, Lsn{12}},
                    8,
                    {epoch, Lsn{30}, 2, 6},
                    mark(44),
                    Lsn{43},
                    table({{older_epoch, Lsn{3}, 1, 3}, {epoch, Lsn{30}, 2, 6}})},
          Claim{other_volume},
          ClaimReply{other_volume, false, "it follows replica 3"},
          SyncBegin{epoch, mark(17), older_epoch, false, older_epoch, mark(11),
                    table({{older_epoch, Lsn{3}, 1, 3}, {epoch, Lsn{16}, 2, 2, epoch_by_force}}, forgotten)},
          SyncReady{epoch, mark(17), false},
          SyncData{epoch, 9, {{Lba{4}, 1, ExtentKind::data}, {Lba{5}, 7, ExtentKind::zeros}}, block(0xb2)},
          SyncAck{epoch, 9, true},
          SyncEnd{epoch, Lsn{44}},
          SyncCheck{epoch, 5, 3, 0b1010, {hash_of("one"), hash_of("two")}},
          SyncDiffer{epoch, 5, 0b1000},
          SyncProgress{epoch, 300, 1000},
          FetchBlock{epoch, 6, Lba{77}, Lsn{43}},
          FetchedBlock{epoch, 6, FetchedBlock::Kind::data, Lsn{44}, block(0xc3)},
          Behind{epoch, Lsn{44}, Lsn{30}, 1 << 20, 2500},
          KeepFor{epoch, 3, true, mark(30)},
          ReadBlocks{epoch, 8, Lba{640}, 70, Lsn{45}},
          BlocksRead{epoch, 8, Lsn{46}, 70, {~std::uint64_t{0}, 0x3e}, block(0xd4)},
          TakeFrom{epoch, 10, 3},
          TakeAfter{epoch, 10, mark(43)},
          RecordMarks{epoch, 10, {mark(44), mark(46)}},
          RelayLost{epoch, 10, "replica 3 is not connected"},
          Subscribe{epoch, 10, mark(43)},
          Subscribed{epoch, 10},
          Taken{epoch, 10, Lsn{46}, Lsn{44}},
          SubscriptionEnded{epoch, 10, "replica 3 follows no primary"}};
}
inline Bytes encoded(const PeerMessage& m) {
  Bytes out;
  encode_peer_message(m, out);
  return out;
}

}  // namespace twinloft::repl::samples
