// Records between two nodes over loopback, in one thread: the cost of a record without the core. `strace -f
// -c` shows its system calls.
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <boost/program_options.hpp>
#include <cstdio>
#include <iostream>

#include "twinloft/spool-repl/io/uring_loop.h"
#include "twinloft/spool-repl/net/peer_net.h"

namespace twinloft::repl {
namespace {

std::string free_address() {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof in;
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&in), sizeof in) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&in), &length) != 0)
    return "";
  return "127.0.0.1:" + std::to_string(ntohs(in.sin_port));
}

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

struct Node {
  std::unique_ptr<net::PeerNet> net;
  bool up = false;
  std::uint64_t got = 0;
};

struct Paths {
  std::size_t count = 1;
  stream::PathUse use = stream::PathUse::spares;
};

Status start(Node& node, io::UringLoop& loop, Random& random, const std::vector<std::string>& own,
             const std::vector<std::string>& other, ReplicaId id, const net::LinkSecurity& security,
             const Paths& paths) {
  net::NetOptions options;
  options.self = {Uuid::parse("2f2e2d2c-4b5a-4978-8695-a4b3c2d1e0ff").value(), 1000, id};
  options.listen = own;
  options.peers = {{3 - id, other}};
  options.peers[0].paths = paths.use;
  options.security = security;
  node.net = std::make_unique<net::PeerNet>(
      loop, std::move(options), random,
      net::NetEvents{[&node](ReplicaId) { node.up = true; }, [](ReplicaId) {},
                     [&node](ReplicaId, PeerMessage) { ++node.got; },
                     [](ReplicaId, const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }});
  return node.net->start();
}

// Replica 1 sends `records`, at most `window` beyond the acknowledged ones. Replica 2 acknowledges each.
// records_of: nothing for clear text.
Status run(std::uint64_t records, std::uint64_t window, std::size_t blocks,
           std::optional<stream::Records> records_of, const Paths& paths) {
  OsClock clock;
  OsRandom random;
  TL_TRY_ASSIGN(auto loop, io::UringLoop::create(clock));
  std::vector<std::string> one, two;
  for (std::size_t i = 0; i < paths.count; ++i) one.push_back(free_address()), two.push_back(free_address());
  Node a, b;
  net::LinkSecurity security;
  if (records_of) {
    TL_TRY_ASSIGN(security.tls,
                  stream::TlsContext::by_secret("of the measurement", "link_bench", *records_of));
  }
  TL_TRY(start(b, *loop, random, two, one, 2, security, paths));
  TL_TRY(start(a, *loop, random, one, two, 1, security, paths));
  auto usable = [&](const Node& node, ReplicaId peer) {
    std::size_t count = 0;
    for (const auto& p : node.net->paths(peer)) count += p.state == net::PathStatus::State::usable;
    return paths.count == 1 || count == paths.count;
  };
  while (!a.up || !b.up || !usable(a, 2) || !usable(b, 1)) TL_TRY(loop->turn(std::chrono::milliseconds(10)));
  if (records_of == stream::Records::below && !a.net->protection(2)->by_kernel)
    return fail(Errc::unavailable, "this kernel has no TLS, or cannot change keys (Linux before 6.14)");

  constexpr std::uint32_t meta_bytes = 512;
  std::vector<std::byte> meta(meta_bytes), payload(blocks * block_size);
  random.fill(payload);
  ByteSpan pieces[] = {meta, payload};
  std::uint64_t sent = 0, acknowledged = 0;
  Instant begin = clock.now();
  double cpu = cpu_seconds();
  while (a.got < records) {
    for (; sent < records && sent - b.got < window; ++sent) a.net->send_record(2, {}, meta_bytes, pieces);
    for (; acknowledged < b.got; ++acknowledged) b.net->send(1, Ack{});
    a.net->flush();
    b.net->flush();
    TL_TRY(loop->turn(std::chrono::milliseconds(10)));
  }
  auto took = std::chrono::duration<double>(clock.now() - begin).count();
  cpu = cpu_seconds() - cpu;
  auto n = static_cast<double>(records);
  std::printf("%llu records of %zu KiB, %llu ahead: %.1f us and %.1f us of processor time each, %.0f MiB/s\n",
              static_cast<unsigned long long>(records), payload.size() >> 10,
              static_cast<unsigned long long>(window), took / n * 1e6, cpu / n * 1e6,
              n * static_cast<double>(payload.size()) / (1 << 20) / took);
  return {};
}

}  // namespace
}  // namespace twinloft::repl

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  po::options_description options("link_bench: records between two nodes over loopback");
  options.add_options()("help", "this text")("records", po::value<std::uint64_t>()->default_value(20000),
                                             "how many")(
      "window", po::value<std::uint64_t>()->default_value(4), "how many are sent ahead")(
      "blocks", po::value<std::size_t>()->default_value(8), "blocks of 4 KiB in each")(
      "tls", "with TLS, by OpenSSL")("kernel-tls", "with TLS, by the kernel for what is sent")(
      "paths", po::value<std::size_t>()->default_value(1), "of the link, 1 to 8")(
      "together", "all paths carry; else one does");
  po::variables_map given;
  po::store(po::parse_command_line(argc, argv, options), given);
  if (given.contains("help")) return std::cout << options, 0;
  if (std::size_t n = given["paths"].as<std::size_t>(); n < 1 || n > twinloft::repl::net::paths_max) {
    std::fprintf(stderr, "--paths: 1 to %u\n", twinloft::repl::net::paths_max);
    return 2;
  }
  std::optional<twinloft::repl::stream::Records> records_of;
  if (given.contains("tls")) records_of = twinloft::repl::stream::Records::openssl;
  if (given.contains("kernel-tls")) records_of = twinloft::repl::stream::Records::below;
  auto done = twinloft::repl::run(given["records"].as<std::uint64_t>(), given["window"].as<std::uint64_t>(),
                                  given["blocks"].as<std::size_t>(), records_of,
                                  {given["paths"].as<std::size_t>(),
                                   given.contains("together") ? twinloft::repl::stream::PathUse::together
                                                              : twinloft::repl::stream::PathUse::spares});
  if (done) return 0;
  std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return 1;
}
