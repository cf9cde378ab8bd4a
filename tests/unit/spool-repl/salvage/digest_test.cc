// A message has the same digest after any delivery. Different messages have different digests.
#include "twinloft/spool-repl/salvage/digest.h"

#include "spool.h"

namespace twinloft::repl::salvage {
namespace {

// Computes the digest whole and byte by byte.
ContentDigest digest(const std::string& text) {
  ContentHasher whole, bytes;
  whole.update(as_bytes(text));
  for (char c : text) bytes.update(as_bytes(std::string_view(&c, 1)));
  ContentDigest out = whole.finish();
  EXPECT_EQ(out, bytes.finish()) << text;
  EXPECT_LE(out.file_bytes_min(), text.size()) << text;
  EXPECT_GE(out.file_bytes_max(), text.size()) << text;
  return out;
}

std::string with_crlf(const std::string& text) {
  std::string out;
  for (char c : text) out += c == '\n' ? "\r\n" : std::string(1, c);
  return out;
}

TEST(Digest, KnownValue) {
  // printf 'Subject: a\n\nb\n' | sha256sum
  EXPECT_EQ(digest("Subject: a\n\nb\n").content.hex(),
            "26ce9c62746373e3389c9d794ed58c4c27ec13b17b4005881ad9423caee49e44");
  EXPECT_EQ(Sha256::parse(digest("x").content.hex())->hex(), digest("x\n").content.hex());
  EXPECT_FALSE(Sha256::parse("cfac"));
  EXPECT_FALSE(Sha256::parse(std::string(64, 'G')));
}

TEST(Digest, TheSameOnBothSides) {
  Sha256 one = digest(message("a")).content;
  EXPECT_EQ(digest(message("a", "ann@example.org", "2")).content, one) << "another attempt of the MTA";
  EXPECT_EQ(digest(message("a", "postmaster@example.org")).content, one) << "another address of the user";
  EXPECT_EQ(digest(with_crlf(message("a"))).content, one);
  EXPECT_EQ(digest("Return-Path: <>\nDelivered-To: x\nReceived: from salvage\n\tby y with LMTP id 9\n" +
                   message("a"))
                .content,
            one);
  std::string unended = message("a");
  unended.pop_back();
  EXPECT_EQ(digest(unended).content, one) << "LMTP has no message without a last line end";
}

TEST(Digest, OtherMessages) {
  Sha256 one = digest(message("a")).content;
  EXPECT_NE(digest(message("b")).content, one);
  EXPECT_NE(digest(message("a") + "\n").content, one);
  EXPECT_NE(digest("X-Spam: yes\n" + message("a")).content, one);
  std::string later = message("a");
  later.replace(later.find("id 7F"), 5, "id 80");
  EXPECT_NE(digest(later).content, one) << "the same alarm, sent again an hour later: another message";
}

TEST(Digest, LineEnds) {
  Sha256 one = digest("a\n\nb\nc\n").content;
  EXPECT_EQ(digest("a\r\n\r\nb\r\nc\r\n").content, one);
  EXPECT_EQ(digest("a\r\r\n\r\nb\nc").content, one) << "what lmtpd makes of CR CR LF, delivered once more";
  EXPECT_EQ(digest("a\n\nb\nc\r").content, one);
  EXPECT_NE(digest("a\n\nb\rc\n").content, one) << "a bare CR is content";
  EXPECT_EQ(digest("").bytes, 0u);
  EXPECT_EQ(digest("\n").lines, 1u);
}

TEST(Digest, LongMessagesAndTheirHead) {
  std::string body(100'000, 'x');
  ContentDigest one = digest(body), other = digest(body + "y");
  EXPECT_EQ(one.head, other.head);
  EXPECT_NE(one.content, other.content);
  ContentHasher begun;
  begun.update(as_bytes(std::string(trace_bytes_max, 'x')));
  ASSERT_TRUE(begun.head_known());
  EXPECT_EQ(begun.head(), one.head);
}

TEST(Digest, WhereTheTraceEnds) {
  auto behind = [](const std::string& text) { return text.substr(trace_length(text, false)); };
  EXPECT_EQ(behind("Return-Path: <a>\nSubject: x\n\n"), "Subject: x\n\n");
  EXPECT_EQ(behind("RETURN-path: <a>\r\ndelivered-to: b\r\n c\r\nSubject: x\r\n\r\n"), "Subject: x\r\n\r\n");
  EXPECT_EQ(behind("X-Original-To: a\nEnvelope-To: b\n\nbody\n"), "\nbody\n");
  for (const char* with : {"with LMTP id", "WITH lmtps id", "\n\twith\n\tUTF8LMTPSA id"})
    EXPECT_EQ(behind(std::string("Received: from a by b ") + with + " 1\nX: y\n\n"), "X: y\n\n") << with;
  for (const char* stays :
       {"Received: from lmtp by b with ESMTP id 1\n\n", "Received: by b with\n\n", "Subject: with LMTP\n\n",
        "\nDelivered-To: x\n", "Return-Path:", "Return-Path: x\n", "Delivered-To : x\n\n", ""})
    EXPECT_EQ(behind(stays), stays);
  std::string endless = "Delivered-To: x\nReturn-Path: " + std::string(trace_bytes_max, 'a') + "\n\n";
  EXPECT_EQ(trace_length(endless, false), 16u) << "a field that does not end within the limit is content";
}

TEST(Digest, AnEmptyMessageIsEmptyAlsoWithATrace) {
  for (const char* trace :
       {"Return-Path: <>\nDelivered-To: x\n", "Return-Path: <>\n", "Received: by y\n\twith LMTP id 1"})
    EXPECT_EQ(digest(trace).content, digest("").content) << trace;
}

TEST(Digest, DeliveredToIsTakenOutForARedelivery) {
  EXPECT_EQ(
      without_delivered_to("Return-Path: <a>\nDelivered-To: b\n\tc\nX-Original-To: d\nDELIVERED-TO: e\n"),
      "Return-Path: <a>\nX-Original-To: d\n");
  EXPECT_EQ(without_delivered_to(""), "");
}

}  // namespace
}  // namespace twinloft::repl::salvage
