// TLS over TCP, with the records of the kernel where it has TLS. Elsewhere OpenSSL makes them, and the tests
// hold too.
#include "twinloft/spool-repl/stream/kernel_tls.h"

#include "tls_fixture.h"

namespace twinloft::repl::stream {
namespace {

struct KernelTlsTest : TlsStreamTest {
  void open(TlsStream::Limits limits = {}) {
    Site site("Twinloft");
    connect(site.context("twinloft:volume/replica/1"), site.context("twinloft:volume/replica/2"), limits);
    ASSERT_TRUE(client.open() && server.open()) << client.error() << server.error();
    const bool by_kernel = kernel_has_tls(RecordCipher::aes_128_gcm).has_value();
    EXPECT_EQ(client.stream->is_sealed_below(), by_kernel);
    EXPECT_EQ(server.stream->is_sealed_below(), by_kernel);
    RecordProperty("records_of", by_kernel ? "the kernel" : "OpenSSL");
  }
};
INSTANTIATE_TEST_SUITE_P(Below, KernelTlsTest, testing::Values(Below::kernel), name_of_below);

TEST_P(KernelTlsTest, ManyBytesInBothDirectionsWithManyKeys) {
  open({.records_of_key = 40, .unsent_bytes = 100'000});
  const std::string to_server = random_text(20'000'001, 1), to_client = random_text(9'000'003, 2);
  std::string at_server, at_client;
  std::size_t from_client = 0, from_server = 0;
  SeededRandom random(3);
  auto push = [&](End& end, const std::string& text, std::size_t& sent) {
    std::size_t chunk = std::min<std::size_t>(random.below(200'000), text.size() - sent);
    if (chunk > 0) sent += give(end, std::string_view(text).substr(sent, chunk));
  };
  for (End* end : {&client, &server}) end->stream->want(Stream::readable | Stream::writable);
  run_until([&] {
    push(client, to_server, from_client);
    push(server, to_client, from_server);
    at_server += take(server, 1 + random.below(150'000));
    at_client += take(client, 1 + random.below(150'000));
    return at_server.size() >= to_server.size() && at_client.size() >= to_client.size();
  });
  EXPECT_TRUE(at_server == to_server && at_client == to_client);
}

// As a connection does: it writes only when it is called, and reads only when it is called.
TEST_P(KernelTlsTest, EventsAloneAreEnough) {
  open({.records_of_key = 30, .unsent_bytes = 50'000});
  const std::string text = random_text(30'000'000, 4);
  std::string got;
  std::size_t sent = give(client, text);
  client.stream->want(Stream::readable | Stream::writable);
  run_until([&] {
    if (sent < text.size() && (std::exchange(client.ready, 0) & Stream::writable))
      sent += give(client, std::string_view(text).substr(sent));
    if (std::exchange(server.ready, 0) & Stream::readable) got += take(server, 100'000);
    if (sent == text.size()) client.stream->want(Stream::readable);
    return got.size() >= text.size();
  });
  EXPECT_TRUE(got == text);
}

TEST_P(KernelTlsTest, TheEndArrivesAfterTheBytes) {
  open({.unsent_bytes = 300'000});
  const std::string text = random_text(30'000'000, 7);
  std::size_t sent = give(client, text);
  ASSERT_LT(sent, text.size()) << "the connection is full";
  client.stream->end_output();
  client.stream->want(Stream::writable);
  client.ready = 0;
  std::string got;
  run_until([&] { return got += take(server, 50'000), !client.stream->has_unsent(); });
  bool ended = false;
  run_until([&] { return got += take(server, 50'000, nullptr, &ended), ended; });
  EXPECT_TRUE(got == text.substr(0, sent)) << got.size() << " of " << sent;
  ASSERT_EQ(give(server, "and back"), 8u);
  std::string back;
  run_until([&] { return back += take(client, 100), back == "and back"; });
}

TEST_P(KernelTlsTest, ACloseSendsWhatTheSystemHas) {
  open();
  ASSERT_EQ(give(client, "the last words"), 14u);
  client.stream->close();
  std::string got;
  bool ended = false;
  run_until([&] { return got += take(server, 100, nullptr, &ended), ended; });
  EXPECT_EQ(got, "the last words");
}

TEST_P(KernelTlsTest, SmallMessagesArriveAtOnce) {
  open();
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(give(client, "a message"), 9u);
    std::string got;
    run_until([&] { return got += take(server, 100), got.size() >= 9; });
    ASSERT_EQ(got, "a message");
    ASSERT_EQ(give(server, "an answer"), 9u);
    got.clear();
    run_until([&] { return got += take(client, 100), got.size() >= 9; });
    ASSERT_EQ(got, "an answer");
  }
}

}  // namespace
}  // namespace twinloft::repl::stream
