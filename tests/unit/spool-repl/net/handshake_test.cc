#include "twinloft/spool-repl/net/handshake.h"

#include <gtest/gtest.h>

namespace twinloft::repl::net {
namespace {

const Uuid volume = Uuid::parse("2f2e2d2c-4b5a-4978-8695-a4b3c2d1e0ff").value();
const Uuid other_volume = Uuid::parse("3f2e2d2c-4b5a-4978-8695-a4b3c2d1e0ff").value();
using Direction = Handshake::Direction;
constexpr std::uint16_t hello_type = 1, proof_type = 2;

struct Side {
  Identity self{volume, 1000, 1};
  std::string secret = "the same on both sides";
  ReplicaId expect = 0;
};

struct HandshakeTest : testing::Test {
  SeededRandom random{1};
  Side a, b;
  HandshakeTest() {
    a.expect = 2;
    b.self.replica = 2;
  }
  Handshake dialer() { return {a.self, a.secret, Direction::dialed, a.expect, random}; }
  Handshake accepter() { return {b.self, b.secret, Direction::accepted, b.expect, random}; }

  // Runs both to their ends; the results of the last message that each received.
  struct Ends {
    Result<bool> dialed = false, accepted = false;
  };
  Ends run(Handshake& d, Handshake& c) {
    Ends ends;
    for (bool moved = true; moved;) {
      moved = false;
      auto feed = [&](Handshake& from, Handshake& to, Result<bool>& result) {
        for (const auto& m : from.take_output())
          if (result && !*result) result = to.receive(m.type, m.payload), moved = true;
      };
      feed(d, c, ends.accepted);
      feed(c, d, ends.dialed);
    }
    return ends;
  }
  static testing::AssertionResult refused(const Result<bool>& r, Errc code, std::string_view why) {
    if (r) return testing::AssertionFailure() << "not refused";
    if (r.error().code != code || r.error().message.find(why) == std::string::npos)
      return testing::AssertionFailure() << to_string(r.error().code) << ": " << r.error().message;
    return testing::AssertionSuccess();
  }
};

TEST_F(HandshakeTest, BothKnowEachOtherAfterwards) {
  auto d = dialer(), c = accepter();
  auto ends = run(d, c);
  ASSERT_TRUE(ends.dialed && *ends.dialed);
  ASSERT_TRUE(ends.accepted && *ends.accepted);
  EXPECT_EQ(d.peer(), 2u);
  EXPECT_EQ(c.peer(), 1u);
}

TEST_F(HandshakeTest, MessagesAreShortEnoughForTheUnproved) {
  auto d = dialer();
  for (const auto& m : d.take_output()) EXPECT_LE(m.payload.size(), handshake_payload_max);
}

TEST_F(HandshakeTest, AnotherSecretIsRefusedByBoth) {
  for (auto [left, right] : {std::pair{"x", "y"}, {"", "y"}, {"x", ""}, {"secret", "secret "}}) {
    a.secret = left;
    b.secret = right;
    auto d = dialer(), c = accepter();
    auto ends = run(d, c);
    EXPECT_TRUE(refused(ends.dialed, Errc::denied, "secret_file"));
    EXPECT_TRUE(refused(ends.accepted, Errc::denied, "secret_file"));
  }
}

TEST_F(HandshakeTest, NoSecretOnBothSidesIsAMatch) {
  a.secret = b.secret = "";
  auto d = dialer(), c = accepter();
  auto ends = run(d, c);
  EXPECT_TRUE(ends.dialed && *ends.dialed && ends.accepted && *ends.accepted);
}

TEST_F(HandshakeTest, AReflectedProofIsRefused) {
  // The attacker knows no secret: it answers with what it is sent, under another replica's name.
  auto d = dialer();
  auto first = d.take_output();
  auto hello = first.at(0).payload;
  store_le(hello.data() + 40, std::uint32_t{2});  // replica
  ASSERT_TRUE(d.receive(hello_type, hello));
  auto proof = d.take_output().at(0);
  EXPECT_TRUE(refused(d.receive(proof_type, proof.payload), Errc::denied, "secret"));
}

TEST_F(HandshakeTest, AReflectedHelloIsRefused) {
  auto d = dialer();
  auto hello = d.take_output().at(0);
  EXPECT_TRUE(refused(d.receive(hello_type, hello.payload), Errc::conflict, "an id of its own"));
}

TEST_F(HandshakeTest, AReplayedProofIsRefused) {
  auto d = dialer(), c = accepter();
  auto d_hello = d.take_output().at(0), c_hello = c.take_output().at(0);
  ASSERT_TRUE(d.receive(hello_type, c_hello.payload));
  ASSERT_TRUE(c.receive(hello_type, d_hello.payload));
  auto c_proof = c.take_output().at(0);
  ASSERT_TRUE(d.receive(proof_type, c_proof.payload).value());
  // A new connection: the recorded hello and proof belong to another nonce of the dialer's.
  auto again = dialer();
  ASSERT_TRUE(again.receive(hello_type, c_hello.payload));
  EXPECT_TRUE(refused(again.receive(proof_type, c_proof.payload), Errc::denied, "secret"));
}

TEST_F(HandshakeTest, AProofOfTheSameDirectionIsRefused) {
  // Two dialers joined back to back by an attacker in between.
  auto d = dialer();
  Handshake e(b.self, b.secret, Direction::dialed, 1, random);
  auto d_hello = d.take_output().at(0), e_hello = e.take_output().at(0);
  ASSERT_TRUE(d.receive(hello_type, e_hello.payload));
  ASSERT_TRUE(e.receive(hello_type, d_hello.payload));
  EXPECT_TRUE(refused(d.receive(proof_type, e.take_output().at(0).payload), Errc::denied, "secret"));
}

TEST_F(HandshakeTest, AHelloChangedOnTheWayIsRefused) {
  auto sample = dialer().take_output().at(0).payload;
  for (std::size_t byte = 0; byte < sample.size(); ++byte) {
    auto d = dialer(), c = accepter();
    auto hello = d.take_output().at(0).payload;
    hello[byte] ^= std::byte{4};
    auto said = c.receive(hello_type, hello);
    if (!said) continue;  // refused for what it says
    (void)c.take_output();
    auto c2 = accepter();
    auto c_hello = c2.take_output().at(0);
    ASSERT_TRUE(d.receive(hello_type, c_hello.payload));
    EXPECT_FALSE(c.receive(proof_type, d.take_output().at(0).payload)) << "byte " << byte;
  }
}

TEST_F(HandshakeTest, WhatDoesNotFitIsNamed) {
  struct Case {
    std::function<void(Side&)> change;  // of the accepting side
    const char* why;
  };
  for (const Case& k : {Case{[](Side& s) { s.self.volume = other_volume; }, "the peer serves volume"},
                        {[](Side& s) { s.self.volume_blocks = 999; }, "999"},
                        {[](Side& s) { s.self.replica = 1; }, "an id of its own"},
                        {[](Side& s) { s.self.replica = 3; }, "replica 3 answers where replica 2 is configured"}}) {
    Side before = b;
    k.change(b);
    auto d = dialer(), c = accepter();
    auto ends = run(d, c);
    EXPECT_TRUE(refused(ends.dialed, Errc::conflict, k.why));
    b = before;
  }
}

TEST_F(HandshakeTest, ARequiredFeatureThatIsUnknownIsNamed) {
  auto d = dialer(), c = accepter();
  auto hello = d.take_output().at(0).payload;
  store_le(hello.data(), std::uint64_t{0xff});
  ASSERT_TRUE(c.receive(hello_type, hello)) << "offers may be ignored";
  auto c2 = accepter();
  store_le(hello.data() + 8, std::uint64_t{0x20});
  EXPECT_TRUE(refused(c2.receive(hello_type, hello), Errc::conflict, "0x20"));
}

TEST_F(HandshakeTest, Garbage) {
  auto hello = dialer().take_output().at(0).payload;
  for (std::size_t n = 0; n < hello.size(); ++n) {
    auto c = accepter();
    EXPECT_FALSE(c.receive(hello_type, ByteSpan(hello).first(n))) << n;
  }
  for (std::uint16_t type : {0, 2, 3, 4, 32, 37, 65535}) {
    auto c = accepter();
    EXPECT_TRUE(refused(c.receive(type, hello), Errc::corrupt, "in the handshake")) << type;
  }
  auto twice = accepter();
  ASSERT_TRUE(twice.receive(hello_type, hello));
  EXPECT_TRUE(refused(twice.receive(hello_type, hello), Errc::corrupt, "in the handshake"));
  for (std::size_t n : {0u, 1u, 31u, 33u, 64u}) {
    auto c = accepter();
    ASSERT_TRUE(c.receive(hello_type, hello));
    EXPECT_TRUE(refused(c.receive(proof_type, std::vector<std::byte>(n)), Errc::denied, "secret")) << n;
  }
}

TEST_F(HandshakeTest, NoncesAreFresh) {
  auto a1 = dialer().take_output().at(0).payload, a2 = dialer().take_output().at(0).payload;
  EXPECT_NE(a1, a2);
}

}  // namespace
}  // namespace twinloft::repl::net
