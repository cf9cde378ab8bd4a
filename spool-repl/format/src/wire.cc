#include "twinloft/spool-repl/format/wire.h"

#include <bit>
#include <optional>

#include "twinloft/base/check.h"
#include "twinloft/base/crc32c.h"
#include "twinloft/spool-repl/format/short_record.h"

namespace twinloft::repl {

namespace {

constexpr std::uint32_t wire_magic = 0x52574c54;  // "TLWR"
constexpr std::size_t reason_bytes_max = 1024;
constexpr Lsn no_base{UINT64_MAX};  // in a node state: the base is unknown

struct Encoder {
  Writer w;
  void operator()(const Epoch& e) { put_epoch(w, e); }
  void operator()(const LogMark& m) {
    w.put(m.lsn.v);
    w.put_bytes(m.hash.bytes);
  }
  void operator()(const MatchRequest& m) { (*this)(m.epoch); }
  void operator()(const MatchState& m) {
    (*this)(m.last_epoch);
    (*this)(m.tail);
    (*this)(m.last);
    w.put(m.commit.v);
  }
  void operator()(const Probe& m) { (*this)(m.mark); }
  void operator()(const ProbeReply& m) {
    (*this)(m.mark);
    w.put(std::uint8_t{m.found});
  }
  void operator()(const Begin& m) {
    (*this)(m.epoch);
    (*this)(m.from);
    w.put(m.holds.v);
    put_table(w, m.epochs);
  }
  void operator()(const RecordMessage& m) {
    (*this)(m.epoch);
    w.put(static_cast<std::uint32_t>(m.meta.size()));
    w.put_bytes(m.meta);
    w.put_bytes(m.payload);
  }
  void operator()(const Ack& m) {
    (*this)(m.epoch);
    w.put(m.received.v);
    (*this)(m.durable);
  }
  void operator()(const Commit& m) {
    (*this)(m.epoch);
    (*this)(m.mark);
  }
  void operator()(const Refuse& m) {
    w.put(std::uint8_t{m.split_brain});
    w.put_bytes(as_bytes(std::string_view(m.reason).substr(0, reason_bytes_max)));
  }
  void operator()(const NodeState& m) {
    w.put(std::uint8_t{m.primary});
    w.put(std::uint8_t{m.inconsistent});
    w.put(std::uint8_t{m.whole});
    LogPoint base = m.base.value_or(LogPoint{{}, no_base});
    (*this)(base.epoch);
    w.put(base.lsn.v);
    w.put(m.newest_epoch);
    put_entry(w, m.epoch);
    (*this)(m.last);
    w.put(m.commit.v);
    put_table(w, m.epochs);
  }
  void operator()(const SyncBegin& m) {
    (*this)(m.epoch);
    (*this)(m.from);
    (*this)(m.from_epoch);
    w.put(std::uint8_t{m.whole});
    (*this)(m.since_epoch);
    (*this)(m.since);
    put_table(w, m.epochs);
  }
  void operator()(const SyncReady& m) {
    (*this)(m.epoch);
    (*this)(m.from);
    w.put(std::uint8_t{m.whole});
  }
  void operator()(const SyncData& m) {
    (*this)(m.epoch);
    w.put(m.seq);
    w.put(static_cast<std::uint32_t>(m.extents.size()));
    for (const Extent& e : m.extents) {
      w.put(e.lba.v);
      w.put(e.blocks);
      w.put(static_cast<std::uint32_t>(e.kind));
    }
    w.put_bytes(m.payload);
  }
  void operator()(const SyncAck& m) {
    (*this)(m.epoch);
    w.put(m.seq);
    w.put(std::uint8_t{m.declined});
  }
  void operator()(const SyncEnd& m) {
    (*this)(m.epoch);
    w.put(m.until.v);
  }
  void operator()(const SyncCheck& m) {
    (*this)(m.epoch);
    w.put(m.seq);
    w.put(m.word);
    w.put(m.mask);
    for (const Hash128& d : m.digests) w.put_bytes(d.bytes);
  }
  void operator()(const SyncDiffer& m) {
    (*this)(m.epoch);
    w.put(m.seq);
    w.put(m.mask);
  }
  void operator()(const SyncProgress& m) {
    (*this)(m.epoch);
    w.put(m.done);
    w.put(m.total);
  }
  void operator()(const FetchBlock& m) {
    (*this)(m.epoch);
    w.put(m.seq);
    w.put(m.lba.v);
    w.put(m.after.v);
  }
  void operator()(const FetchedBlock& m) {
    (*this)(m.epoch);
    w.put(m.seq);
    w.put(static_cast<std::uint8_t>(m.kind));
    w.put(m.as_of.v);
    w.put_bytes(m.content);
  }
  void operator()(const Behind& m) {
    (*this)(m.epoch);
    w.put(m.last.v);
    w.put(m.durable.v);
    w.put(m.bytes);
    w.put(m.milliseconds);
  }
  void operator()(const KeepFor& m) {
    (*this)(m.epoch);
    w.put(m.of);
    w.put(std::uint8_t{m.nothing});
    (*this)(m.durable);
  }
  void operator()(const ReadBlocks& m) {
    (*this)(m.epoch);
    w.put(m.seq);
    w.put(m.lba.v);
    w.put(m.blocks);
    w.put(m.after.v);
  }
  void operator()(const BlocksRead& m) {
    (*this)(m.epoch);
    w.put(m.seq);
    w.put(m.as_of.v);
    w.put(m.blocks);
    for (std::uint64_t word : m.zeros) w.put(word);
    w.put_bytes(m.content);
  }
  void operator()(const TakeFrom& m) {
    (*this)(m.epoch);
    w.put(m.seq);
    w.put(m.relay);
  }
  void operator()(const TakeAfter& m) {
    (*this)(m.epoch);
    w.put(m.seq);
    (*this)(m.mark);
  }
  void operator()(const RecordMarks& m) {
    (*this)(m.epoch);
    w.put(m.seq);
    for (const LogMark& mark : m.marks) (*this)(mark);
  }
  void operator()(const RelayLost& m) { numbered_reason(m); }
  void operator()(const Subscribe& m) {
    (*this)(m.epoch);
    w.put(m.seq);
    (*this)(m.after);
  }
  void operator()(const Subscribed& m) {
    (*this)(m.epoch);
    w.put(m.seq);
  }
  void operator()(const Taken& m) {
    (*this)(m.epoch);
    w.put(m.seq);
    w.put(m.received.v);
    w.put(m.durable.v);
  }
  void operator()(const SubscriptionEnded& m) { numbered_reason(m); }
  template <class Message>
  void numbered_reason(const Message& m) {
    (*this)(m.epoch);
    w.put(m.seq);
    w.put_bytes(as_bytes(std::string_view(m.why).substr(0, reason_bytes_max)));
  }
  void operator()(const Claim& m) { w.put_bytes(m.attempt.bytes); }
  void operator()(const ClaimReply& m) {
    w.put_bytes(m.attempt.bytes);
    w.put(std::uint8_t{m.granted});
    w.put_bytes(as_bytes(std::string_view(m.why).substr(0, reason_bytes_max)));
  }
};

struct Decoder {
  Reader r;
  std::optional<Error> wrong;  // the first error of the message
  template <class T>
  T taken(Result<T> value) {
    if (value) return std::move(*value);
    if (!wrong) wrong = value.error();
    return {};
  }
  Epoch epoch() { return taken(get_epoch(r)); }
  EpochTable table() { return taken(get_table(r)); }
  LogMark mark() {
    LogMark m;
    m.lsn.v = r.get<std::uint64_t>();
    r.get_into(m.hash.bytes);
    return m;
  }
  Lsn lsn() { return {r.get<std::uint64_t>()}; }

