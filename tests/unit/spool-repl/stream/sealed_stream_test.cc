// TLS whose records the stream below makes: changes of the key, alerts, and what the stream below refuses.
#include <openssl/ssl.h>

#include "tls_fixture.h"

namespace twinloft::repl::stream {
namespace {

struct SealedStreamTest : TlsStreamTest {
  Context secret = TlsContext::by_secret("s", "replicas", Records::below).value();
  void open(TlsStream::Limits limits = {}) {
    connect(secret, secret, limits);
    ASSERT_TRUE(client.open() && server.open()) << client.error() << server.error();
    ASSERT_TRUE(client.stream->is_sealed_below() && server.stream->is_sealed_below());
  }
  std::string arrives(End& end, std::size_t bytes) {
    std::string got;
    run_until([&] { return got += take(end, bytes), got.size() >= bytes; });
    return got;
  }
};
INSTANTIATE_TEST_SUITE_P(Below, SealedStreamTest, testing::Values(Below::records), name_of_below);

const std::string key_update = std::string("\x16\x18\0\0\x01\0", 6);
const std::string close_notify = std::string("\x15\x01\0", 3);

// Both directions, with a cipher each. The other side knows the keys by the handshake alone.
TEST_P(SealedStreamTest, TheKeyChangesLongBeforeItsLimit) {
  open({.records_of_key = 20});
  for (int i = 0; i < 200; ++i) {
    const std::string text = "message " + std::to_string(i);
    ASSERT_EQ(give(client, text), text.size());
    ASSERT_EQ(arrives(server, text.size()), text);
  }
  EXPECT_GT(client.records->keys, 10u);
  EXPECT_LT(client.records->keys, 50u);
  EXPECT_EQ(server.records->keys, 1u);
  for (const std::string& record : client.records->records) EXPECT_EQ(record, key_update);
}

TEST_P(SealedStreamTest, NothingOvertakesAChangeOfTheKey) {
  open({.records_of_key = 2});
  ASSERT_EQ(give(client, "one"), 3u);
  client.records->has_room = false;
  client.stream->want(Stream::readable | Stream::writable);
  EXPECT_EQ(give(client, "two"), 0u) << "the change of the key has to go first";
  EXPECT_TRUE(client.stream->has_unsent());
  EXPECT_EQ(give(client, "two"), 0u);
  client.records->has_room = true;
  client.ready = 0;
  run_until([&] { return client.ready & Stream::writable; });
  ASSERT_EQ(give(client, "two"), 3u);
  EXPECT_EQ(arrives(server, 6), "onetwo");
  EXPECT_EQ(client.records->records, std::vector{key_update});
}

TEST_P(SealedStreamTest, AStreamThatDoesNotTakeTheNextKeyIsBroken) {
  open({.records_of_key = 2});
  ASSERT_EQ(give(client, "one"), 3u);
  client.records->keys_max = 1;
  std::string text = "two";
  iovec part{text.data(), text.size()};
  auto sent = client.stream->write({&part, 1});
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().message, "the kernel does not take the next key of TLS");
  EXPECT_FALSE(client.stream->write({&part, 1})) << "the other side uses the next key";
  client.stream->close();
  EXPECT_EQ(client.records->records, std::vector{key_update}) << "nothing more, under the old key";
}

TEST_P(SealedStreamTest, TheEndIsAnAlert) {
  open();
  ASSERT_EQ(give(client, "the last words"), 14u);
  client.stream->end_output();
  EXPECT_EQ(client.records->records, std::vector{close_notify});
  EXPECT_FALSE(client.stream->has_unsent());
  std::string more = "more";
  iovec part{more.data(), more.size()};
  EXPECT_FALSE(client.stream->write({&part, 1})) << "behind the end";
  EXPECT_EQ(arrives(server, 14), "the last words");
  bool ended = false;
  run_until([&] { return take(server, 10, nullptr, &ended), ended; });
  ASSERT_EQ(give(server, "and back"), 8u);
  EXPECT_EQ(arrives(client, 8), "and back");
}

// A program without our streams. Its bytes go through two sockets.
struct Other {
  explicit Other(const Context& context, int fd) : ssl(SSL_new(context->get()), SSL_free) {
    SSL_set_fd(ssl.get(), fd);
    SSL_set_connect_state(ssl.get());
  }
  std::string read() {
    char text[100];
    int n = SSL_read(ssl.get(), text, sizeof text);
    return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : "";
  }
  std::unique_ptr<SSL, void (*)(SSL*)> ssl;
};

// An answer is a KeyUpdate of this side, with a new key for the output (RFC 8446, 4.6.3).
TEST_P(SealedStreamTest, TheOtherSideMayAskForAChangeOfTheKey) {
  auto [mine, theirs] = sockets();
  start(server, std::move(mine), secret, TlsStream::Role::server);
  Other other(secret, theirs.get());
  run_until([&] { return SSL_do_handshake(other.ssl.get()) == 1 && server.open(); });
  ASSERT_TRUE(server.stream->is_sealed_below());
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(SSL_key_update(other.ssl.get(), SSL_KEY_UPDATE_REQUESTED), 1);
    ASSERT_EQ(SSL_write(other.ssl.get(), "ask", 3), 3);
    EXPECT_EQ(arrives(server, 3), "ask");
    ASSERT_EQ(give(server, "answer"), 6u);
    std::string got;
    run_until([&] { return got += other.read(), got == "answer"; });
    EXPECT_EQ(server.records->records, std::vector(i + 1, key_update));
  }
  EXPECT_EQ(server.records->keys, 4u);
  EXPECT_EQ(server.records->records, std::vector(3, key_update));
}

