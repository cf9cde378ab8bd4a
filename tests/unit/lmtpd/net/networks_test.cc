#include "twinloft/lmtpd/net/networks.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

namespace twinloft::lmtpd {
namespace {

sockaddr_storage peer(const std::string& text) {
  sockaddr_storage out{};
  if (text == "unix") {
    out.ss_family = AF_UNIX;
  } else if (text.find(':') != std::string::npos) {
    out.ss_family = AF_INET6;
    EXPECT_EQ(::inet_pton(AF_INET6, text.c_str(), &reinterpret_cast<sockaddr_in6&>(out).sin6_addr), 1);
  } else {
    out.ss_family = AF_INET;
    EXPECT_EQ(::inet_pton(AF_INET, text.c_str(), &reinterpret_cast<sockaddr_in&>(out).sin_addr), 1);
  }
  return out;
}

Networks networks(std::vector<std::string> words) {
  auto out = Networks::parse(words);
  EXPECT_TRUE(out) << (out ? "" : out.error().message);
  return out ? *out : Networks{};
}

TEST(Networks, NobodyUnlessNamed) {
  Networks none;
  EXPECT_TRUE(none.empty());
  for (const char* p : {"127.0.0.1", "::1", "unix"}) EXPECT_FALSE(none.contains(peer(p))) << p;
}

TEST(Networks, ThePrefixDecidesToTheBit) {
  Networks some = networks({"192.0.2.128/25", "10.0.0.0/8", "2001:db8::/33", "203.0.113.7"});
  for (const char* p : {"192.0.2.128", "192.0.2.255", "10.255.255.255", "2001:db8:7fff::1", "203.0.113.7"})
    EXPECT_TRUE(some.contains(peer(p))) << p;
  for (const char* p :
       {"192.0.2.127", "11.0.0.0", "2001:db8:8000::", "203.0.113.6", "203.0.113.8", "unix", "::", "::a00:1"})
    EXPECT_FALSE(some.contains(peer(p))) << p;
  EXPECT_TRUE(networks({"0.0.0.0/0"}).contains(peer("198.51.100.1")));
  EXPECT_FALSE(networks({"0.0.0.0/0"}).contains(peer("::1")));
  EXPECT_TRUE(networks({"unix"}).contains(peer("unix")));
  EXPECT_FALSE(networks({"unix"}).contains(peer("127.0.0.1")));
}

TEST(Networks, AMappedAddressIsAnIpv4Address) {
  EXPECT_EQ(address_text(unmapped(peer("::ffff:192.0.2.9"))), "192.0.2.9");
  EXPECT_TRUE(networks({"192.0.2.0/24"}).contains(unmapped(peer("::ffff:192.0.2.9"))));
  for (const char* p : {"2001:db8::1", "192.0.2.9", "unix", "::192.0.2.9"})
    EXPECT_EQ(address_text(unmapped(peer(p))), address_text(peer(p))) << p;
}

TEST(Networks, AMappedNetworkIsAnIpv4Network) {
  for (const char* word :
       {"::ffff:192.0.2.9", "::FFFF:192.0.2.0/120", "::ffff:c000:209/128", "::ffff:0:0/96"})
    EXPECT_TRUE(networks({word}).contains(unmapped(peer("::ffff:192.0.2.9")))) << word;
  EXPECT_FALSE(networks({"::ffff:192.0.2.0/125"}).contains(peer("192.0.2.9")));
  EXPECT_FALSE(networks({"::ffff:192.0.2.9"}).contains(peer("2001:db8::1")));
  EXPECT_FALSE(Networks::parse(std::vector<std::string>{"::ffff:192.0.2.9/120"}));
}

TEST(Networks, WhatIsNoNetworkIsNamed) {
  for (std::string word : {"", "host.example", "192.0.2.0/33", "192.0.2.0/", "192.0.2.0/x", "192.0.2.1/24",
                           "2001:db8::1/64", "2001:db8::/129", "192.0.2/24", "UNIX"}) {
    auto out = Networks::parse(std::vector<std::string>{"10.0.0.0/8", word});
    ASSERT_FALSE(out) << word;
    EXPECT_NE(out.error().message.find("\"" + word + "\""), std::string::npos) << out.error().message;
  }
}

}  // namespace
}  // namespace twinloft::lmtpd
