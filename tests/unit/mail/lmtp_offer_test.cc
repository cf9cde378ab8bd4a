#include "twinloft/mail/lmtp_offer.h"

#include <gtest/gtest.h>

namespace twinloft::mail {
namespace {

TEST(LmtpOffer, IsReadWhateverItsCase) {
  LmtpOffer offer = read_offer({"store.example", "pipelining", "8BITMIME", "Size 1000", "XCLIENT addr NAME"});
  EXPECT_TRUE(offer.pipelining && offer.eight_bit_mime && offer.size);
  EXPECT_FALSE(offer.chunking || offer.start_tls || offer.dsn || offer.smtputf8);
  EXPECT_TRUE(offer.xclient.contains("ADDR") && offer.xclient.contains("NAME"));
  EXPECT_TRUE(offer.xforward.empty());
}

// The name in a server's greeting may be any text.
TEST(LmtpOffer, TheGreetingOffersNothing) {
  EXPECT_FALSE(read_offer({"8BITMIME"}).eight_bit_mime);
  EXPECT_FALSE(read_offer({"8BITMIME", "", "X8BITMIME"}).eight_bit_mime);
  EXPECT_FALSE(read_offer({}).pipelining);
}

}  // namespace
}  // namespace twinloft::mail
