#include "twinloft/spool-repl/format/record.h"

#include <gtest/gtest.h>

#include "samples.h"

namespace twinloft::repl {
namespace {

using namespace samples;

void flip(Bytes& bytes, std::size_t bit) {
  bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
}

// Stores the right hash again, so that the checks after the hash are reached.
Bytes rehashed(Bytes meta) {
  Hasher128 h;
  h.update(ByteSpan(meta).first(112));
  h.update(ByteSpan(meta).subspan(128));
  std::memcpy(meta.data() + 112, h.digest().bytes.data(), 16);
  return meta;
}

testing::AssertionResult refused(const Bytes& meta, std::string_view why) {
  auto body = decode_body_meta(meta, volume, volume_blocks);
  if (body) return testing::AssertionFailure() << "was accepted";
  if (body.error().code != Errc::corrupt) return testing::AssertionFailure() << to_string(body.error().code);
  if (body.error().message.find(why) == std::string::npos)
    return testing::AssertionFailure() << "\"" << body.error().message << "\" does not say \"" << why << "\"";
  return testing::AssertionSuccess();
}

TEST(Body, DataRoundTrip) {
  Body in = small_body();
  Bytes meta;
  encode_body_meta(in, meta);
  auto out = decode_body_meta(meta, volume, volume_blocks);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->header.type, RecordType::data);
  EXPECT_EQ(out->header.volume, volume);
  EXPECT_EQ(out->header.epoch, epoch);
  EXPECT_EQ(out->header.first_lsn, Lsn{41});
  EXPECT_EQ(out->header.last_lsn(), Lsn{43});
  EXPECT_EQ(out->header.prev_hash, in.header.prev_hash);
  EXPECT_EQ(out->header.payload_hash, in.header.payload_hash);
  EXPECT_EQ(out->header.payload_blocks, 2u);
  EXPECT_EQ(out->extents, in.extents);
  EXPECT_EQ(out->block_crc, in.block_crc);
  EXPECT_EQ(out->hash, in.hash);
  EXPECT_EQ(out->mark(), (LogMark{Lsn{43}, in.hash}));
}

TEST(Body, EpochRoundTrip) {
  auto out = decode_body_meta(encoded(epoch_body()), volume, volume_blocks);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->header.type, RecordType::epoch);
  EXPECT_EQ(out->epoch_change, (EpochChange{epoch, 2, 0b11}));
  EXPECT_TRUE(out->extents.empty());
}

TEST(Body, LargestRecordFitsItsBounds) {
  std::vector<Extent> extents;
  std::vector<Bytes> payload(record_payload_blocks_max, block(1));
  for (std::uint32_t i = 0; i < record_extents_max; ++i)
    extents.push_back({Lba{i}, 1, i < record_payload_blocks_max ? ExtentKind::data : ExtentKind::zeros});
  Body in = data_body(extents, payload);
  Bytes meta;
  encode_body_meta(in, meta);
  EXPECT_LE(meta.size(), body_meta_bytes_max);
  EXPECT_LE(meta_blocks_for(meta.size()) + in.header.payload_blocks, record_blocks_max);
  auto out = decode_body_meta(meta, volume, record_extents_max);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->extents, extents);
}

TEST(Body, EveryFlippedBitIsRefused) {
  for (const Body& body : {small_body(), epoch_body()}) {
    Bytes good = encoded(body);
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
      Bytes bad = good;
      flip(bad, bit);
      EXPECT_FALSE(decode_body_meta(bad, volume, volume_blocks)) << "bit " << bit;
    }
  }
}

TEST(Body, EveryOtherLengthIsRefused) {
  Bytes good = encoded(small_body());
  for (std::size_t n = 0; n < good.size(); ++n)
    EXPECT_FALSE(decode_body_meta(ByteSpan(good).first(n), volume, volume_blocks)) << n;
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_body_meta(longer, volume, volume_blocks));
  EXPECT_TRUE(refused(rehashed(longer), "inconsistent counts"));
  Bytes endless = good;
  endless.resize(body_meta_bytes_max + 1);
  EXPECT_TRUE(refused(endless, "body of"));
}

TEST(Body, OfAnotherVolume) {
  auto body = decode_body_meta(encoded(small_body()), other_volume, volume_blocks);
  ASSERT_FALSE(body);
  EXPECT_NE(body.error().message.find(volume.text()), std::string::npos) << body.error().message;
  EXPECT_NE(body.error().message.find(other_volume.text()), std::string::npos);
}

