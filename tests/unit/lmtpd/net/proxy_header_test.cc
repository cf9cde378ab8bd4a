#include "proxy_header.h"

#include <gtest/gtest.h>

#include "server_fixture.h"
#include "twinloft/base/crc32c.h"
#include "twinloft/lmtpd/net/networks.h"

namespace twinloft::lmtpd {
namespace {

using namespace std::string_literals;

const std::string signature = "\r\n\r\n\0\r\nQUIT\n"s;
// From 192.0.2.9:12345 to 192.0.2.1:2400.
const std::string inet = "\xc0\x00\x02\x09\xc0\x00\x02\x01\x30\x39\x09\x60"s;

std::string header(char command, char family, const std::string& rest) {
  return signature + command + family + static_cast<char>(rest.size() >> 8) + static_cast<char>(rest.size()) +
         rest;
}
std::string source(const std::string& text) {
  auto out = decode_proxy_header(as_bytes(text));
  if (!out) return "refused: " + out.error().message;
  if (!*out) return "more";
  EXPECT_LE((*out)->bytes, text.size());
  return (*out)->source ? address_text(*(*out)->source) : "own";
}

TEST(ProxyHeader, SaysWhoTheClientIs) {
  EXPECT_EQ(source(header(0x21, 0x11, inet)), "192.0.2.9");
  EXPECT_EQ(source(header(
                0x21, 0x21,
                "\x20\x01\x0d\xb8"s + std::string(11, '\0') + "\x07" + std::string(16, '\1') + "\1\2\3\4")),
            "2001:db8::7");
  EXPECT_EQ(decode_proxy_header(as_bytes(header(0x21, 0x11, inet) + "LHLO"))->value().bytes, 28u);
}

TEST(ProxyHeader, ConnectionsOfItsOwn) {
  EXPECT_EQ(source(header(0x20, 0x00, "")), "own");
  EXPECT_EQ(source(header(0x20, 0x11, inet)), "own") << "LOCAL: the addresses must be skipped";
  EXPECT_EQ(source(header(0x21, 0x00, "")), "own");
  EXPECT_EQ(source(header(0x21, 0x31, std::string(216, 'x'))), "own") << "a Unix socket";
  EXPECT_EQ(source(header(0x21, 0x12, inet)), "own") << "not a stream";
}

TEST(ProxyHeader, EveryBeginningNeedsMore) {
  std::string whole = header(0x21, 0x11, inet + "\x04\x00\x03xyz"s);
  for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_EQ(source(whole.substr(0, n)), "more") << n;
  EXPECT_EQ(source(whole), "192.0.2.9");
}

TEST(ProxyHeader, WhatIsNoneIsRefusedAtItsFirstWrongByte) {
  for (std::string text :
       {"LHLO c\r\n"s, "\r\n\r\n\1"s, "PROXY TCP4 192.0.2.9"s, header(0x11, 0x11, inet),
        header(0x22, 0x11, inet), header(0x21, 0x11, inet.substr(1)), header(0x21, 0x21, inet),
        header(0x21, 0x11, inet + "\x04"), header(0x21, 0x11, inet + "\x04\x00\x02x"s),
        header(0x21, 0x11, inet + std::string(5000, 'x'))})
    EXPECT_EQ(source(text).substr(0, 7), "refused") << text;
}

TEST(ProxyHeader, AChecksumIsChecked) {
  std::string text = header(0x21, 0x11, inet + "\x03\x00\x04\x00\x00\x00\x00"s);
  std::uint32_t crc = crc32c(as_bytes(text));
  for (int i = 0; i < 4; ++i)
    text[text.size() - 4 + static_cast<std::size_t>(i)] = static_cast<char>(crc >> (24 - 8 * i));
  EXPECT_EQ(source(text), "192.0.2.9");
  text[20] ^= 1;
  EXPECT_EQ(source(text).substr(0, 7), "refused");
}

class Proxied : public ServerTest {
 protected:
  void start_behind(std::vector<std::string> proxies, std::vector<std::string> trusted) {
    rules_.proxies = *Networks::parse(proxies);
    rules_.may_speak_for = *Networks::parse(trusted);
    start();
  }
};

TEST_F(Proxied, TheClientBehindTheProxyIsTheClient) {
  start_behind({"127.0.0.0/8"}, {"192.0.2.9"});
  for (bool trickled : {false, true}) {
    LmtpClient client(port_);
    std::string sent = header(0x21, 0x11, inet) + "LHLO c.example.org\r\n";
    if (trickled)
      client.trickle(sent);
    else
      client.send(sent);
    EXPECT_EQ(client.reply().substr(0, 4), "220 ");
    EXPECT_NE(client.reply().find("XCLIENT"), std::string::npos) << "trusted by its own address";
    client.envelope({"ann@example.org"});
    EXPECT_EQ(client.ask(message).substr(0, 3), "250");
  }
  for (const auto& d : deliverer_.delivered()) EXPECT_EQ(d.client, "192.0.2.9");
}

TEST_F(Proxied, OthersNeedNoHeaderAndMayBringNone) {
  start_behind({"192.0.2.0/24"}, {});
  LmtpClient plain(port_);
  plain.begin();
  LmtpClient forger(port_);
  EXPECT_EQ(forger.reply().substr(0, 4), "220 ");
  EXPECT_EQ(forger.ask(header(0x21, 0x11, inet)).substr(0, 3), "500");
}

TEST_F(Proxied, WithoutItsHeaderAProxyIsSentAway) {
  start_behind({"127.0.0.1", "unix"}, {});
  LmtpClient client(port_);
  client.send("LHLO c.example.org\r\n");
  EXPECT_TRUE(client.at_end()) << "without a reply: the caller may not speak LMTP";
  LmtpClient local(path());
  local.send(header(0x20, 0x00, ""));
  EXPECT_EQ(local.reply().substr(0, 4), "220 ") << "a health check by the proxy itself";
}

}  // namespace
}  // namespace twinloft::lmtpd
