// Two nodes over loopback on the real event loop, in clear text, and a caller played by the test.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "../support/test_clock.h"
#include "sample_volume.h"
#include "twinloft/base/crc32c.h"
#include "twinloft/spool-repl/io/uring_loop.h"
#include "twinloft/spool-repl/net/peer_net.h"

namespace twinloft::repl::net {

// A port of 127.0.0.1, reserved for the lifetime of this object.
class Port {
 public:
  Port() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    int one = 1;
    setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&in), sizeof in), 0);
    socklen_t length = sizeof in;
    EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&in), &length), 0);
    number = ntohs(in.sin_port);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(number); }
  std::uint16_t number = 0;

 private:
  Fd fd_;
};

struct PeerNetTest : testing::Test {
  TestClock clock;
  OsRandom random;
  std::unique_ptr<io::UringLoop> loop = io::UringLoop::create(clock, {.entries = 64}).value();
  Port ports[3];

  struct Node {
    std::unique_ptr<PeerNet> net;
    int ups = 0, downs = 0;
    std::string order;
    std::vector<PeerMessage> got;
    std::vector<std::string> notices;
    std::map<ReplicaId, std::string> unfit;
    bool up() const { return ups > downs; }
    bool noticed(std::string_view text) const {
      for (const auto& n : notices)
        if (n.find(text) != std::string::npos) return true;
      return false;
    }
  };
  Node a, b;

  NetOptions options(ReplicaId self, ReplicaId peer) {
    NetOptions o;
    o.self = {volume, 1000, self};
    o.listen = {ports[self].address()};
    o.peers = {{peer, {ports[peer].address()}}};
    o.redial = o.redial_refused = std::chrono::milliseconds(5);
    return o;
  }
  Status start(Node& n, NetOptions o) {
    n.net = std::make_unique<PeerNet>(
        *loop, std::move(o), random,
        NetEvents{[&n](ReplicaId) { n.ups++, n.order += "up "; },
                  [&n](ReplicaId) { n.downs++, n.order += "down "; },
                  [&n](ReplicaId, PeerMessage m) { n.got.push_back(std::move(m)); },
                  [&n](ReplicaId, const std::string& text) { n.notices.push_back(text); },
                  [&n](ReplicaId id, const std::string& text, bool) { n.unfit[id] = text; }});
    return n.net->start();
  }
  void start_both() {
    ASSERT_TRUE(start(a, options(1, 2)));
    ASSERT_TRUE(start(b, options(2, 1)));
  }
  // The test program's time limit ends a loop that never gets there.
  template <class Predicate>
  void run_until(Predicate done) {
    while (!done()) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(10)));
  }
  void connect_both() {
    start_both();
    run_until([&] { return a.up() && b.up(); });
  }

  void expect_arrives(const RecordMessage& m) {
    ByteSpan pieces[] = {m.meta, m.payload};
    a.net->send_record(2, m.epoch, static_cast<std::uint32_t>(m.meta.size()), pieces);
    a.net->flush();
    run_until([&] { return !b.got.empty(); });
    EXPECT_TRUE(b.got[0] == PeerMessage(m));
  }

  // A connection of the test to b's port.
  Fd call(int host = 1) {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK + static_cast<unsigned>(host - 1));
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
    Address to = *numeric_address(ports[2].address());
    int rc = ::connect(fd.get(), reinterpret_cast<sockaddr*>(&to.storage), to.length);
    EXPECT_TRUE(rc == 0 || errno == EINPROGRESS);
    return fd;
  }
  void say(const Fd& fd, ByteSpan bytes) {
    std::size_t sent = 0;
    run_until([&] {
      ssize_t n = ::send(fd.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n > 0) sent += static_cast<std::size_t>(n);
      EXPECT_TRUE(n > 0 || errno == EAGAIN || errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
          << errno;
      return sent == bytes.size() || (n < 0 && (errno == EPIPE || errno == ECONNRESET));
    });
  }
  // All bytes from the other side until it closes.
  std::vector<std::byte> hear_until_closed(const Fd& fd) {
    std::vector<std::byte> all;
    run_until([&] {
      std::byte buffer[4096];
      ssize_t n = ::recv(fd.get(), buffer, sizeof buffer, 0);
      if (n > 0) all.insert(all.end(), buffer, buffer + n);
      return n == 0 || (n < 0 && errno != EAGAIN && errno != ENOTCONN);
    });
    return all;
  }
  std::vector<std::byte> hear(const Fd& fd, std::size_t bytes) {
    std::vector<std::byte> all(bytes);
    std::size_t have = 0;
    run_until([&] {
      ssize_t n = ::recv(fd.get(), all.data() + have, bytes - have, 0);
      EXPECT_NE(n, 0) << "closed";
      if (n == 0) return true;
      if (n > 0) have += static_cast<std::size_t>(n);
      return have == bytes;
    });
    return all;
  }
  static std::vector<std::byte> framed(std::uint16_t type, ByteSpan payload) {
    std::vector<std::byte> out(wire_header_bytes);
    encode_wire_header({type, static_cast<std::uint32_t>(payload.size()), crc32c(payload)}, out);
    out.insert(out.end(), payload.begin(), payload.end());
    return out;
  }
  // Connects as replica 1, of a release without frames.
  Fd connect_as_1(bool with_trial = true) {
    Fd fd = call();
    Handshake mine({volume, 1000, 1, {}, feature_buffers}, ByStream{}, Handshake::Direction::dialed, 2,
                   random);
    for (const auto& m : mine.take_output()) say(fd, framed(m.type, m.payload));
    auto header = decode_wire_header(hear(fd, wire_header_bytes));
    EXPECT_TRUE(mine.receive(header->type, hear(fd, header->payload_bytes)).value());
    if (with_trial) pass_trial(fd);
    return fd;
  }
  static constexpr std::size_t trial_bytes = 128 * 1024;
  static std::vector<std::byte> framed(WireType type, std::size_t zeros = 0) {
    return framed(static_cast<std::uint16_t>(type), std::vector<std::byte>(zeros));
  }
  void pass_trial(const Fd& fd) {
    say(fd, framed(WireType::trial, trial_bytes));
    say(fd, framed(WireType::trial_taken));
    std::multiset<std::uint16_t> heard;
    for (int i = 0; i < 2; ++i) {
      auto header = decode_wire_header(hear(fd, wire_header_bytes));
      heard.insert(header->type);
      hear(fd, header->payload_bytes);
    }
    EXPECT_EQ(heard, (std::multiset<std::uint16_t>{static_cast<std::uint16_t>(WireType::trial),
                                                   static_cast<std::uint16_t>(WireType::trial_taken)}));
  }
};

}  // namespace twinloft::repl::net