TEST(Body, ExtentsOutOfOrderOrBounds) {
  auto with = [](std::vector<Extent> extents, std::size_t payload) {
    return encoded(data_body(std::move(extents), std::vector<Bytes>(payload, block(1))));
  };
  EXPECT_TRUE(
      refused(with({{Lba{8}, 1, ExtentKind::data}, {Lba{7}, 1, ExtentKind::data}}, 2), "out of order"));
  EXPECT_TRUE(
      refused(with({{Lba{5}, 3, ExtentKind::zeros}, {Lba{7}, 1, ExtentKind::data}}, 1), "out of order"));
  EXPECT_TRUE(refused(with({{Lba{7}, 0, ExtentKind::zeros}}, 0), "out of order"));
  EXPECT_TRUE(refused(with({{Lba{volume_blocks}, 1, ExtentKind::data}}, 1), "beyond"));
  EXPECT_TRUE(refused(with({{Lba{volume_blocks - 1}, 2, ExtentKind::zeros}}, 0), "beyond"));
  EXPECT_TRUE(refused(with({{Lba{UINT64_MAX}, 2, ExtentKind::zeros}}, 0), "beyond"));
  EXPECT_TRUE(refused(with({{Lba{1}, UINT32_MAX, ExtentKind::zeros}}, 0), "beyond"));
  EXPECT_TRUE(refused(with({{Lba{1}, 2, ExtentKind::data}}, 1), "payload blocks"));
  EXPECT_TRUE(refused(with({{Lba{1}, 1, ExtentKind::zeros}}, 1), "payload blocks"));
  EXPECT_TRUE(refused(with({{Lba{1}, 1, static_cast<ExtentKind>(3)}}, 0), "extent kind"));
  EXPECT_FALSE(refused(with({{Lba{5}, 3, ExtentKind::zeros}, {Lba{8}, 1, ExtentKind::data}}, 1), ""))
      << "adjacent extents are valid";
  EXPECT_FALSE(refused(with({{Lba{volume_blocks - 1}, 1, ExtentKind::data}}, 1), ""))
      << "the last block is valid";
}

// Only a defective or hostile writer makes these: the hash is right, but the content is invalid.
TEST(Body, HeaderThatContradictsItself) {
  struct Case {
    std::size_t at;
    std::uint32_t value;
    const char* why;
  };
  for (const Case& c : {Case{0, 0x12345678, "magic"},
                        {6, 3, "unknown type"},
                        {48, 0, "inconsistent counts"},
                        {56, 2, "inconsistent counts"},
                        {56, 0, "inconsistent counts"},
                        {60, 2, "inconsistent counts"},
                        {60, 0xffffffff, "inconsistent counts"},
                        {64, 3, "inconsistent counts"},
                        {64, 0xffffffff, "inconsistent counts"},
                        {68, 1, "encoding"},
                        {104, 40, "inconsistent counts"},
                        {104, 0xffffffff, "inconsistent counts"}}) {
    Bytes bad = encoded(small_body());
    if (c.at == 4 || c.at == 6)
      store_le(bad.data() + c.at, static_cast<std::uint16_t>(c.value));
    else
      store_le(bad.data() + c.at, c.value);
    EXPECT_TRUE(refused(rehashed(bad), c.why)) << "at " << c.at;
  }
  Bytes older = encoded(small_body());
  store_le(older.data() + 4, std::uint16_t{1});
  auto version = decode_body_meta(rehashed(older), volume, volume_blocks);
  ASSERT_FALSE(version);
  EXPECT_EQ(version.error().code, Errc::invalid)
      << "not damage, so that recovery stops instead of treating it as the end";
  Bytes newer = encoded(small_body());
  store_le(newer.data() + 108, std::uint32_t{0x40});
  auto unknown = decode_body_meta(rehashed(newer), volume, volume_blocks);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Errc::invalid) << "intact, but of a later release: not corruption";
  EXPECT_NE(unknown.error().message.find("features 0x40"), std::string::npos);
  Bytes last = encoded(small_body());
  store_le(last.data() + 48, UINT64_MAX - 1);
  EXPECT_TRUE(refused(rehashed(last), "inconsistent counts")) << "LSNs that would overflow";
}

