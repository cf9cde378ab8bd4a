#include "twinloft/spool-repl/net/handshake.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "sample_volume.h"

namespace twinloft::repl::net {
namespace {

const Uuid other_volume = Uuid::parse("3f2e2d2c-4b5a-4978-8695-a4b3c2d1e0ff").value();
using Direction = Handshake::Direction;
constexpr std::uint16_t hello_type = 1, proof_type = 2, challenge_type = 4;
constexpr std::size_t hello_bytes = 80;

// As in docs/formats/wire.md.
std::vector<std::byte> proof_of_dialer(const std::string& secret, ByteSpan challenge, ByteSpan hello) {
  std::vector<std::byte> text, out(32);
  Writer w(text);
  w.put_bytes(as_bytes("twinloft replica proof 3"));
  w.put(std::uint8_t{1});
  for (ByteSpan part : {challenge, hello}) {
    w.put(static_cast<std::uint32_t>(part.size()));
    w.put_bytes(part);
  }
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       reinterpret_cast<unsigned char*>(out.data()), nullptr);
  return out;
}

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
  // With an old release, or by the stream below.
  bool old = true;
  std::function<Status(ReplicaId)> vouch;
  Authentication authentication(const Side& side) const {
    if (old) return OldRelease{side.secret};
    return ByStream{vouch};
  }
  Handshake dialer() { return {a.self, authentication(a), Direction::dialed, a.expect, random}; }
  Handshake accepter() { return {b.self, authentication(b), Direction::accepted, b.expect, random}; }

  static Handshake::Message only(Handshake&& h) { return only(h); }
  static Handshake::Message only(Handshake& h) {
    auto said = h.take_output();
    EXPECT_EQ(said.size(), 1u);
    return said.at(0);
  }