TEST_P(SealedStreamTest, QuestionsForNewKeysDoNotPileUp) {
  auto [mine, theirs] = sockets();
  start(server, std::move(mine), secret, TlsStream::Role::server);
  Other other(secret, theirs.get());
  run_until([&] { return SSL_do_handshake(other.ssl.get()) == 1 && server.open(); });
  server.records->has_room = false;
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(SSL_key_update(other.ssl.get(), SSL_KEY_UPDATE_REQUESTED), 1);
    ASSERT_EQ(SSL_write(other.ssl.get(), "ask", 3), 3);
    EXPECT_EQ(arrives(server, 3), "ask");
  }
  server.records->has_room = true;
  ASSERT_EQ(give(server, "answer"), 6u);
  std::string got;
  run_until([&] { return got += other.read(), got == "answer"; });
  EXPECT_EQ(server.records->records, std::vector{key_update});
}

TEST_P(SealedStreamTest, TheOtherSideLearnsOfADamagedRecord) {
  auto [mine, theirs] = sockets();
  Fd wire(::dup(theirs.get()));
  start(server, std::move(mine), secret, TlsStream::Role::server);
  Other other(secret, theirs.get());
  run_until([&] { return SSL_do_handshake(other.ssl.get()) == 1 && server.open(); });
  const std::string damaged = std::string("\x17\x03\x03\0\x20", 5) + std::string(32, 'x');
  ASSERT_EQ(::send(wire.get(), damaged.data(), damaged.size(), 0), static_cast<ssize_t>(damaged.size()));
  EXPECT_NE(error_of_read(server).find("TLS:"), std::string::npos);
  server.stream->close();
  EXPECT_EQ(server.records->records, std::vector{std::string("\x15\x02\x14")}) << "fatal, bad_record_mac";
  EXPECT_EQ(other.read(), "");
  EXPECT_EQ(SSL_get_error(other.ssl.get(), -1), SSL_ERROR_SSL) << "an alert, not only the end";
}

TEST_P(SealedStreamTest, ByItsContextOpenSslMakesTheRecords) {
  connect(secret, TlsContext::by_secret("s", "replicas").value());
  ASSERT_TRUE(client.open() && server.open()) << client.error() << server.error();
  EXPECT_TRUE(client.stream->is_sealed_below());
  EXPECT_FALSE(server.stream->is_sealed_below());
  EXPECT_EQ(server.records->keys, 0u);
  ASSERT_EQ(give(server, "hello"), 5u);
  EXPECT_EQ(arrives(client, 5), "hello");
}

// OpenSSL goes on then.
TEST_P(SealedStreamTest, AStreamThatMakesNoRecordsLeavesThemToOpenSsl) {
  auto [one, two] = sockets();
  start(client, std::move(one), secret, TlsStream::Role::client);
  start(server, std::move(two), secret, TlsStream::Role::server);
  client.records->keys_max = 0;
  run_until([&] { return client.open() && server.open(); });
  EXPECT_FALSE(client.stream->is_sealed_below());
  EXPECT_TRUE(server.stream->is_sealed_below());
  ASSERT_EQ(give(client, "hello"), 5u);
  ASSERT_EQ(give(server, "and hello"), 9u);
  EXPECT_EQ(arrives(server, 5), "hello");
  EXPECT_EQ(arrives(client, 9), "and hello");
}

}  // namespace
}  // namespace twinloft::repl::stream
