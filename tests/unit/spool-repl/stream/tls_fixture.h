// Certificates of a test's own authorities, and two ends of TLS over a pair of sockets.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>

#include "record_maker.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/random.h"
#include "twinloft/spool-repl/io/uring_loop.h"
#include "twinloft/spool-repl/stream/socket_stream.h"
#include "twinloft/spool-repl/stream/tls_stream.h"
#include "twinloft/tls/authority.h"

namespace twinloft::repl::stream {

using Context = std::shared_ptr<const TlsContext>;

struct Site {
  explicit Site(const std::string& name)
      : authority(tls::make_authority(name, {OsClock().wall(), 30}).value()) {}
  // days: negative for a certificate that has ended.
  TlsMaterial material(const std::string& uri, std::int64_t days = 10) const {
    WallTime now = OsClock().wall();
    if (days < 0) now.seconds -= 10 * 86'400, days += 10;
    auto made = tls::issue(authority, {"a replica", {uri}}, {now, days}).value();
    return {made.certificate, made.key, authority.certificate};
  }
  Context context(const std::string& uri, std::int64_t days = 10) const {
    return TlsContext::by_certificates(material(uri, days), Records::below).value();
  }
  tls::CertificateAndKey authority;
};

struct End {
  std::unique_ptr<TlsStream> stream;
  RecordMaker* records = nullptr;  // below the stream, if the test has them
  std::optional<Status> opened;
  unsigned ready = 0;
  int calls = 0;
  bool open() const { return opened && *opened; }
  std::string error() const { return opened && !*opened ? opened->error().message : ""; }
};

// What makes the records of the output after the handshake.
enum class Below {
  openssl,
  records,  // RecordMaker
  kernel,   // over TCP; a kernel without TLS leaves it to OpenSSL
};

inline std::string name_of_below(const testing::TestParamInfo<Below>& info) {
  return info.param == Below::openssl ? "OpenSsl" : info.param == Below::records ? "Records" : "Kernel";
}

inline std::string random_text(std::size_t bytes, std::uint64_t seed) {
  std::string text(bytes, '\0');
  SeededRandom(seed).fill(std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

inline std::pair<Fd, Fd> tcp_pair() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  const Fd listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::bind(listening.get(), any, size), 0);
  EXPECT_EQ(::listen(listening.get(), 1), 0);
  EXPECT_EQ(::getsockname(listening.get(), any, &size), 0);
  Fd one(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(one.get(), any, size), 0);
  Fd two(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  EXPECT_EQ(::fcntl(one.get(), F_SETFL, O_NONBLOCK), 0);
  return {std::move(one), std::move(two)};
}

struct TlsStreamTest : testing::TestWithParam<Below> {
  OsClock clock;
  std::unique_ptr<io::UringLoop> loop = io::UringLoop::create(clock, {.entries = 16}).value();
  End client, server;

  void start(End& end, Fd socket, Context context, TlsStream::Role role, TlsStream::Limits limits = {}) {
    end.stream = std::make_unique<TlsStream>(*loop, below(end, std::move(socket)), std::move(context), role,
                                             limits);
    end.stream->start(Stream::readable, {[&end](Status s) { end.opened = std::move(s); },
                                         [&end](unsigned r) { end.ready |= r, ++end.calls; }});
  }
  std::unique_ptr<Stream> below(End& end, Fd socket) const {
    auto plain = std::make_unique<SocketStream>(*loop, std::move(socket));
    if (GetParam() != Below::records) return plain;
    auto records = std::make_unique<RecordMaker>(std::move(plain));
    end.records = records.get();
    return records;
  }
  static std::pair<Fd, Fd> sockets() {
    if (GetParam() == Below::kernel) return tcp_pair();
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    return {Fd(pair[0]), Fd(pair[1])};
  }
  void connect(Context of_client, Context of_server, TlsStream::Limits limits = {}) {
    auto [one, two] = sockets();
    start(client, std::move(one), std::move(of_client), TlsStream::Role::client, limits);
    start(server, std::move(two), std::move(of_server), TlsStream::Role::server, limits);
    run_until([&] { return client.opened && server.opened; });
  }
  template <class Predicate>
  void run_until(Predicate done) {
    while (!done()) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(10)));
  }
  // What has arrived, or nothing. error: the failure.
  static std::string take(End& end, std::size_t room, std::string* error = nullptr, bool* ended = nullptr) {
    std::string text(room, '\0');
    iovec parts[2] = {{text.data(), room / 3}, {text.data() + room / 3, room - room / 3}};
    auto got = end.stream->read(parts);
    if (!got) {
      if (error) *error = got.error().message;
      return "";
    }
    if (ended) *ended = got->ended;
    text.resize(got->bytes);
    return text;
  }
  static std::size_t give(End& end, std::string_view text) {
    iovec parts[2] = {{const_cast<char*>(text.data()), text.size() / 2},
                      {const_cast<char*>(text.data()) + text.size() / 2, text.size() - text.size() / 2}};
    return end.stream->write(parts).value();
  }
  std::string error_of_read(End& end) {
    std::string error;
    bool ended = false;
    run_until([&] { return take(end, 10, &error, &ended), !error.empty() || ended; });
    return error;
  }
};

}  // namespace twinloft::repl::stream
