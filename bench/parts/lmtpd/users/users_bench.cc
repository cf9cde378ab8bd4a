// users_bench --config FILE [--threads N] [--seconds S] [--users N]: look-ups a second in the user database
// of an lmtpd.toml. They work as in the server process: from the cache if possible, otherwise from the source
// (in its own process, if it has one). Addresses are random, from u0@example.org to u<N-1>@example.org.
// Prints one line of JSON, with times in microseconds. Run it as lmtpd's user.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/program_options.hpp>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/json.h"
#include "twinloft/base/random.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/users/users.h"

namespace {

using namespace twinloft;
using namespace twinloft::lmtpd;
namespace po = boost::program_options;

struct Options {
  std::string config;
  std::size_t threads = 8, users = 1'000'000;
  double seconds = 5;
};

struct Counts {
  std::vector<double> us;
  std::size_t from_memory = 0;
  std::string error;
};

void ask(Directory& directory, const Options& options, std::uint64_t seed, const std::atomic<bool>& stop,
         Counts& counts) {
  OsClock clock;
  SeededRandom random(seed);
  while (!stop) {
    LookupRequest request{fmt::format("u{}", random.below(options.users)), {}, "example.org"};
    Instant begin = clock.now();
    std::optional<LookupResult> found = directory.lookup_now(request);
    if (found)
      ++counts.from_memory;
    else
      found = directory.lookup(request);
    counts.us.push_back(static_cast<double>((clock.now() - begin).count()) / 1e3);
    if (!*found || !**found) {
      counts.error = *found ? request.local_part + " is not there" : found->error().message;
      return;
    }
  }
}

int run(const Options& options) {
  auto config = load_config(options.config);
  OsClock clock;
  auto identity = config ? find_identity(config->user, config->group) : std::unexpected(config.error());
  Status filled = identity ? fill_user_ids(config->users, *identity) : std::unexpected(identity.error());
  if (!filled) return std::cerr << filled.error().message << "\n", 1;
  auto started = start_users(config->users, [] { return Status(); }, clock);
  auto directory = started ? open_users(config->users, clock, std::move(*started))
                           : std::unexpected(started.error());
  if (!directory) return std::cerr << directory.error().message << "\n", 1;
  std::vector<Counts> counts(options.threads);
  std::vector<std::thread> threads;
  std::atomic<bool> stop{false};
  Instant begin = clock.now();
  for (std::size_t i = 0; i < options.threads; ++i)
    threads.emplace_back([&, i] { ask(**directory, options, i + 1, stop, counts[i]); });
  std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
  stop = true;
  for (std::thread& t : threads) t.join();
  double seconds = static_cast<double>((clock.now() - begin).count()) / 1e9;
  std::vector<double> all;
  std::size_t from_memory = 0;
  for (const Counts& c : counts) {
    if (!c.error.empty()) return std::cerr << c.error << "\n", 1;
    all.insert(all.end(), c.us.begin(), c.us.end());
    from_memory += c.from_memory;
  }
  std::sort(all.begin(), all.end());
  auto at = [&](double part) {
    return all[static_cast<std::size_t>(part * static_cast<double>(all.size() - 1))];
  };
  const auto count = static_cast<double>(all.size());
  std::cout << json::serialize(json::object{{"rate", count / seconds},
                                            {"p50", at(0.5)},
                                            {"p99", at(0.99)},
                                            {"max", all.back()},
                                            {"from_memory", static_cast<double>(from_memory) / count}})
            << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  po::options_description known;
  known.add_options()("config", po::value(&options.config)->required())(
      "threads", po::value(&options.threads))("seconds", po::value(&options.seconds))(
      "users", po::value(&options.users));
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, known), given);
    po::notify(given);
    return run(options);
  } catch (const std::exception& e) {
    std::cerr << "users_bench: " << e.what() << "\n";
    return 1;
  }
}