  // The number on the wire is the index in PeerMessage.
  Result<PeerMessage> message(std::size_t index) {
    switch (index) {
      case 0:
        return MatchRequest{epoch()};
      case 1: {
        MatchState m;
        m.last_epoch = epoch();
        m.tail = mark();
        m.last = mark();
        m.commit = lsn();
        return m;
      }
      case 2:
        return Probe{mark()};
      case 3: {
        ProbeReply m;
        m.mark = mark();
        m.found = r.get<std::uint8_t>() != 0;
        return m;
      }
      case 4: {
        Begin m;
        m.epoch = epoch();
        m.from = mark();
        m.holds = lsn();
        m.epochs = table();
        return m;
      }
      case 5:
        return record();
      case 6: {
        Ack m;
        m.epoch = epoch();
        m.received = lsn();
        m.durable = mark();
        return m;
      }
      case 7: {
        Commit m;
        m.epoch = epoch();
        m.mark = mark();
        return m;
      }
      case 8:
        return refuse();
      case 9:
        return node_state();
      case 10: {
        Claim m;
        r.get_into(m.attempt.bytes);
        return m;
      }
      case 12:
        return sync_begin();
      case 13: {
        SyncReady m;
        m.epoch = epoch();
        m.from = mark();
        m.whole = r.get<std::uint8_t>() != 0;
        return m;
      }
      case 14:
        return sync_data();
      case 15: {
        SyncAck m;
        m.epoch = epoch();
        m.seq = r.get<std::uint64_t>();
        m.declined = r.get<std::uint8_t>() != 0;
        return m;
      }
      case 16: {
        SyncEnd m;
        m.epoch = epoch();
        m.until = lsn();
        return m;
      }
      case 17:
        return sync_check();
      case 18: {
        SyncDiffer m;
        m.epoch = epoch();
        m.seq = r.get<std::uint64_t>();
        m.mask = r.get<std::uint64_t>();
        return m;
      }
      case 19: {
        SyncProgress m;
        m.epoch = epoch();
        m.done = r.get<std::uint64_t>();
        m.total = r.get<std::uint64_t>();
        return m;
      }
      case 20: {
        FetchBlock m;
        m.epoch = epoch();
        m.seq = r.get<std::uint64_t>();
        m.lba.v = r.get<std::uint64_t>();
        m.after = lsn();
        return m;
      }
      case 21:
        return fetched_block();
      case 22: {
        Behind m;
        m.epoch = epoch();
        m.last = lsn();
        m.durable = lsn();
        m.bytes = r.get<std::uint64_t>();
        m.milliseconds = r.get<std::uint64_t>();
        return m;
      }
      case 23: {
        KeepFor m;
        m.epoch = epoch();
        m.of = r.get<std::uint32_t>();
        m.nothing = r.get<std::uint8_t>() != 0;
        m.durable = mark();
        if (m.of == 0 || m.of > replica_id_max)
          return fail(Errc::corrupt, "records kept for replica {}", m.of);
        return m;
      }
      case 24: {
        ReadBlocks m;
        m.epoch = epoch();
        m.seq = r.get<std::uint64_t>();
        m.lba.v = r.get<std::uint64_t>();
        m.blocks = r.get<std::uint32_t>();
        m.after = lsn();
        if (m.blocks == 0 || m.blocks > read_blocks_max)
          return fail(Errc::corrupt, "a question for {} blocks", m.blocks);
        return m;
      }
      case 25:
        return blocks_read();
      case 26: {
        auto m = numbered<TakeFrom>();
        m.relay = r.get<std::uint32_t>();
        if (m.relay > replica_id_max) return fail(Errc::corrupt, "replica {} as a relay", m.relay);
        return m;
      }
      case 27: {
        auto m = numbered<TakeAfter>();
        m.mark = mark();
        return m;
      }
      case 28:
        return record_marks();
      case 29: {
        auto m = numbered<RelayLost>();
        TL_TRY_ASSIGN(m.why, text());
        return m;
      }
      case 30: {
        auto m = numbered<Subscribe>();
        m.after = mark();
        return m;
      }
      case 31:
        return numbered<Subscribed>();
      case 32: {
        auto m = numbered<Taken>();
        m.received = lsn();
        m.durable = lsn();
        return m;
      }
      case 33: {
        auto m = numbered<SubscriptionEnded>();
        TL_TRY_ASSIGN(m.why, text());
        return m;
      }
      case 11: {
        ClaimReply m;
        r.get_into(m.attempt.bytes);
        m.granted = r.get<std::uint8_t>() != 0;
        TL_TRY_ASSIGN(m.why, text());
        return m;
      }
      default:
        return fail(Errc::corrupt, "message of unknown type {}", index + 32);
    }
  }

