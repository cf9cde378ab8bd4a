// The header fields of final delivery, and mail loops.
#include "twinloft/lmtpd/maildir/headers.h"

#include "../support/fixture.h"

namespace twinloft::lmtpd {
namespace {

TEST(DeliveryHeader, HasTheFieldsOfFinalDelivery) {
  Recipient recipient = test::make_recipient("/srv/ann");
  recipient.original_to = "sales@example.org";
  EXPECT_EQ(delivery_header(test::make_envelope(), recipient, {}, "mail.example.org", {1'795'000'000, 0}),
            "Return-Path: <sender@example.com>\n"
            "Delivered-To: ann@example.org\n"
            "X-Original-To: sales@example.org\n"
            "Received: from mx.example.com (192.0.2.7)\n"
            "\tby mail.example.org with LMTP id 4fTx1\n"
            "\tfor <ann@example.org>; Wed, 18 Nov 2026 11:06:40 +0000\n");
}

TEST(DeliveryHeader, SaysWhatOrcptSaidAndHowItCame) {
  Recipient recipient = test::make_recipient("/srv/ann");
  recipient.original_to = "j\xc3\xb6rg@example.org";
  recipient.original_type = "utf-8";
  Envelope envelope = test::make_envelope();
  envelope.smtputf8 = true;
  std::string header = delivery_header(envelope, recipient, {}, "h", {});
  EXPECT_NE(
      header.find(
          "\nX-Original-To: j\xc3\xb6rg@example.org\nOriginal-Recipient: utf-8;j\xc3\xb6rg@example.org\n"),
      std::string::npos)
      << header;
  EXPECT_NE(header.find(" with UTF8LMTP id "), std::string::npos) << header;
}

TEST(DeliveryHeader, SaysHowTheConnectionWasSecured) {
  Envelope envelope = test::make_envelope();
  envelope.tls = "TLSv1.3 with cipher X, client certificate a(b)c";
  envelope.client_name = "mx.example.com";
  HeaderChoice only_received{false, false, false, true};
  EXPECT_EQ(
      delivery_header(envelope, test::make_recipient("/srv/ann"), only_received, "h", {1'795'000'000, 0}),
      "Received: from mx.example.com (mx.example.com [192.0.2.7])\n"
      "\t(using TLSv1.3 with cipher X, client certificate a?b?c)\n"
      "\tby h with LMTPS id 4fTx1\n"
      "\tfor <ann@example.org>; Wed, 18 Nov 2026 11:06:40 +0000\n");
}

TEST(DeliveryHeader, CannotBeForgedByAValue) {
  Envelope envelope = test::make_envelope();
  envelope.lhlo = "mx\r\nX-Forged: yes";
  std::string header = delivery_header(envelope, test::make_recipient("/srv/ann"), {}, "h", {});
  EXPECT_EQ(header.find("\nX-Forged"), std::string::npos);
}

TEST(DeliveryHeader, GivesTheNullSenderEmptyBrackets) {
  Envelope envelope = test::make_envelope();
  envelope.from.clear();
  HeaderChoice only_path{true, false, false, false};
  EXPECT_EQ(delivery_header(envelope, test::make_recipient("/srv/ann"), only_path, "h", {}),
            "Return-Path: <>\n");
}

struct Scan {
  std::uint32_t received;
  bool here;
  bool operator==(const Scan&) const = default;
};

Scan scan(std::string_view text, std::size_t step) {
  LoopScanner scanner("ann@example.org");
  for (std::size_t at = 0; at < text.size(); at += step) scanner.feed(text.substr(at, step));
  scanner.finish();
  return {scanner.received_count(), scanner.delivered_here()};
}

TEST(LoopScanner, SeesTheHeaderOnlyInAnySplit) {
  for (std::size_t step : {1, 7, 4096}) {
    EXPECT_EQ(scan("Received: a\r\nRECEIVED: b\r\n\tfolded\r\nSubject: x\r\n\r\nReceived: body\r\n", step),
              (Scan{2, false}));
    EXPECT_EQ(scan("delivered-to:  ANN@example.org \r\n\r\n", step), (Scan{0, true}));
    EXPECT_EQ(scan("Delivered-To: joann@example.org\r\n\r\n", step), (Scan{0, false}));
    EXPECT_EQ(scan("Subject: x\r\n\r\nDelivered-To: ann@example.org\r\n", step), (Scan{0, false}));
    EXPECT_EQ(scan("Delivered-To: ann@example.org", step), (Scan{0, true}));
  }
}

TEST(LoopScanner, BoundsItsMemoryOnEndlessLines) {
  std::string text = "Subject: " + std::string(5'000'000, 'x') + "\r\nDelivered-To: ann@example.org\r\n\r\n";
  EXPECT_EQ(scan(text, 4096), (Scan{0, true}));
}

TEST(FindLoop, ReadsOnInAFileWithALongHeader) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "X-Filler: abcdefghijklmnopqrstuvwxyz\r\n";
  text += "Delivered-To: ann@example.org\r\n\r\nbody\r\n";
  auto found = find_loop(test::in_file(text), test::make_recipient("/srv/ann"), {});
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->has_value());
}

TEST(FindLoop, LooksAtDeliveredToOnlyWhereItShall) {
  std::string text = "Delivered-To: ann@example.org\r\nReceived: from x\r\n\r\n";
  EXPECT_TRUE(find_loop(test::in_memory(text), test::make_recipient("/srv/ann"), {true, 1})->has_value());
  EXPECT_FALSE(find_loop(test::in_memory(text), test::make_recipient("/srv/ann"), {false, 1})->has_value());
  EXPECT_TRUE(find_loop(test::in_memory(text), test::make_recipient("/srv/ann"), {false, 0})->has_value())
      << "hops are counted nevertheless";
}

TEST(FindLoop, CountsReceivedFields) {
  std::string text;
  for (int i = 0; i < 5; ++i) text += "Received: from x\r\n";
  text += "\r\n";
  EXPECT_FALSE(find_loop(test::in_memory(text), test::make_recipient("/srv/ann"), {true, 5})->has_value());
  EXPECT_TRUE(find_loop(test::in_memory(text), test::make_recipient("/srv/ann"), {true, 4})->has_value());
}

}  // namespace
}  // namespace twinloft::lmtpd