  // Runs both sides to their ends. Returns the result of the last message that each received.
  struct Ends {
    Result<bool> dialed = false, accepted = false;
  };
  Ends run(Handshake& d, Handshake& c) {
    Ends ends;
    for (bool moved = true; moved;) {
      moved = false;
      auto feed = [&](Handshake& from, Handshake& to, Result<bool>& result) {
        for (const auto& m : from.take_output())
          if (result && !*result)
            result = to.receive(m.type, m.payload), moved = true;  // the output before a failure counts too
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
  for (bool of_old : {false, true}) {
    old = of_old;
    auto d = dialer(), c = accepter();
    auto ends = run(d, c);
    ASSERT_TRUE(ends.dialed && *ends.dialed);
    ASSERT_TRUE(ends.accepted && *ends.accepted);
    EXPECT_EQ(d.peer(), 2u);
    EXPECT_EQ(c.peer(), 1u);
    EXPECT_EQ(d.is_old(), old);
  }
}

// The certificate is of one replica, and the hello names another.
TEST_F(HandshakeTest, AReplicaThatTheCertificateDoesNotNameIsRefused) {
  old = false;
  std::vector<ReplicaId> asked;
  ReplicaId of_certificate = 1;
  vouch = [&](ReplicaId id) -> Status {
    asked.push_back(id);
    if (id == of_certificate) return {};
    return fail(Errc::denied, "its certificate is for another replica");
  };
  auto d = dialer(), c = accepter();
  EXPECT_TRUE(c.check_dialed()) << "of the side that dials alone";
  EXPECT_TRUE(asked.empty());
  EXPECT_FALSE(d.check_dialed());
  ASSERT_TRUE(c.receive(hello_type, only(d).payload).value());
  EXPECT_EQ(asked, (std::vector<ReplicaId>{2, 1}));
  // The accepting side says nothing about itself to it.
  of_certificate = 7;
  auto e = accepter();
  EXPECT_TRUE(refused(e.receive(hello_type, only(dialer()).payload), Errc::denied, "another replica"));
  EXPECT_TRUE(e.take_output().empty());
  // The dialing side looks again, since another replica may have answered.
  auto f = dialer(), g = accepter();
  of_certificate = 1;
  ASSERT_TRUE(g.receive(hello_type, only(f).payload).value());
  EXPECT_TRUE(refused(f.receive(hello_type, only(g).payload), Errc::denied, "another replica"));
}

// No challenge and no proof: one message of each side.
TEST_F(HandshakeTest, AfterTlsThereIsOneMessageOfEachSide) {
  old = false;
  auto hello = only(dialer()).payload;
  for (std::uint16_t type : {0, 2, 3, 4, 5, 32, 37, 65535}) {
    auto c = accepter(), d = dialer();
    EXPECT_TRUE(c.take_output().empty()) << "the accepting side waits";
    EXPECT_TRUE(refused(c.receive(type, hello), Errc::corrupt, "in the handshake")) << type;
    EXPECT_TRUE(refused(d.receive(type, hello), Errc::corrupt, "in the handshake")) << type;
  }
  auto c = accepter();
  ASSERT_TRUE(c.receive(hello_type, hello).value());
  EXPECT_TRUE(refused(c.receive(hello_type, hello), Errc::corrupt, "in the handshake")) << "twice";
  for (std::size_t n = 0; n < hello.size(); ++n)
    EXPECT_FALSE(accepter().receive(hello_type, ByteSpan(hello).first(n))) << n;
}

TEST_F(HandshakeTest, MessagesAreShortEnoughForTheUnproved) {
  auto d = dialer(), c = accepter();
  auto challenge = only(c);
  EXPECT_LE(challenge.payload.size(), handshake_payload_max);
  ASSERT_TRUE(d.receive(challenge.type, challenge.payload));
  for (const auto& m : d.take_output()) EXPECT_LE(m.payload.size(), handshake_payload_max);
}

// The dialer waits. The accepting side sends a nonce, and reveals nothing about itself to a peer without the
// secret.
TEST_F(HandshakeTest, NothingIsSaidToWhoeverDoesNotKnowTheSecret) {
  EXPECT_TRUE(dialer().take_output().empty());
  for (auto [left, right] : {std::pair{"x", "y"}, {"", "y"}, {"x", ""}, {"secret", "secret "}}) {
    a.secret = left;
    b.secret = right;
    auto d = dialer(), c = accepter();
    auto challenge = only(c);
    EXPECT_EQ(challenge.payload.size(), 2 + 32u);
    ASSERT_TRUE(d.receive(challenge.type, challenge.payload));
    auto said = d.take_output();
    ASSERT_EQ(said.size(), 2u);
    EXPECT_TRUE(c.receive(said[0].type, said[0].payload));
    EXPECT_TRUE(refused(c.receive(said[1].type, said[1].payload), Errc::denied, "secret_file"));
    EXPECT_TRUE(c.take_output().empty());
    EXPECT_TRUE(d.waits_for_proof());
  }
}

TEST_F(HandshakeTest, NoSecretOnBothSidesIsAMatch) {
  a.secret = b.secret = "";
  auto d = dialer(), c = accepter();
  auto ends = run(d, c);
  EXPECT_TRUE(ends.dialed && *ends.dialed && ends.accepted && *ends.accepted);
}

TEST_F(HandshakeTest, AReflectedProofIsRefused) {
  // The attacker does not know the secret. It returns what it received, with this or another replica's id.
  for (std::uint32_t name : {1u, 2u}) {
    auto d = dialer();
    ASSERT_TRUE(d.receive(challenge_type, std::vector<std::byte>{only(accepter()).payload}));
    auto said = d.take_output();
    auto hello = said[0].payload;
    store_le(hello.data() + 40, name);  // the replica's id
    ASSERT_TRUE(d.receive(hello_type, hello));
    EXPECT_TRUE(refused(d.receive(proof_type, said[1].payload), Errc::denied, "secret"));
  }
}

TEST_F(HandshakeTest, AReplayedProofIsRefused) {
  auto d = dialer(), c = accepter();
  auto challenge = only(c);
  ASSERT_TRUE(d.receive(challenge.type, challenge.payload));
  auto of_d = d.take_output();
  ASSERT_TRUE(c.receive(hello_type, of_d[0].payload));
  ASSERT_TRUE(c.receive(proof_type, of_d[1].payload).value());
  auto of_c = c.take_output();
  ASSERT_TRUE(d.receive(hello_type, of_c[0].payload));
  ASSERT_TRUE(d.receive(proof_type, of_c[1].payload).value());
  // Replayed to a new accepter and to a new dialer. Both have new nonces.
  auto called = accepter();
  (void)called.take_output();
  ASSERT_TRUE(called.receive(hello_type, of_d[0].payload));
  EXPECT_TRUE(refused(called.receive(proof_type, of_d[1].payload), Errc::denied, "secret"));
  auto dials = dialer();
  ASSERT_TRUE(dials.receive(challenge_type, challenge.payload));
  ASSERT_TRUE(dials.receive(hello_type, of_c[0].payload));
  EXPECT_TRUE(refused(dials.receive(proof_type, of_c[1].payload), Errc::denied, "secret"));
}

TEST_F(HandshakeTest, AProofOfTheSameDirectionIsRefused) {
  // An attacker connects two dialers with each other.
  auto d = dialer();
  Handshake e(b.self, authentication(b), Direction::dialed, 1, random);
  auto challenge = only(accepter());
  ASSERT_TRUE(d.receive(challenge_type, challenge.payload));
  ASSERT_TRUE(e.receive(challenge_type, challenge.payload));
  auto of_e = e.take_output();
  ASSERT_TRUE(d.receive(hello_type, of_e[0].payload));
  EXPECT_TRUE(refused(d.receive(proof_type, of_e[1].payload), Errc::denied, "secret"));
}

TEST_F(HandshakeTest, AMessageChangedOnTheWayIsRefused) {
  // which: the changed message of challenge, hello, hello.
  auto play = [&](int which, std::size_t byte) {
    auto d = dialer(), c = accepter();
    auto change = [&](int is, std::vector<std::byte> payload) {
      if (is == which && byte < payload.size()) payload[byte] ^= std::byte{4};
      return payload;
    };
    auto challenge = only(c);
    if (!d.receive(challenge_type, change(0, challenge.payload)))
      return;  // refused: the byte is part of the version
    auto of_d = d.take_output();
    ASSERT_TRUE(c.receive(hello_type, change(1, of_d[0].payload)));
    auto done = c.receive(proof_type, of_d[1].payload);
    EXPECT_EQ(done.has_value(), which == 2) << which << " byte " << byte;
    if (!done) return;
    auto of_c = c.take_output();
    ASSERT_TRUE(d.receive(hello_type, change(2, of_c[0].payload)));
    EXPECT_TRUE(refused(d.receive(proof_type, of_c[1].payload), Errc::denied, "secret")) << byte;
  };
  for (std::size_t byte = 0; byte < 34; ++byte) play(0, byte);
  for (std::size_t byte = 0; byte < hello_bytes; ++byte) play(1, byte), play(2, byte);
}

TEST_F(HandshakeTest, WhatDoesNotFitIsNamedByBoth) {
  struct Case {
    std::function<void(Side&)> change;  // applied to the accepting side
    const char *there, *here;
  };
  for (const Case& k :
       {Case{[](Side& s) { s.self.volume = other_volume; }, "the peer serves volume",
             "the peer serves volume"},
        {[](Side& s) { s.self.volume_blocks = 999; }, "the volume has 4096000 bytes here and 4091904 there",
         "the volume has 4091904 bytes here and 4096000 there"},
        {[](Side& s) { s.self.replica = 1; }, "its own id", "its own id"},
        {[](Side& s) { s.self.replica = 3; }, "replica 3 answers at the address of replica 2",
         "replica 1 has dialed replica 2 here, which is replica 3"}}) {
    Side before = b;
    k.change(b);
    for (bool of_old : {false, true}) {
      old = of_old;
      auto d = dialer(), c = accepter();
      auto ends = run(d, c);
      EXPECT_TRUE(refused(ends.dialed, Errc::conflict, k.there));
      EXPECT_TRUE(refused(ends.accepted, Errc::conflict, k.here));
    }
    b = before;
  }
}

std::function<std::string(ReplicaId)> saying(const std::string& key, const std::string& value) {
  Agreement all;
  all.add(key, value);
  return [text = all.text()](ReplicaId) { return text; };
}

// All settings that must agree are compared. Both sides report the setting with both values.
TEST_F(HandshakeTest, SettingsThatDifferAreNamedByBoth) {
  a.self.settings = saying("on_peer_loss", "continue");
  b.self.settings = saying("on_peer_loss", "suspend");
  auto d = dialer(), c = accepter();
  auto ends = run(d, c);
  EXPECT_TRUE(refused(
      ends.dialed, Errc::conflict,
      "replica 2 is configured differently: on_peer_loss is \"continue\" here and \"suspend\" there"));
  EXPECT_TRUE(refused(
      ends.accepted, Errc::conflict,
      "replica 1 is configured differently: on_peer_loss is \"suspend\" here and \"continue\" there"));
  EXPECT_TRUE(d.disagrees() && c.disagrees());
  EXPECT_FALSE(d.has_other_arbiter() || c.has_other_arbiter());
  b.self.settings = a.self.settings;
  auto d2 = dialer(), c2 = accepter();
  ends = run(d2, c2);
  EXPECT_TRUE(ends.dialed && *ends.dialed && ends.accepted && *ends.accepted);
  EXPECT_FALSE(d2.disagrees() || c2.disagrees());
}

TEST_F(HandshakeTest, BothKnowWhereTheOtherHasAnotherArbiter) {
  for (bool of_old : {false, true}) {
    old = of_old;
    a.self.settings = saying("arbiter.kind", "manual");
    b.self.settings = saying("arbiter.kind", "etcd");
    auto d = dialer(), c = accepter();
    run(d, c);
    EXPECT_TRUE(d.disagrees() && c.disagrees());
    EXPECT_TRUE(d.has_other_arbiter() && c.has_other_arbiter());
  }
}

// The settings of a link depend on the replica at its other end. The accepting side learns late which replica
// that is.
TEST_F(HandshakeTest, SettingsAreThoseOfTheLink) {
  for (bool of_old : {false, true}) {
    old = of_old;
    a.self.settings = [](ReplicaId peer) { return peer == 2 ? "protocol=C\n" : "protocol=A\n"; };
    b.self.settings = [](ReplicaId peer) { return peer == 1 ? "protocol=C\n" : "protocol=B\n"; };
    auto d = dialer(), c = accepter();
    auto ends = run(d, c);
    EXPECT_TRUE(ends.dialed && *ends.dialed && ends.accepted && *ends.accepted);
  }
}

TEST_F(HandshakeTest, AnotherSizeIsADisagreementAndAnotherVolumeIsNot) {
  b.self.volume_blocks = 999;
  auto d = dialer(), c = accepter();
  run(d, c);
  EXPECT_TRUE(d.disagrees() && c.disagrees());
  b.self.volume = other_volume;
  auto d2 = dialer(), c2 = accepter();
  run(d2, c2);
  EXPECT_FALSE(d2.disagrees() || c2.disagrees());
}

// The proofs cover the settings. A caller without the secret learns nothing about them.
TEST_F(HandshakeTest, SettingsChangedOnTheWayAreNoDisagreement) {
  a.self.settings = b.self.settings = saying("min_in_sync", "1");
  auto d = dialer(), c = accepter();
  ASSERT_TRUE(d.receive(challenge_type, only(c).payload));
  auto said = d.take_output();
  said[0].payload.back() = std::byte{'2'};
  ASSERT_TRUE(c.receive(hello_type, said[0].payload));
  EXPECT_TRUE(refused(c.receive(proof_type, said[1].payload), Errc::denied, "secret"));
  EXPECT_FALSE(c.disagrees());
}

TEST_F(HandshakeTest, TooManySettingsAreRefused) {
  auto d = dialer(), c = accepter();
  ASSERT_TRUE(d.receive(challenge_type, only(c).payload));
  auto hello = d.take_output()[0].payload;
  store_le(hello.data() + hello_bytes, static_cast<std::uint32_t>(agreement_bytes_max + 1));
  hello.resize(hello.size() + agreement_bytes_max + 1, std::byte{'a'});
  EXPECT_TRUE(refused(c.receive(hello_type, hello), Errc::corrupt, "too short"));
}

TEST_F(HandshakeTest, AnotherVersionOfTheHandshakeIsNamed) {
  auto challenge = only(accepter()).payload;
  store_le(challenge.data(), std::uint16_t{9});
  auto d = dialer();
  EXPECT_TRUE(refused(d.receive(challenge_type, challenge), Errc::conflict, "version 9 of the handshake"));
  EXPECT_TRUE(d.take_output().empty());
}

TEST_F(HandshakeTest, ARequiredFeatureThatIsUnknownIsNamed) {
  auto c = accepter();
  auto challenge = only(c).payload;
  auto d = dialer();
  ASSERT_TRUE(d.receive(challenge_type, challenge));
  auto hello = d.take_output()[0].payload;
  store_le(hello.data(), std::uint64_t{0xff});  // offers may be ignored
  store_le(hello.data() + 8, std::uint64_t{0x20});
  ASSERT_TRUE(c.receive(hello_type, hello));
  EXPECT_TRUE(
      refused(c.receive(proof_type, proof_of_dialer(a.secret, challenge, hello)), Errc::conflict, "0x20"));
}

TEST_F(HandshakeTest, Garbage) {
  auto d = dialer();
  ASSERT_TRUE(d.receive(challenge_type, only(accepter()).payload));
  auto hello = d.take_output()[0].payload;
  EXPECT_EQ(hello.size(), hello_bytes + 4) << "and without settings";
  for (std::size_t n = 0; n < hello.size(); ++n) {
    auto c = accepter();
    EXPECT_FALSE(c.receive(hello_type, ByteSpan(hello).first(n))) << n;
  }
  for (std::uint16_t type : {0, 2, 3, 4, 5, 32, 37, 65535}) {
    auto c = accepter();
    EXPECT_TRUE(refused(c.receive(type, hello), Errc::corrupt, "in the handshake")) << type;
  }
  for (std::uint16_t type : {0, 1, 2, 3, 5, 32}) {
    auto dials = dialer();
    EXPECT_TRUE(refused(dials.receive(type, hello), Errc::corrupt, "in the handshake")) << type;
  }
  auto twice = accepter();
  ASSERT_TRUE(twice.receive(hello_type, hello));
  EXPECT_TRUE(refused(twice.receive(hello_type, hello), Errc::corrupt, "in the handshake"));
  for (std::size_t n : {0u, 1u, 31u, 33u, 64u}) {
    auto c = accepter();
    ASSERT_TRUE(c.receive(hello_type, hello));
    EXPECT_TRUE(refused(c.receive(proof_type, std::vector<std::byte>(n)), Errc::denied, "secret")) << n;
  }
  for (std::size_t n : {0u, 1u, 2u, 33u})
    EXPECT_FALSE(dialer().receive(challenge_type, std::vector<std::byte>(n, std::byte{1})));
}

TEST_F(HandshakeTest, NoncesAreFresh) {
  EXPECT_NE(only(accepter()).payload, only(accepter()).payload);
  auto challenge = only(accepter()).payload;
  auto hello = [&] {
    auto d = dialer();
    EXPECT_TRUE(d.receive(challenge_type, challenge));
    return d.take_output().at(0).payload;
  };
  EXPECT_NE(hello(), hello());
}

// ---- further paths of a link

struct PathTest : HandshakeTest {
  PathTest() { old = false; }
  JoinPath path{{}, 3, 1};
  Handshake joining() {
    Handshake out = dialer();
    out.join(path);
    return out;
  }
};

TEST_F(PathTest, ALinkIsJoined) {
  path.link.fill(std::byte{7});
  Handshake near = joining(), far = accepter();
  Handshake::Message join = only(near);
  EXPECT_TRUE(far.receive(join.type, join.payload).value());
  EXPECT_EQ(far.joined(), path);
  EXPECT_EQ(far.peer(), 1u);
  EXPECT_TRUE(far.take_output().empty()) << "the owner has not found the link yet";
  far.accept_join();
  Handshake::Message answer = only(far);
  EXPECT_TRUE(near.receive(answer.type, answer.payload).value());
  EXPECT_EQ(near.peer(), 2u);
}

TEST_F(PathTest, BothSidesHaveTheKeyOfALinkAndNoOtherLinkHasIt) {
  std::vector<LinkKey> keys;
  for (int i = 0; i < 2; ++i) {
    Handshake near = dialer(), far = accepter();
    Handshake::Message hello = only(near);
    EXPECT_TRUE(far.receive(hello.type, hello.payload).value());
    Handshake::Message answer = only(far);
    EXPECT_TRUE(near.receive(answer.type, answer.payload).value());
    EXPECT_EQ(near.link_key(), far.link_key());
    keys.push_back(near.link_key());
  }
  EXPECT_NE(keys[0], keys[1]);
}

TEST_F(PathTest, WhoJoinsIsLookedAt) {
  Handshake::Message join = only(joining());
  vouch = [](ReplicaId id) { return id == 1 ? fail(Errc::denied, "another one") : Status(); };
  EXPECT_EQ(accepter().receive(join.type, join.payload).error().message, "another one");
  vouch = {};
  b.self.volume = other_volume;
  EXPECT_EQ(accepter().receive(join.type, join.payload).error().code, Errc::conflict);
  b.self.volume = volume;
  b.self.replica = 5;
  EXPECT_EQ(accepter().receive(join.type, join.payload).error().code, Errc::conflict) << "it has dialed 2";
}

TEST_F(PathTest, WrongMessagesAreRefused) {
  Handshake::Message join = only(joining());
  for (std::size_t bytes = 0; bytes < join.payload.size(); ++bytes)
    EXPECT_EQ(accepter().receive(join.type, ByteSpan(join.payload).first(bytes)).error().code, Errc::corrupt);
  path.number = paths_max;
  join = only(joining());
  EXPECT_EQ(accepter().receive(join.type, join.payload).error().code, Errc::corrupt);
  EXPECT_FALSE(dialer().receive(join.type, join.payload)) << "a called side joins nothing";
  EXPECT_FALSE(dialer().receive(join.type + 1, {})) << "nothing was joined";
  EXPECT_FALSE(joining().receive(hello_type, std::vector<std::byte>(hello_bytes)));
  old = true;
  EXPECT_FALSE(accepter().receive(join.type, join.payload)) << "an old release has one path";
}

}  // namespace
}  // namespace twinloft::repl::net
