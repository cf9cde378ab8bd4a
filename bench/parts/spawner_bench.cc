// spawner_bench [seconds per cell] [command]: the rate at which the spawner starts and finishes agents, by
// number of parallel agents. The default command does nothing, so the result is the spawner's own cost. As
// root, agents run as uid 65534.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/agents/spawner.h"

namespace {

using namespace twinloft;
using namespace twinloft::lmtpd;

RunRequest make_request() {
  constexpr unsigned nobody = 65534;
  RunRequest request;
  request.id = "bench";
  request.user = "nobody";
  request.uid = ::geteuid() == 0 ? nobody : ::geteuid();
  request.gid = ::geteuid() == 0 ? nobody : ::getegid();
  request.home = "/";
  request.values = {{"from", "a@example.org"}, {"to", "b@example.org"}, {"home", "/"}};
  return request;
}

void client(const Spawner& spawner, const std::atomic<bool>& stop, std::vector<double>& latencies) {
  OsClock clock;
  RunRequest request = make_request();
  Fd message(::memfd_create("message", MFD_CLOEXEC));
  if (!write_all(message.get(), as_bytes(std::string_view("Subject: x\n\nbody\n")))) std::exit(1);
  while (!stop) {
    Instant begin = clock.now();
    RunResult result = spawner.run(request, message.get());
    if (result.end != RunResult::End::exited) {
      fmt::print(stderr, "run ended with {} {} {}\n", static_cast<int>(result.end), result.value,
                 result.output);
      std::exit(1);
    }
    latencies.push_back(static_cast<double>((clock.now() - begin).count()) / 1e3);
  }
}

void print_row(const Spawner& spawner, std::size_t clients, double seconds) {
  OsClock clock;
  std::atomic<bool> stop{false};
  std::vector<std::vector<double>> latencies(clients);
  std::vector<std::thread> threads;
  Instant start = clock.now();
  for (auto& l : latencies) threads.emplace_back([&] { client(spawner, stop, l); });
  ::usleep(static_cast<useconds_t>(seconds * 1e6));
  stop = true;
  for (auto& t : threads) t.join();
  double elapsed = static_cast<double>((clock.now() - start).count()) / 1e9;
  std::vector<double> all;
  for (auto& l : latencies) all.insert(all.end(), l.begin(), l.end());
  std::sort(all.begin(), all.end());
  fmt::print("| {} | {:.0f} | {:.0f} | {:.0f} |\n", clients, static_cast<double>(all.size()) / elapsed * 60,
             all[all.size() / 2], all[all.size() * 99 / 100]);
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = argc > 1 ? std::atof(argv[1]) : 3;
  AgentSpec spec;
  spec.name = "bench";
  spec.command = argc > 2 ? argv[2] : "/bin/true";
  auto spawner = Spawner::start({spec});
  if (!spawner) {
    fmt::print(stderr, "{}\n", spawner.error().message);
    return 1;
  }
  fmt::print("| clients | runs/min | p50 us | p99 us |\n|---|---|---|---|\n");
  for (std::size_t clients : {1, 4, 12, 32}) print_row(**spawner, clients, seconds);
}