  template <class Message>
  Message numbered() {
    Message m;
    m.epoch = epoch();
    m.seq = r.get<std::uint64_t>();
    return m;
  }

  Result<PeerMessage> record_marks() {
    auto m = numbered<RecordMarks>();
    constexpr std::size_t mark_bytes = sizeof(std::uint64_t) + sizeof(Hash128);
    std::size_t bytes = r.remaining(), count = bytes / mark_bytes;
    if (bytes == 0 || bytes % mark_bytes != 0 || count > record_marks_max)
      return fail(Errc::corrupt, "{} bytes of marks", bytes);
    m.marks.resize(count);
    for (LogMark& each : m.marks) each = mark();
    return m;
  }

  Result<PeerMessage> record() {
    RecordMessage m;
    m.epoch = epoch();
    auto meta_bytes = r.get<std::uint32_t>();
    if (meta_bytes > r.remaining())
      return fail(Errc::corrupt, "record message with a body of {} bytes", meta_bytes);
    ByteSpan meta = r.get_bytes(meta_bytes);
    ByteSpan payload = r.get_bytes(r.remaining());
    m.meta.assign(meta.begin(), meta.end());
    m.payload.assign(payload.begin(), payload.end());
    return m;
  }

  Result<PeerMessage> sync_begin() {
    SyncBegin m;
    m.epoch = epoch();
    m.from = mark();
    m.from_epoch = epoch();
    m.whole = r.get<std::uint8_t>() != 0;
    m.since_epoch = epoch();
    m.since = mark();
    m.epochs = table();
    return m;
  }

