// Messages between the supervisor and its server processes: their encoding, refused messages, and skipped
// messages.
#include "twinloft/lmtpd/process/server_messages.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "twinloft/base/fd.h"
#include "twinloft/lmtpd/process/control_channel.h"

namespace twinloft::lmtpd {
namespace {

std::string hex(ByteSpan bytes) {
  std::string out;
  for (std::byte b : bytes) {
    out += "0123456789abcdef"[static_cast<unsigned>(b) >> 4];
    out += "0123456789abcdef"[static_cast<unsigned>(b) & 15];
  }
  return out;
}

std::vector<std::byte> packet_of(std::initializer_list<unsigned> bytes) {
  std::vector<std::byte> out;
  for (unsigned b : bytes) out.push_back(static_cast<std::byte>(b));
  return out;
}

constexpr Generation large = 0x0102030405060708;
const std::vector<FromServer> all_from_server{ServerReady{large}, ServerCrippled{}, ServerLeaving{},
                                              ServerLives{}};
const std::vector<ToServer> all_to_server{DrainServer{large}, StopServer{}, AbortServer{}};

TEST(ServerMessages, GoldenBytes) {
  std::vector<std::string> from, to;
  for (const FromServer& m : all_from_server) from.push_back(hex(encode_message(m)));
  for (const ToServer& m : all_to_server) to.push_back(hex(encode_message(m)));
  EXPECT_EQ(from, (std::vector<std::string>{"010108000807060504030201", "01020000", "01030000", "01040000"}));
  EXPECT_EQ(to, (std::vector<std::string>{"018108000807060504030201", "01820000", "01830000"}));
}

TEST(ServerMessages, EachIsReadAsItWasWritten) {
  for (const FromServer& m : all_from_server) {
    auto read = decode_from_server(encode_message(m));
    ASSERT_TRUE(read && *read);
    EXPECT_EQ(**read, m);
  }
  for (const ToServer& m : all_to_server) {
    auto read = decode_to_server(encode_message(m));
    ASSERT_TRUE(read && *read);
    EXPECT_EQ(**read, m);
  }
}

TEST(ServerMessages, ACutMessageIsRefused) {
  for (const FromServer& m : all_from_server) {
    std::vector<std::byte> packet = encode_message(m);
    for (std::size_t bytes = 0; bytes < packet.size(); ++bytes)
      EXPECT_FALSE(decode_from_server(ByteSpan(packet).first(bytes))) << bytes;
  }
  EXPECT_FALSE(decode_from_server(packet_of({1, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0}))) << "an incomplete field";
}

TEST(ServerMessages, ALengthThatIsNotThePacketsIsRefused) {
  EXPECT_FALSE(decode_from_server(packet_of({1, 4, 0, 0, 0})));
  EXPECT_FALSE(decode_from_server(packet_of({1, 4, 1, 0})));
}

TEST(ServerMessages, AnotherVersionIsRefused) {
  EXPECT_FALSE(decode_from_server(packet_of({2, 4, 0, 0})));
  EXPECT_FALSE(decode_to_server(packet_of({0, 130, 0, 0})));
}

TEST(ServerMessages, TooManyBytesAreRefused) {
  std::vector<std::byte> packet(server_message_bytes_max + 1);
  packet[0] = std::byte{1};
  packet[1] = std::byte{4};
  store_le<std::uint16_t>(packet.data() + 2, server_message_bytes_max - 3);
  EXPECT_FALSE(decode_from_server(packet));
  packet.pop_back();
  store_le<std::uint16_t>(packet.data() + 2, server_message_bytes_max - 4);
  EXPECT_TRUE(decode_from_server(packet));
}

// From a newer peer, for example one that sends metrics.
TEST(ServerMessages, AnUnknownTypeIsSkipped) {
  for (unsigned type = 0; type < 256; ++type) {
    std::vector<std::byte> packet = packet_of({1, type, 12, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
    auto from = decode_from_server(packet);
    auto to = decode_to_server(packet);
    ASSERT_TRUE(from && to) << type;
    EXPECT_EQ(from->has_value(), type >= 1 && type <= 4) << type;
    EXPECT_EQ(to->has_value(), type >= 129 && type <= 131) << type;
  }
}

TEST(ServerMessages, MoreFieldsThanAreKnownAreSkipped) {
  auto ready = decode_from_server(packet_of({1, 1, 10, 0, 5, 0, 0, 0, 0, 0, 0, 0, 99, 99}));
  ASSERT_TRUE(ready && *ready);
  EXPECT_EQ(std::get<ServerReady>(**ready).generation, 5u);
}

TEST(ControlChannel, CarriesPacketsInTheirOrder) {
  SocketPair pair = *make_socket_pair();
  std::vector<std::byte> packet;
  EXPECT_EQ(read_packet(pair.ours.get(), packet), Heard::nothing);
  for (const FromServer& m : all_from_server)
    EXPECT_TRUE(write_packet(pair.theirs.get(), encode_message(m), WhenFull::wait));
  pair.theirs.reset();
  for (const FromServer& m : all_from_server) {
    ASSERT_EQ(read_packet(pair.ours.get(), packet), Heard::packet);
    auto read = decode_from_server(packet);
    ASSERT_TRUE(read && *read);
    EXPECT_EQ(**read, m);
  }
  EXPECT_EQ(read_packet(pair.ours.get(), packet), Heard::end);
  EXPECT_FALSE(write_packet(pair.ours.get(), encode_message(ToServer(StopServer{})), WhenFull::wait));
}

TEST(ControlChannel, APacketThatIsTooLongIsRefusedAndEndsThere) {
  SocketPair pair = *make_socket_pair();
  std::vector<std::byte> packet(4 * server_message_bytes_max);
  packet[0] = std::byte{1};
  ASSERT_TRUE(write_packet(pair.theirs.get(), packet, WhenFull::wait));
  ASSERT_TRUE(write_packet(pair.theirs.get(), encode_message(FromServer(ServerLives{})), WhenFull::wait));
  ASSERT_EQ(read_packet(pair.ours.get(), packet), Heard::packet);
  EXPECT_FALSE(decode_from_server(packet));
  ASSERT_EQ(read_packet(pair.ours.get(), packet), Heard::packet);
  EXPECT_TRUE(decode_from_server(packet));
}

TEST(ControlChannel, AFullSocketDropsWhatNeedNotArrive) {
  SocketPair pair = *make_socket_pair();
  std::size_t sent = 0;
  while (sent < 100'000 &&
         write_packet(pair.theirs.get(), encode_message(FromServer(ServerLives{})), WhenFull::drop))
    ++sent;
  EXPECT_GT(sent, 1u);
  EXPECT_LT(sent, 100'000u);
}

}  // namespace
}  // namespace twinloft::lmtpd
