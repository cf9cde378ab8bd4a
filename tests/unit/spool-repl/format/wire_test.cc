#include "twinloft/spool-repl/format/wire.h"

#include <gtest/gtest.h>

#include "samples.h"

namespace twinloft::repl {
namespace {

using namespace samples;

TEST(Wire, EveryMessageRoundTrips) {
  for (const PeerMessage& m : messages()) {
    auto out = decode_peer_message(wire_type(m), encoded(m));
    ASSERT_TRUE(out) << out.error().message;
    EXPECT_EQ(*out, m) << "type " << wire_type(m);
  }
}

TEST(Wire, EveryOtherLengthIsRefused) {
  for (const PeerMessage& m : messages()) {
    Bytes good = encoded(m);
    bool open_ended = std::holds_alternative<RecordMessage>(m) || std::holds_alternative<Refuse>(m) ||
                      std::holds_alternative<ClaimReply>(m) || std::holds_alternative<RelayLost>(m) ||
                      std::holds_alternative<SubscriptionEnded>(m);
    std::size_t fixed = std::holds_alternative<RecordMessage>(m) ? record_prefix_bytes + 184 : good.size();
    if (std::holds_alternative<Refuse>(m)) fixed = 0;
    if (std::holds_alternative<ClaimReply>(m)) fixed = 17;
    if (std::holds_alternative<RelayLost>(m) || std::holds_alternative<SubscriptionEnded>(m)) fixed = 32;
    if (std::holds_alternative<RecordMarks>(m)) fixed = 56;  // with one mark of two
    for (std::size_t n = 0; n < fixed; ++n)
      EXPECT_FALSE(decode_peer_message(wire_type(m), ByteSpan(good).first(n)))
          << "type " << wire_type(m) << ", " << n;
    good.push_back(std::byte{0});
    EXPECT_EQ(decode_peer_message(wire_type(m), good).has_value(), open_ended) << "type " << wire_type(m);
  }
}

TEST(Wire, ResyncDataIsCheckedBeforeItIsUsed) {
  auto refused = [](SyncData m) { return !decode_peer_message(46, encoded(PeerMessage(std::move(m)))); };
  Bytes one = block(1);
  EXPECT_FALSE(refused({epoch, 1, {{Lba{4}, 1, ExtentKind::data}}, one}));
  EXPECT_TRUE(refused({epoch, 1, {{Lba{4}, 2, ExtentKind::data}}, one})) << "payload of another size";
  EXPECT_TRUE(refused({epoch, 1, {{Lba{4}, 0, ExtentKind::zeros}}, {}})) << "an empty extent";
  EXPECT_TRUE(refused({epoch, 1, {{Lba{4}, 3, ExtentKind::zeros}, {Lba{6}, 1, ExtentKind::zeros}}, {}}))
      << "overlapping";
  EXPECT_TRUE(refused({epoch, 1, {{Lba{4}, 1, static_cast<ExtentKind>(3)}}, {}})) << "an unknown kind";
  EXPECT_TRUE(refused({epoch, 1, {{Lba{UINT64_MAX - 1}, 4, ExtentKind::zeros}}, {}}))
      << "an address that overflows";
  EXPECT_TRUE(refused({epoch, 1, std::vector<Extent>(513, {Lba{4}, 1, ExtentKind::zeros}), {}}))
      << "too many";
}

TEST(Wire, AFetchedBlockIsOneBlockOrNone) {
  using Kind = FetchedBlock::Kind;
  auto accepted = [](Kind kind, Bytes content) {
    return decode_peer_message(53,
                               encoded(PeerMessage(FetchedBlock{epoch, 1, kind, Lsn{4}, std::move(content)})))
        .has_value();
  };
  EXPECT_TRUE(accepted(Kind::data, block(1)));
  EXPECT_TRUE(accepted(Kind::zeros, {}));
  EXPECT_TRUE(accepted(Kind::nothing, {}));
  EXPECT_FALSE(accepted(Kind::data, {})) << "content is missing";
  EXPECT_FALSE(accepted(Kind::data, Bytes(2 * block_size))) << "two blocks";
  EXPECT_FALSE(accepted(Kind::zeros, block(0))) << "zeros have no content";
  EXPECT_FALSE(accepted(static_cast<Kind>(3), {})) << "an unknown kind";
}

TEST(Wire, ABalancedReadIsOfWholeBlocks) {
  auto asked = [](std::uint32_t blocks) {
    return decode_peer_message(56, encoded(PeerMessage(ReadBlocks{epoch, 1, Lba{4}, blocks, Lsn{4}})))
        .has_value();
  };
  EXPECT_TRUE(asked(1));
  EXPECT_TRUE(asked(256));
  EXPECT_FALSE(asked(0));
  EXPECT_FALSE(asked(257));
  auto accepted = [](std::uint32_t blocks, std::vector<std::uint64_t> zeros, std::size_t bytes) {
    return decode_peer_message(
               57, encoded(PeerMessage(BlocksRead{epoch, 1, Lsn{4}, blocks, std::move(zeros), Bytes(bytes)})))
        .has_value();
  };
  EXPECT_TRUE(accepted(256, {0, 0, 0, 0}, 256 * block_size));
  EXPECT_TRUE(accepted(2, {3}, 0));
  EXPECT_TRUE(accepted(0, {}, 0)) << "declined";
  EXPECT_FALSE(accepted(257, {0, 0, 0, 0, 0}, 257 * block_size)) << "more than a question";
  EXPECT_FALSE(accepted(2, {1}, 2 * block_size)) << "more blocks than without the zeros";
  EXPECT_FALSE(accepted(2, {1}, block_size - 1)) << "a part of a block";
  EXPECT_FALSE(accepted(2, {4}, block_size)) << "a bit beyond the blocks";
  EXPECT_FALSE(accepted(2, {7}, 0));
  EXPECT_FALSE(accepted(0, {}, block_size)) << "content, and declined";
}

TEST(Wire, MarksOfRecordsAreWholeAndFew) {
  auto accepted = [](std::size_t marks, std::size_t more_bytes = 0) {
    Bytes bytes = encoded(PeerMessage(RecordMarks{epoch, 1, std::vector<LogMark>(marks, mark(4))}));
    bytes.resize(bytes.size() + more_bytes);
    return decode_peer_message(60, bytes).has_value();
  };
  EXPECT_TRUE(accepted(1));
  EXPECT_TRUE(accepted(record_marks_max));
  EXPECT_FALSE(accepted(0));
  EXPECT_FALSE(accepted(record_marks_max + 1));
  EXPECT_FALSE(accepted(1, 1)) << "a part of a mark";
  auto from = [](ReplicaId relay) {
    return decode_peer_message(58, encoded(PeerMessage(TakeFrom{epoch, 1, relay}))).has_value();
  };
  EXPECT_TRUE(from(0)) << "the primary";
  EXPECT_TRUE(from(replica_id_max));
  EXPECT_FALSE(from(replica_id_max + 1));
}

// The next promotion adds one to the counter.
TEST(Wire, EpochCountersDoNotReachTheirEnd) {
  auto accepted = [](PeerMessage m) { return decode_peer_message(wire_type(m), encoded(m)).has_value(); };
  for (std::uint64_t high : {epoch_counter_max + 1, UINT64_MAX}) {
    Epoch e{high, epoch.id};
    NodeState heard, holds;
    heard.newest_epoch = high;
    holds.epoch.epoch = e;
    EXPECT_FALSE(accepted(heard));
    EXPECT_FALSE(accepted(holds));
    EXPECT_FALSE(accepted(MatchRequest{e}));
    EXPECT_FALSE(accepted(MatchState{e, {}, {}, {}}));
    SyncBegin begin;
    begin.epochs.push_back(holds.epoch);
    EXPECT_FALSE(accepted(begin));
  }
  EXPECT_TRUE(accepted(MatchRequest{{epoch_counter_max, epoch.id}}));
}

TEST(Wire, UnknownTypes) {
  for (std::uint16_t type : {0, 1, 2, 3, 31, 54, 1000, 65535})
    EXPECT_EQ(decode_peer_message(type, Bytes(24)).error().code, Errc::corrupt) << type;
}

TEST(Wire, RefusalIsBounded) {
  auto out = decode_peer_message(40, encoded(PeerMessage(Refuse{std::string(5000, 'x')})));
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(std::get<Refuse>(*out).reason.size(), 1024u) << "the sender truncates it";
  EXPECT_TRUE(decode_peer_message(40, Bytes(1025)));
  EXPECT_FALSE(decode_peer_message(40, Bytes(1026))) << "the receiver does not rely on that";
}

TEST(Wire, RecordThatClaimsMoreMetaThanThereIs) {
  Bytes bytes;
  encode_record_prefix(epoch, 100, bytes);
  ASSERT_EQ(bytes.size(), record_prefix_bytes);
  bytes.resize(bytes.size() + 99);
  EXPECT_FALSE(decode_peer_message(37, bytes));
  store_le(bytes.data() + 24, std::uint32_t{0xffffffff});
  EXPECT_FALSE(decode_peer_message(37, bytes));
}

TEST(Wire, RecordPrefixIsTheBeginningOfARecordMessage) {
  PeerMessage whole = messages()[5];
  const auto& m = std::get<RecordMessage>(whole);
  Bytes pieces;
  encode_record_prefix(m.epoch, static_cast<std::uint32_t>(m.meta.size()), pieces);
  pieces.insert(pieces.end(), m.meta.begin(), m.meta.end());
  pieces.insert(pieces.end(), m.payload.begin(), m.payload.end());
  EXPECT_EQ(pieces, encoded(whole));
}

TEST(WireHeaderFormat, RoundTripAndRefusals) {
  Bytes good(wire_header_bytes);
  encode_wire_header({37, wire_payload_max, 0xdeadbeef}, good);
  auto out = decode_wire_header(good);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->type, 37);
  EXPECT_EQ(out->payload_bytes, wire_payload_max);
  EXPECT_EQ(out->payload_crc, 0xdeadbeefu);

  for (std::size_t bit = 0; bit < 32; ++bit) {
    Bytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_EQ(decode_wire_header(bad).error().code, Errc::corrupt) << "magic, bit " << bit;
  }
  Bytes version = good;
  store_le(version.data() + 4, std::uint16_t{1});
  EXPECT_EQ(decode_wire_header(version).error().code, Errc::conflict);
  std::string words = decode_wire_header(version).error().message;
  EXPECT_NE(words.find(fmt::format("the peer speaks wire version 1, this program {}", wire_version)),
            std::string::npos)
      << words;
  Bytes length = good;
  store_le(length.data() + 8, wire_payload_max + 1);
  EXPECT_EQ(decode_wire_header(length).error().code, Errc::corrupt);
}

}  // namespace
}  // namespace twinloft::repl