  // The extents must be ascending and disjoint, and have exactly their payload. core/ compares them with the
  // volume's end.
  Result<PeerMessage> sync_data() {
    SyncData m;
    m.epoch = epoch();
    m.seq = r.get<std::uint64_t>();
    auto count = r.get<std::uint32_t>();
    if (count > sync_extents_max) return fail(Errc::corrupt, "resync data of {} extents", count);
    std::uint64_t end = 0, blocks = 0;
    for (std::uint32_t i = 0; i < count && r.ok(); ++i) {
      Extent e;
      e.lba.v = r.get<std::uint64_t>();
      e.blocks = r.get<std::uint32_t>();
      auto kind = r.get<std::uint32_t>();
      e.kind = static_cast<ExtentKind>(kind);
      bool known = kind == static_cast<std::uint32_t>(ExtentKind::data) ||
                   kind == static_cast<std::uint32_t>(ExtentKind::zeros);
      if (!known || e.blocks == 0 || e.lba.v < end || e.lba.v > UINT64_MAX / 2)
        return fail(Errc::corrupt, "resync data with a bad extent");
      end = e.lba.v + e.blocks;
      if (e.kind == ExtentKind::data) blocks += e.blocks;
      m.extents.push_back(e);
    }
    if (r.remaining() != blocks * block_size)
      return fail(Errc::corrupt, "resync data with an incomplete payload");
    ByteSpan payload = r.get_bytes(r.remaining());
    m.payload.assign(payload.begin(), payload.end());
    return m;
  }

  Result<PeerMessage> sync_check() {
    SyncCheck m;
    m.epoch = epoch();
    m.seq = r.get<std::uint64_t>();
    m.word = r.get<std::uint64_t>();
    m.mask = r.get<std::uint64_t>();
    auto count = static_cast<std::size_t>(std::popcount(m.mask));
    if (count == 0 || m.word > UINT64_MAX / 128 || r.remaining() != count * sizeof(Hash128))
      return fail(Errc::corrupt, "a check of {} blocks with {} bytes of digests", count, r.remaining());
    m.digests.resize(count);
    for (Hash128& d : m.digests) r.get_into(d.bytes);
    return m;
  }

  Result<PeerMessage> fetched_block() {
    FetchedBlock m;
    m.epoch = epoch();
    m.seq = r.get<std::uint64_t>();
    auto kind = r.get<std::uint8_t>();
    m.as_of = lsn();
    m.kind = static_cast<FetchedBlock::Kind>(kind);
    if (kind > static_cast<std::uint8_t>(FetchedBlock::Kind::zeros))
      return fail(Errc::corrupt, "a fetched block of unknown kind {}", kind);
    std::size_t bytes = m.kind == FetchedBlock::Kind::data ? std::size_t{block_size} : 0;
    if (r.remaining() != bytes) return fail(Errc::corrupt, "a fetched block of {} bytes", r.remaining());
    ByteSpan content = r.get_bytes(bytes);
    m.content.assign(content.begin(), content.end());
    return m;
  }

  Result<PeerMessage> blocks_read() {
    BlocksRead m;
    m.epoch = epoch();
    m.seq = r.get<std::uint64_t>();
    m.as_of = lsn();
    m.blocks = r.get<std::uint32_t>();
    if (m.blocks > read_blocks_max) return fail(Errc::corrupt, "an answer of {} blocks", m.blocks);
    m.zeros.resize((m.blocks + 63) / 64);
    std::size_t zeros = 0;
    for (std::uint64_t& word : m.zeros) {
      word = r.get<std::uint64_t>();
      zeros += static_cast<std::size_t>(std::popcount(word));
    }
    bool beyond = m.blocks % 64 != 0 && m.zeros.back() >> m.blocks % 64 != 0;
    std::size_t bytes = r.remaining();
    if (beyond || zeros > m.blocks || bytes != (m.blocks - zeros) * block_size)
      return fail(Errc::corrupt, "an answer of {} blocks with {} bytes", m.blocks, bytes);
    ByteSpan content = r.get_bytes(bytes);
    m.content.assign(content.begin(), content.end());
    return m;
  }

