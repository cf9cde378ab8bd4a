#include "twinloft/spool-repl/format/short_record.h"

#include <gtest/gtest.h>

#include "samples.h"

namespace twinloft::repl {
namespace {

using Bytes = std::vector<std::byte>;
using Kind = PayloadRun::Kind;

// A payload as letters: one for each block, '0' for a block of zeros.
struct Payload {
  explicit Payload(std::string_view letters) : bytes(letters.size() * block_size) {
    for (std::size_t i = 0; i < letters.size(); ++i) {
      if (letters[i] != '0')
        for (std::size_t at = 0; at < block_size; ++at)
          bytes[i * block_size + at] = std::byte(static_cast<std::size_t>(letters[i]) * 7 + at);
      blocks.push_back(bytes.data() + i * block_size);
    }
  }
  Bytes bytes;
  std::vector<const std::byte*> blocks;
};

const Epoch epoch_of_sender{7, {std::byte{1}, std::byte{2}}};

Bytes message(std::span<const PayloadRun> runs, const Bytes& meta, const Bytes& content) {
  Bytes out;
  encode_short_record_prefix(epoch_of_sender, static_cast<std::uint32_t>(meta.size()), runs, out);
  out.insert(out.end(), meta.begin(), meta.end());
  out.insert(out.end(), content.begin(), content.end());
  return out;
}
Bytes content_of(const Payload& payload, std::span<const PayloadRun> runs) {
  Bytes out;
  std::size_t at = 0;
  for (const PayloadRun& run : runs) {
    if (run.kind == Kind::content)
      out.insert(out.end(), payload.blocks[at], payload.blocks[at] + run.blocks * block_size);
    at += run.blocks;
  }
  return out;
}
std::string refusal(const std::vector<PayloadRun>& runs, std::size_t blocks) {
  auto found = decode_short_record(message(runs, {}, Bytes(blocks * block_size)));
  return found ? "accepted" : found.error().message;
}

TEST(ShortRecordTest, BlocksOfZerosAndRepetitionsAreLeftOut) {
  Payload p("ab000abaacc");
  auto runs = find_runs(p.blocks);
  std::vector<PayloadRun> expected{{Kind::content, 2, 0}, {Kind::zeros, 3, 0},  {Kind::repeat, 2, 0},
                                   {Kind::repeat, 1, 5},  {Kind::repeat, 1, 7}, {Kind::content, 1, 0},
                                   {Kind::repeat, 1, 9}};
  EXPECT_EQ(runs, expected);
  Bytes meta{std::byte{9}, std::byte{8}};
  Bytes bytes = message(runs, meta, content_of(p, runs));
  EXPECT_EQ(bytes.size(), record_prefix_bytes + 2 + 7 * 5 + 2 + 3 * block_size);
  auto back = decode_short_record(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->epoch, epoch_of_sender);
  EXPECT_TRUE(back->meta == meta && back->payload == p.bytes);
  auto by_type = decode_peer_message(static_cast<std::uint16_t>(WireType::short_record), bytes);
  EXPECT_TRUE(by_type && std::get<RecordMessage>(*by_type) == *back);
}

TEST(ShortRecordTest, ARunRepeatsItself) {
  Payload p("aaaaaaaa");
  auto runs = find_runs(p.blocks);
  EXPECT_EQ(runs, (std::vector<PayloadRun>{{Kind::content, 1, 0}, {Kind::repeat, 7, 0}}));
  EXPECT_TRUE(decode_short_record(message(runs, {}, content_of(p, runs)))->payload == p.bytes);
}

TEST(ShortRecordTest, WithoutSuchBlocksTheRecordMessageIsShorter) {
  EXPECT_TRUE(find_runs(Payload("abcdefgh").blocks).empty());
  EXPECT_TRUE(find_runs({}).empty());
  EXPECT_EQ(find_runs(Payload("0").blocks), (std::vector<PayloadRun>{{Kind::zeros, 1, 0}}));
}

TEST(ShortRecordTest, BlocksThatDifferInOneByteDiffer) {
  for (std::size_t at : {0u, 9u, 1024u, 2047u, block_size - 1}) {
    Payload p("aa0");
    p.bytes[block_size + at] ^= std::byte{1};
    p.bytes[2 * block_size + at] ^= std::byte{1};
    EXPECT_TRUE(find_runs(p.blocks).empty()) << at;
  }
}

TEST(ShortRecordTest, TheLargestRecord) {
  std::string letters;
  for (unsigned i = 0; i < record_payload_blocks_max; ++i) letters += static_cast<char>('1' + i * i % 100);
  Payload p(letters);
  auto runs = find_runs(p.blocks);
  EXPECT_TRUE(decode_short_record(message(runs, {}, content_of(p, runs)))->payload == p.bytes);
}

TEST(ShortRecordTest, RunsThatCannotBeAreRefused) {
  const std::string cannot = "a short record: a run that cannot be";
  EXPECT_EQ(refusal({{Kind::content, 1, 0}, {Kind::repeat, 1, 0}}, 1), "accepted");
  EXPECT_EQ(refusal({{Kind::repeat, 1, 0}}, 0), cannot);
  EXPECT_EQ(refusal({{Kind::content, 1, 0}, {Kind::repeat, 1, 1}}, 1), cannot);
  EXPECT_EQ(refusal({{Kind::content, 0, 0}}, 0), cannot);
  EXPECT_EQ(refusal({{Kind::content, 1, 1}}, 1), cannot);
  EXPECT_EQ(refusal({{Kind::zeros, 1, 1}}, 0), cannot);
  EXPECT_EQ(refusal({{static_cast<Kind>(3), 1, 0}}, 0), cannot);
}

TEST(ShortRecordTest, WrongSizesAreRefused) {
  EXPECT_EQ(refusal({{Kind::zeros, 512, 0}}, 0), "accepted");
  EXPECT_EQ(refusal({{Kind::zeros, 513, 0}}, 0), "a short record: more blocks than a record may have");
  EXPECT_EQ(refusal({{Kind::zeros, 512, 0}, {Kind::zeros, 1, 0}}, 0),
            "a short record: more blocks than a record may have");
  EXPECT_EQ(refusal({{Kind::content, 2, 0}}, 1), "a short record: blocks of a wrong length");
  EXPECT_EQ(refusal({{Kind::content, 2, 0}}, 3), "a short record: blocks of a wrong length");
  EXPECT_EQ(refusal(std::vector<PayloadRun>(513, {Kind::zeros, 1, 0}), 0),
            "a short record: a wrong number of runs");
  Bytes whole = message(std::vector<PayloadRun>{{Kind::content, 1, 0}}, Bytes(40), Bytes(block_size));
  ASSERT_TRUE(decode_short_record(whole));
  for (std::size_t n = 0; n < whole.size(); n += n < 90 ? 1 : 500)
    EXPECT_FALSE(decode_short_record(ByteSpan(whole).first(n))) << n;
}

}  // namespace
}  // namespace twinloft::repl