TEST(Payload, HashCountAndBlocks) {
  Body body = small_body();
  std::vector<Bytes> payload = {block(0xa1), block(0xa2)};
  EXPECT_TRUE(verify_payload(body, pointers(payload)));
  EXPECT_FALSE(verify_payload(body, pointers({payload[0]})));
  EXPECT_FALSE(verify_payload(body, pointers({payload[1], payload[0]}))) << "the order matters";
  payload[1][4095] ^= std::byte{0x80};
  auto bad = verify_payload(body, pointers(payload));
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, Errc::corrupt);
}

TEST(Payload, BlockCrcKnowsItsPlace) {
  Bytes b = block(9);
  std::uint32_t crc = block_crc(volume, Lba{4}, b);
  EXPECT_NE(crc, block_crc(volume, Lba{5}, b)) << "misdirected";
  EXPECT_NE(crc, block_crc(other_volume, Lba{4}, b));
  b[17] ^= std::byte{1};
  EXPECT_NE(crc, block_crc(volume, Lba{4}, b));
}

TEST(Genesis, DiffersByVolumeAndSize) {
  EXPECT_NE(genesis_hash(volume, 1), genesis_hash(volume, 2));
  EXPECT_NE(genesis_hash(volume, 1), genesis_hash(other_volume, 1));
}

TEST(Frame, RoundTrip) {
  FrameHeader in = frame();
  auto out = decode_frame(encoded(in), volume);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->pos, in.pos);
  EXPECT_EQ(out->durable_lsn, in.durable_lsn);
  EXPECT_EQ(out->commit_lsn, in.commit_lsn);
  EXPECT_EQ(out->incarnation, in.incarnation);
  EXPECT_EQ(out->total_blocks, in.total_blocks);
  EXPECT_EQ(out->meta_bytes, in.meta_bytes);
  EXPECT_EQ(out->replica, in.replica);
  EXPECT_EQ(out->volume, volume);
}

TEST(Frame, EveryFlippedBitIsRefused) {
  Bytes good = encoded(frame());
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    Bytes bad = good;
    flip(bad, bit);
    auto out = decode_frame(bad, volume);
    ASSERT_FALSE(out) << "bit " << bit;
    EXPECT_EQ(out.error().code, bit < 32 ? Errc::not_found : Errc::corrupt) << "bit " << bit;
  }
}

TEST(Frame, EmptyPlaceOtherVolumeAndLengths) {
  EXPECT_EQ(decode_frame(Bytes(frame_header_bytes), volume).error().code, Errc::not_found);
  EXPECT_EQ(decode_frame(encoded(frame()), other_volume).error().code, Errc::corrupt);
  auto with = [](std::uint32_t total, std::uint32_t meta) {
    FrameHeader f = frame();
    f.total_blocks = total;
    f.meta_bytes = meta;
    return decode_frame(encoded(f), volume).has_value();
  };
  EXPECT_TRUE(with(1, body_header_bytes));
  EXPECT_TRUE(with(record_blocks_max, body_meta_bytes_max));
  EXPECT_FALSE(with(1, body_header_bytes - 1));
  EXPECT_FALSE(with(record_blocks_max, body_meta_bytes_max + 1));
  EXPECT_FALSE(with(record_blocks_max + 1, body_header_bytes));
  EXPECT_FALSE(with(0, body_header_bytes));
  EXPECT_FALSE(with(1, block_size)) << "meta beyond the record's own blocks";
}

TEST(Frame, MetaBlocks) {
  EXPECT_EQ(meta_blocks_for(body_header_bytes), 1u);
  EXPECT_EQ(meta_blocks_for(block_size - frame_header_bytes), 1u);
  EXPECT_EQ(meta_blocks_for(block_size - frame_header_bytes + 1), 2u);
}

TEST(EpochMark, NamesTheEpochThatWasKnownBefore) {
  Epoch before{7, {}}, other{7, {}};
  before.id.bytes[0] = std::byte{0x40};
  other.id.bytes[0] = std::byte{0x80};
  EpochEntry e{epoch, Lsn{1}, 2, 0b11, epoch_by_force, mark_of(before)};
  EXPECT_TRUE(comes_after(e, before));
  EXPECT_FALSE(comes_after(e, other)) << "the counter alone is not enough";
  e.granted_after = {};
  EXPECT_FALSE(comes_after(e, before));
  EXPECT_EQ(mark_of({}), EpochMark());
  EXPECT_FALSE(comes_after(e, {})) << "no epoch at all";
}

}  // namespace
}  // namespace twinloft::repl