  Result<PeerMessage> node_state() {
    NodeState m;
    m.primary = r.get<std::uint8_t>() != 0;
    m.inconsistent = r.get<std::uint8_t>() != 0;
    m.whole = r.get<std::uint8_t>() != 0;
    LogPoint base{epoch(), lsn()};
    m.base = base.lsn == no_base ? std::nullopt : std::optional(base);
    m.newest_epoch = r.get<std::uint64_t>();
    m.epoch = taken(get_entry_if_known(r));
    m.last = mark();
    m.commit = lsn();
    m.epochs = table();
    if (m.newest_epoch > epoch_counter_max)
      return fail(Errc::corrupt, "an epoch counter above the limit of {}", epoch_counter_max);
    return m;
  }

  Result<std::string> text() {
    ByteSpan bytes = r.get_bytes(r.remaining());
    if (bytes.size() > reason_bytes_max) return fail(Errc::corrupt, "a reason of {} bytes", bytes.size());
    return std::string(as_text(bytes));
  }

  Result<PeerMessage> refuse() {
    bool split_brain = r.get<std::uint8_t>() != 0;
    TL_TRY_ASSIGN(std::string reason, text());
    return Refuse{std::move(reason), split_brain};
  }
};

}  // namespace

void encode_wire_header(const WireHeader& h, MutableByteSpan out) {
  TL_CHECK(out.size() == wire_header_bytes);
  store_le(out.data(), wire_magic);
  store_le(out.data() + 4, wire_version);
  store_le(out.data() + 6, h.type);
  store_le(out.data() + 8, h.payload_bytes);
  store_le(out.data() + 12, h.payload_crc);
}

Result<WireHeader> decode_wire_header(ByteSpan in) {
  TL_CHECK(in.size() == wire_header_bytes);
  if (load_le<std::uint32_t>(in.data()) != wire_magic)
    return fail(Errc::corrupt, "the peer does not use the replication protocol");
  auto version = load_le<std::uint16_t>(in.data() + 4);
  if (version != wire_version)
    return fail(Errc::conflict,
                "the peer speaks wire version {}, this program {}: run the same release on both", version,
                wire_version);
  WireHeader h;
  h.type = load_le<std::uint16_t>(in.data() + 6);
  h.payload_bytes = load_le<std::uint32_t>(in.data() + 8);
  h.payload_crc = load_le<std::uint32_t>(in.data() + 12);
  if (h.payload_bytes > wire_payload_max) return fail(Errc::corrupt, "message of {} bytes", h.payload_bytes);
  return h;
}

std::uint16_t wire_type(const PeerMessage& message) {
  return static_cast<std::uint16_t>(static_cast<std::uint16_t>(WireType::first_peer_message) +
                                    message.index());
}

void encode_peer_message(const PeerMessage& message, std::vector<std::byte>& out) {
  Encoder e{Writer(out)};
  std::visit(e, message);
}

void encode_record_prefix(const Epoch& epoch, std::uint32_t meta_bytes, std::vector<std::byte>& out) {
  Encoder e{Writer(out)};
  e(epoch);
  e.w.put(meta_bytes);
}

Result<PeerMessage> decode_peer_message(std::uint16_t type, ByteSpan payload) {
  auto first = static_cast<std::uint16_t>(WireType::first_peer_message);
  if (type == static_cast<std::uint16_t>(WireType::short_record)) return decode_short_record(payload);
  if (type < first) return fail(Errc::corrupt, "message of type {} at this point", type);
  Decoder d{Reader(payload), {}};
  auto message = d.message(type - first);
  if (message && d.r.ok() && d.wrong)
    return fail(Errc::corrupt, "message of type {}: {}", type, d.wrong->message);
  if (message && (!d.r.ok() || d.r.remaining() != 0))
    return fail(Errc::corrupt, "message of type {} with a wrong length of {} bytes", type, payload.size());
  return message;
}

}  // namespace twinloft::repl
