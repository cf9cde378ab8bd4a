#include "twinloft/lmtpd/milter/packet.h"

#include <gtest/gtest.h>

#include <vector>

namespace twinloft::lmtpd::milter {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;

TEST(Packet, GoldenBytes) {
  std::string out;
  append_packet(out, command::helo, "a.example\0"sv);
  EXPECT_EQ(out, "\0\0\0\x0bHa.example\0"s);
  out.clear();
  append_packet(out, command::abort, {});
  EXPECT_EQ(out,
            "\0\0\0\x01"
            "A"s);
}

// Returns kinds and data in one text each, and adds the bytes in pieces of `step`.
std::vector<std::string> read_all(std::string_view bytes, std::size_t step) {
  PacketReader reader;
  std::vector<std::string> packets;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    reader.add(bytes.substr(at, step));
    while (true) {
      auto packet = reader.next();
      EXPECT_TRUE(packet) << packet.error().message;
      if (!packet || !*packet) break;
      packets.push_back((*packet)->kind + std::string((*packet)->data));
    }
  }
  EXPECT_FALSE(reader.has_rest());
  return packets;
}

TEST(PacketReader, AnySplitGivesTheSamePackets) {
  std::string bytes;
  append_packet(bytes, answer::progress, {});
  append_packet(bytes, answer::add_header, "X-Seen\0yes\0"sv);
  append_packet(bytes, answer::replace_body, std::string(3000, 'b'));
  append_packet(bytes, answer::continue_, {});
  std::vector<std::string> expected = {"p", "hX-Seen\0yes\0"s, "b" + std::string(3000, 'b'), "c"};
  for (std::size_t step : {std::size_t(1), std::size_t(2), std::size_t(5), std::size_t(4096), bytes.size()})
    EXPECT_EQ(read_all(bytes, step), expected) << step;
}

TEST(PacketReader, APacketWithoutAKindIsRefused) {
  PacketReader reader;
  reader.add("\0\0\0\0"sv);
  auto packet = reader.next();
  ASSERT_FALSE(packet);
  EXPECT_EQ(packet.error().code, Errc::invalid);
}

TEST(PacketReader, TheLengthIsBoundedBeforeTheDataArrives) {
  for (bool over : {false, true}) {
    PacketReader reader;
    std::string head;
    append_number(head, static_cast<std::uint32_t>(PacketReader::data_from_filter_max + 1 + over));
    reader.add(head);
    EXPECT_EQ(reader.next().has_value(), !over);
  }
}

TEST(DataReader, ReadsNumbersAndTextsAndSaysWhereTheyEnd) {
  DataReader in("\0\0\1\2name\0value\0rest"sv);
  EXPECT_EQ(in.number(), 258u);
  EXPECT_EQ(in.text(), "name");
  EXPECT_EQ(in.text(), "value");
  EXPECT_FALSE(in.at_end());
  EXPECT_EQ(in.text(), "rest");  // the last NUL byte may be missing
  EXPECT_TRUE(in.at_end());
  EXPECT_TRUE(in.ok());
  EXPECT_EQ(in.text(), "");
  EXPECT_FALSE(in.ok());
}

TEST(DataReader, AShortNumberIsAnError) {
  DataReader in("\0\0\1"sv);
  EXPECT_EQ(in.number(), 0u);
  EXPECT_FALSE(in.ok());
  EXPECT_TRUE(in.at_end());
}

}  // namespace
}  // namespace twinloft::lmtpd::milter
