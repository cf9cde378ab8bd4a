// TLS as a stream, on the real event loop: bytes, who may connect, and what the other side learns.
#include "twinloft/spool-repl/stream/tls_stream.h"

#include <openssl/ssl.h>

#include <cerrno>

#include "tls_fixture.h"

namespace twinloft::repl::stream {
namespace {

constexpr const char* one = "twinloft:volume/replica/1";
constexpr const char* two = "twinloft:volume/replica/2";

Context by_secret(const std::string& secret, const std::string& purpose = "replicas") {
  return TlsContext::by_secret(secret, purpose, Records::below).value();
}

INSTANTIATE_TEST_SUITE_P(Below, TlsStreamTest, testing::Values(Below::openssl, Below::records),
                         name_of_below);

TEST_P(TlsStreamTest, BothSidesKnowEachOthersNames) {
  Site site("Twinloft");
  connect(site.context(one), site.context(two, 20));
  ASSERT_TRUE(client.open() && server.open()) << client.error() << server.error();
  EXPECT_TRUE(client.stream->peer_has_name(two));
  EXPECT_TRUE(server.stream->peer_has_name(one));
  EXPECT_FALSE(client.stream->peer_has_name(one));
  EXPECT_FALSE(client.stream->peer_has_name("twinloft"));
  EXPECT_EQ(client.stream->peer_names(), two);
  std::int64_t now = clock.wall().seconds;
  EXPECT_NEAR(static_cast<double>(*client.stream->peer_expires() - now), 20 * 86'400, 100);
  EXPECT_NEAR(static_cast<double>(*server.stream->peer_expires() - now), 10 * 86'400, 100);
}

TEST_P(TlsStreamTest, ASecretOfBothSidesIsEnough) {
  connect(by_secret("the same"), by_secret("the same"));
  ASSERT_TRUE(client.open() && server.open()) << client.error() << server.error();
  EXPECT_EQ(client.stream->peer_names(), "");
  EXPECT_FALSE(client.stream->peer_expires());
  EXPECT_FALSE(client.stream->peer_has_name(two));
  give(client, "hello");
  run_until([&] { return server.ready & Stream::readable; });
  EXPECT_EQ(take(server, 100), "hello");
}

// A small buffer below, so that both directions fill up. Every byte arrives, in order.
TEST_P(TlsStreamTest, ManyBytesInBothDirections) {
  connect(by_secret("s"), by_secret("s"), {.records_of_key = 50, .unsent_bytes = 100'000});
  ASSERT_TRUE(client.open() && server.open());
  const std::string to_server = random_text(9'000'001, 1), to_client = random_text(5'000'003, 2);
  std::string at_server, at_client;
  std::size_t from_client = 0, from_server = 0;
  SeededRandom random(3);
  auto push = [&](End& end, const std::string& text, std::size_t& sent) {
    std::size_t chunk = std::min<std::size_t>(random.below(70'000), text.size() - sent);
    sent += give(end, std::string_view(text).substr(sent, chunk));
  };
  for (End* end : {&client, &server}) end->stream->want(Stream::readable | Stream::writable);
  run_until([&] {
    push(client, to_server, from_client);
    push(server, to_client, from_server);
    at_server += take(server, 1 + random.below(60'000));
    at_client += take(client, 1 + random.below(60'000));
    return at_server.size() == to_server.size() && at_client.size() == to_client.size();
  });
  EXPECT_TRUE(at_server == to_server && at_client == to_client);
}

// As a connection does: it writes only when it is called, and reads only when it is called.
TEST_P(TlsStreamTest, EventsAloneAreEnough) {
  connect(by_secret("s"), by_secret("s"), {.unsent_bytes = 50'000});
  const std::string text = random_text(3'000'000, 4);
  std::string got;
  std::size_t sent = give(client, text);
  ASSERT_LT(sent, text.size()) << "the stream has a bound";
  client.stream->want(Stream::readable | Stream::writable);
  client.ready = 0;
  run_until([&] {
    if (std::exchange(client.ready, 0) & Stream::writable)
      sent += give(client, std::string_view(text).substr(sent));
    if (std::exchange(server.ready, 0) & Stream::readable) got += take(server, 10'000);
    if (sent == text.size()) client.stream->want(Stream::readable);
    return got.size() == text.size();
  });
  EXPECT_TRUE(got == text);
}

// The rest of what was decrypted is announced by no event of the socket.
TEST_P(TlsStreamTest, AnOwnerThatPausesIsCalledWhenItWantsMore) {
  connect(by_secret("s"), by_secret("s"));
  give(client, "first and second");
  run_until([&] { return server.ready != 0; });
  EXPECT_EQ(take(server, 6), "first ");
  server.stream->want(0);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  server.ready = 0, server.calls = 0;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  EXPECT_EQ(server.calls, 0) << "it wants nothing";
  server.stream->want(Stream::readable);
  run_until([&] { return server.ready & Stream::readable; });
  EXPECT_EQ(take(server, 100), "and second");
}

// A part of a record is in the stream. Repeated wishes of the owner make no busy loop.
TEST_P(TlsStreamTest, APartOfARecordCallsNobody) {
  auto [of_client, relay_in] = sockets();
  auto [of_server, relay_out] = sockets();
  start(client, std::move(of_client), by_secret("s"), TlsStream::Role::client);
  start(server, std::move(of_server), by_secret("s"), TlsStream::Role::server);
  auto relay = [](const Fd& from, const Fd& to, std::size_t most) {
    char buffer[65'536];
    ssize_t n = ::recv(from.get(), buffer, std::min(most, sizeof buffer), MSG_DONTWAIT);
    if (n > 0) {
      EXPECT_EQ(::send(to.get(), buffer, static_cast<std::size_t>(n), 0), n);
    }
  };
  run_until([&] {
    relay(relay_in, relay_out, SIZE_MAX);
    relay(relay_out, relay_in, SIZE_MAX);
    return client.open() && server.open();
  });
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  give(client, "the whole record");
  relay(relay_in, relay_out, 20);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  EXPECT_EQ(take(server, 100), "");
  server.calls = 0;
  for (int i = 0; i < 10; ++i) {
    server.stream->want(0);
    server.stream->want(Stream::readable);
    ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  }
  EXPECT_EQ(server.calls, 0);
  relay(relay_in, relay_out, SIZE_MAX);
  std::string got;
  run_until([&] { return got += take(server, 100), !got.empty(); });
  EXPECT_EQ(got, "the whole record");
}

TEST_P(TlsStreamTest, AnIdleStreamCallsNobody) {
  connect(by_secret("s"), by_secret("s"));
  give(client, "x");
  run_until([&] { return server.ready != 0; });
  EXPECT_EQ(take(server, 10), "x");
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  int of_server = server.calls, of_client = client.calls;
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  EXPECT_EQ(server.calls, of_server);
  EXPECT_EQ(client.calls, of_client);
}

TEST_P(TlsStreamTest, TheEndArrivesAfterTheBytes) {
  for (bool by_close : {false, true}) {
    client = {}, server = {};
    connect(by_secret("s"), by_secret("s"));
    const std::string text = random_text(100'000, 5);
    ASSERT_EQ(give(client, text), text.size());
    by_close ? client.stream->close() : client.stream->end_output();
    std::string got;
    bool ended = false;
    run_until([&] { return got += take(server, 7'000, nullptr, &ended), ended; });
    EXPECT_TRUE(got == text);
    if (by_close) continue;
    give(server, "and back");
    run_until([&] { return got = take(client, 100), !got.empty(); });
    EXPECT_EQ(got, "and back");
  }
}

TEST_P(TlsStreamTest, ALostConnectionIsAnEnd) {
  auto [mine, theirs] = sockets();
  Fd copy(::dup(mine.get()));
  start(client, std::move(mine), by_secret("s"), TlsStream::Role::client);
  start(server, std::move(theirs), by_secret("s"), TlsStream::Role::server);
  run_until([&] { return client.open() && server.open(); });
  ::shutdown(copy.get(), SHUT_RDWR);  // without the end of TLS
  bool ended = false;
  std::string error;
  run_until([&] { return take(server, 10, &error, &ended), ended || !error.empty(); });
  EXPECT_TRUE(ended) << error;
  take(server, 10, &error, &ended);
  EXPECT_TRUE(ended) << "and stays one: " << error;
}

// As with the STARTTLS of a protocol.
TEST_P(TlsStreamTest, AServerMayBeginInClearText) {
  Site site("Twinloft");
  auto [mine, theirs] = sockets();
  server.stream = std::make_unique<TlsStream>(*loop, below(server, std::move(mine)), site.context(two));
  server.stream->start(Stream::readable, {[this](Status s) { server.opened = std::move(s); },
                                          [this](unsigned r) { server.ready |= r; }});
  ASSERT_EQ(server.stream->state(), Stream::State::open);
  ASSERT_EQ(::send(theirs.get(), "start", 5, 0), 5);
  run_until([&] { return server.ready != 0; });
  EXPECT_EQ(take(server, 100), "start");
  EXPECT_EQ(give(server, "yes"), 3u);
  char answer[4] = "";
  run_until([&] { return ::recv(theirs.get(), answer, 3, 0) == 3; });
  EXPECT_STREQ(answer, "yes");
  server.stream->secure();
  EXPECT_EQ(server.stream->state(), Stream::State::opening);
  EXPECT_FALSE(server.opened);
  start(client, std::move(theirs), site.context(one), TlsStream::Role::client);
  run_until([&] { return client.open() && server.open(); });
  EXPECT_TRUE(server.stream->peer_has_name(one));
  give(client, "hello");
  std::string got;
  run_until([&] { return got += take(server, 100), got == "hello"; });
  server.stream->close();
  bool ended = false;
  run_until([&] { return take(client, 10, nullptr, &ended), ended; });
}

TEST_P(TlsStreamTest, ByteByByteIsAsGoodAsWhole) {
  auto [of_client, relay_in] = sockets();
  auto [of_server, relay_out] = sockets();
  start(client, std::move(of_client), by_secret("s"), TlsStream::Role::client);
  start(server, std::move(of_server), by_secret("s"), TlsStream::Role::server);
  auto relay_byte = [](const Fd& from, const Fd& to) {
    char byte = 0;
    if (::recv(from.get(), &byte, 1, MSG_DONTWAIT) == 1) (void)!::send(to.get(), &byte, 1, 0);
  };
  run_until([&] {
    relay_byte(relay_in, relay_out);
    relay_byte(relay_out, relay_in);
    return client.opened && server.opened;
  });
  EXPECT_TRUE(client.open() && server.open()) << client.error() << server.error();
}

// An owner that reads no more still learns that the other side is gone, and the stream makes no busy loop.
TEST_P(TlsStreamTest, ALostOtherSideIsToldToAWriterThatDoesNotRead) {
  auto [mine, theirs] = sockets();
  start(client, std::move(mine), by_secret("s"), TlsStream::Role::client, {.unsent_bytes = 50'000});
  auto hold = std::make_unique<End>();
  start(*hold, std::move(theirs), by_secret("s"), TlsStream::Role::server);
  run_until([&] { return client.open() && hold->open(); });
  const std::string text = random_text(5'000'000, 6);
  ASSERT_LT(give(client, text), text.size());
  client.stream->want(Stream::writable);
  hold.reset();
  client.ready = 0;
  run_until([&] { return client.ready & Stream::writable; });
  std::string more = "more";
  iovec part{more.data(), more.size()};
  EXPECT_FALSE(client.stream->write({&part, 1}));
  EXPECT_FALSE(client.stream->has_unsent()) << "nothing to wait for";
  int before = client.calls;
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  EXPECT_LE(client.calls, before + 1);
}

// As a server that closes once its last answers are sent.
TEST_P(TlsStreamTest, TheEndOfTheOutputIsToldOnceAllIsSent) {
  connect(by_secret("s"), by_secret("s"), {.unsent_bytes = 300'000});
  const std::string text = random_text(5'000'000, 7);
  std::size_t sent = give(client, text);
  ASSERT_EQ(client.stream->has_unsent(), !client.stream->is_sealed_below());
  client.stream->end_output();
  ASSERT_TRUE(client.stream->has_unsent()) << "at least the end";
  client.stream->want(Stream::writable);
  client.ready = 0, client.calls = 0;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  EXPECT_EQ(client.calls, 0) << "not yet";
  std::string got;
  run_until([&] { return got += take(server, 50'000), client.ready != 0; });
  EXPECT_FALSE(client.stream->has_unsent());
  client.stream->close();
  bool ended = false;
  run_until([&] { return got += take(server, 50'000, nullptr, &ended), ended; });
  EXPECT_TRUE(got == text.substr(0, sent));
}

// Only the input has ended.
TEST_P(TlsStreamTest, AnEndWithoutTlsLeavesTheOutput) {
  auto [of_client, relay_in] = sockets();
  auto [of_server, relay_out] = sockets();
  start(client, std::move(of_client), by_secret("s"), TlsStream::Role::client);
  start(server, std::move(of_server), by_secret("s"), TlsStream::Role::server);
  auto relay = [](const Fd& from, const Fd& to) {
    char buffer[65'536];
    ssize_t n = ::recv(from.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n > 0) (void)!::send(to.get(), buffer, static_cast<std::size_t>(n), 0);
  };
  run_until([&] {
    relay(relay_in, relay_out);
    relay(relay_out, relay_in);
    return client.open() && server.open();
  });
  ::shutdown(relay_out.get(), SHUT_WR);
  bool ended = false;
  run_until([&] { return take(server, 10, nullptr, &ended), ended; });
  EXPECT_EQ(give(server, "an answer"), 9u);
  std::string got;
  run_until([&] { return relay(relay_out, relay_in), got += take(client, 100), got == "an answer"; });
}

// ---- who may not connect

struct Refusal {
  Context client, server;
  const char *at_client, *at_server;
};

TEST_P(TlsStreamTest, BothSidesNameTheReasonOfARefusal) {
  Site site("Twinloft"), other("Twinloft");
  Context a = site.context(one), b = site.context(two);
  for (const Refusal& r :
       {Refusal{by_secret("x"), by_secret("y"), "another shared secret", "another shared secret"},
        {by_secret("x", "other"), by_secret("x"), "does not use this shared secret",
         "does not use this shared secret"},
        {a, by_secret("x"), "it uses a shared secret", "does not use this shared secret"},
        {by_secret("x"), b, "uses a certificate, and this node a shared secret",
         "does not know the authority"},
        {other.context(one), b, "certificate is not valid", "does not know the authority"},
        {a, site.context(two, -5), "certificate has expired", "this node's certificate has expired"}}) {
    client = {}, server = {};
    connect(r.client, r.server);
    EXPECT_NE(client.error().find(r.at_client), std::string::npos) << client.error();
    EXPECT_NE(server.error().find(r.at_server), std::string::npos)
        << server.error() << " / " << client.error();
  }
}

// The client's handshake of TLS 1.3 has ended before the server judges.
TEST_P(TlsStreamTest, AClientLearnsAfterwardsThatItIsRefused) {
  Site site("Twinloft"), other("Another");
  connect(site.context(one, -5), site.context(two));
  EXPECT_NE(server.error().find("certificate has expired"), std::string::npos) << server.error();
  std::string error = error_of_read(client);
  EXPECT_NE(error.find("this node's certificate has expired"), std::string::npos) << error;
  TlsMaterial foreign = other.material(one);
  foreign.authorities = site.authority.certificate;
  client = {}, server = {};
  connect(TlsContext::by_certificates(foreign).value(), site.context(two));
  EXPECT_NE(server.error().find("certificate is not valid"), std::string::npos) << server.error();
  error = error_of_read(client);
  EXPECT_NE(error.find("does not know the authority of this node's certificate"), std::string::npos) << error;
}

TEST_P(TlsStreamTest, WhatIsNotTlsIsNamed) {
  for (auto role : {TlsStream::Role::server, TlsStream::Role::client})
    for (std::string words : {"TLWR\x08", "x", "HTTP/1.1 400"}) {
      auto [mine, theirs] = sockets();
      End end;
      start(end, std::move(mine), by_secret("s"), role);
      ASSERT_EQ(::send(theirs.get(), words.data(), words.size(), 0), static_cast<ssize_t>(words.size()));
      run_until([&] { return end.opened.has_value(); });
      EXPECT_NE(end.error().find("does not speak TLS"), std::string::npos) << end.error();
      EXPECT_EQ(end.stream->clear_text().empty(), false);
      if (words[0] == 'T') {
        EXPECT_EQ(end.stream->clear_text(), "TLWR");
      }
    }
}

TEST_P(TlsStreamTest, GarbageEndsTheHandshake) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    auto [mine, theirs] = sockets();
    End end;
    start(end, std::move(mine), by_secret("s"), TlsStream::Role::server);
    std::string words = "\x16\x03\x01" + random_text(40 + seed * 10, seed);
    ASSERT_GT(::send(theirs.get(), words.data(), words.size(), 0), 0);
    ::shutdown(theirs.get(), SHUT_WR);
    run_until([&] { return end.opened.has_value(); });
    EXPECT_FALSE(*end.opened);
    EXPECT_FALSE(end.error().empty());
  }
}

// A program that speaks OpenSSL without these rules.
struct Foreign {
  explicit Foreign(int fd, int version) : context(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_max_proto_version(context, version);
    ssl = SSL_new(context);
    SSL_set_fd(ssl, fd);
  }
  ~Foreign() {
    SSL_free(ssl);
    SSL_CTX_free(context);
  }
  SSL_CTX* context;
  SSL* ssl;
};

TEST_P(TlsStreamTest, AnOlderVersionOfTlsIsRefused) {
  Site site("Twinloft");
  auto [mine, theirs] = sockets();
  start(server, std::move(mine), site.context(two), TlsStream::Role::server);
  Foreign caller(theirs.get(), TLS1_2_VERSION);
  (void)SSL_connect(caller.ssl);
  run_until([&] { return server.opened.has_value(); });
  EXPECT_NE(server.error().find("only one of the two sides speaks TLS 1.3"), std::string::npos)
      << server.error();
}

TEST_P(TlsStreamTest, ACallerWithoutACertificateIsRefused) {
  Site site("Twinloft");
  auto [mine, theirs] = sockets();
  start(server, std::move(mine), site.context(two), TlsStream::Role::server);
  Foreign caller(theirs.get(), TLS1_3_VERSION);
  run_until([&] { return (void)SSL_connect(caller.ssl), server.opened.has_value(); });
  EXPECT_NE(server.error().find("has sent no certificate"), std::string::npos) << server.error();
}

// Everything that a client has sent, once more: the server's part of the key is another one.
TEST_P(TlsStreamTest, ARecordedConnectionCannotBeReplayed) {
  auto [of_client, relay_in] = sockets();
  auto [of_server, relay_out] = sockets();
  start(client, std::move(of_client), by_secret("s"), TlsStream::Role::client);
  start(server, std::move(of_server), by_secret("s"), TlsStream::Role::server);
  std::string recorded;
  auto relay = [&](const Fd& from, const Fd& to, std::string* keep) {
    char buffer[65'536];
    ssize_t n = ::recv(from.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n <= 0) return;
    if (keep) keep->append(buffer, static_cast<std::size_t>(n));
    ASSERT_EQ(::send(to.get(), buffer, static_cast<std::size_t>(n), 0), n);
  };
  bool sent = false;
  std::string got;
  run_until([&] {
    relay(relay_in, relay_out, &recorded);
    relay(relay_out, relay_in, nullptr);
    if (client.open() && server.open() && !std::exchange(sent, true)) give(client, "an order");
    if (server.open()) got += take(server, 100);
    return got == "an order";
  });
  EXPECT_EQ(recorded.find("an order"), std::string::npos) << "readable on the wire";
  auto [again, attacker] = sockets();
  End replayed;
  start(replayed, std::move(again), by_secret("s"), TlsStream::Role::server);
  ASSERT_EQ(::send(attacker.get(), recorded.data(), recorded.size(), 0),
            static_cast<ssize_t>(recorded.size()));
  run_until([&] { return replayed.opened.has_value(); });
  EXPECT_FALSE(replayed.open());
}

TEST_P(TlsStreamTest, AChangedByteIsAnError) {
  auto [of_client, relay_in] = sockets();
  auto [of_server, relay_out] = sockets();
  start(client, std::move(of_client), by_secret("s"), TlsStream::Role::client);
  start(server, std::move(of_server), by_secret("s"), TlsStream::Role::server);
  bool change = false;
  std::string error;
  run_until([&] {
    for (auto [from, to] : {std::pair{&relay_in, &relay_out}, {&relay_out, &relay_in}}) {
      char buffer[65'536];
      ssize_t n = ::recv(from->get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (n <= 0) continue;
      if (change) buffer[n - 1] ^= 1;
      EXPECT_EQ(::send(to->get(), buffer, static_cast<std::size_t>(n), 0), n);
    }
    if (client.open() && server.open() && !std::exchange(change, true)) give(client, "an order");
    if (change) {
      EXPECT_EQ(take(server, 100, &error), "");
    }
    return !error.empty();
  });
  EXPECT_NE(error.find("TLS:"), std::string::npos) << error;
}

}  // namespace
}  // namespace twinloft::repl::stream
