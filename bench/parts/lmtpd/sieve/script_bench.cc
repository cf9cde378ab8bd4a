// script_bench DIRECTORY [users]: the cost of the look whether a user has a Sieve script. Prints the time of
// a look for users with a script and without, and the time of a delivery by the built-in agent with the look
// and without, in alternation: the medians of the rounds, and the least to the most. DIRECTORY is used as the
// spool, with a home for each user. Remove its contents afterwards. If started as root, the program runs as
// uid 65534.
#include <fmt/format.h>
#include <grp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "../../figures.h"
#include "twinloft/base/log.h"
#include "twinloft/lmtpd/delivery/service.h"
#include "twinloft/lmtpd/sieve/script_look.h"

namespace {

using namespace twinloft;
using namespace twinloft::lmtpd;

constexpr unsigned mail_uid = 65534;
constexpr int rounds = 9;

double now_ns() {
  return static_cast<double>(std::chrono::steady_clock::now().time_since_epoch() /
                             std::chrono::nanoseconds(1));
}

Recipient user_in(const std::string& spool, std::size_t number) {
  Recipient r;
  r.user.name = fmt::format("user{}@example.org", number);
  r.text = r.user.name;
  r.user.uid = ::geteuid();
  r.user.gid = ::getegid();
  r.user.home = fmt::format("{}/example.org/user{}", spool, number);
  r.user.maildir = r.user.home + "/Maildir";
  return r;
}

// Users with an even number have a script.
std::vector<Recipient> make_users(const std::string& spool, std::size_t count) {
  std::vector<Recipient> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(user_in(spool, i));
    std::filesystem::create_directories(out.back().user.home);
    if (i % 2 == 0) std::ofstream(out.back().user.home + "/.dovecot.sieve") << "keep;\n";
  }
  return out;
}

ScriptRule rule() {
  ByFile by_file;
  by_file.any_of.push_back(ScriptPath::parse("~/.dovecot.sieve", true).value());
  return by_file;
}

// Nanoseconds of a look, for every second user from `first`.
double time_looks(const std::vector<Recipient>& users, std::size_t first, const Spool& spool,
                  const SpoolHandle& handle, FileOps& ops) {
  const ScriptRule by_file = rule();
  std::size_t looks = 0;
  double start = now_ns();
  for (std::size_t i = first; i < users.size(); i += 2, ++looks) {
    auto found = has_script(by_file, users[i].user, handle, spool, ops);
    if (!found || *found != (first == 0)) std::abort();
  }
  return (now_ns() - start) / static_cast<double>(looks);
}

// Microseconds of a delivery to users without a script.
double time_deliveries(DeliveryService& service, const std::vector<Recipient>& users,
                       const MessageBody& body) {
  Envelope envelope;
  envelope.from = "a@example.org";
  std::size_t count = 0;
  double start = now_ns();
  for (std::size_t i = 1; i < users.size() && count < 500; i += 2, ++count)
    if (service.deliver(envelope, users[i], body).reply.code != 250) std::abort();
  return (now_ns() - start) / 1e3 / static_cast<double>(count);
}

int run(const std::string& directory, std::size_t count) {
  OsFileOps ops;
  OsClock clock;
  std::vector<Recipient> users = make_users(directory, count);
  auto spool = Spool::create({directory, std::nullopt}, ops).value();
  SpoolHandle handle = spool->open().value();
  std::vector<double> with_script, without;
  for (int i = 0; i < rounds; ++i) {
    with_script.push_back(time_looks(users, 0, *spool, handle, ops));
    without.push_back(time_looks(users, 1, *spool, handle, ops));
  }
  fmt::print("a look, ns, {} users: with a script {}, without {}\n", count, bench::spread(with_script, 0),
             bench::spread(without, 0));
  DeliveryConfig config;
  config.hostname = "mail.example.org";
  config.spool.root = directory;
  auto plain = DeliveryService::create(config, nullptr, clock).value();
  config.sieve.next_hop = "dovecot";
  config.sieve.scripts = rule();
  auto looking = DeliveryService::create(config, nullptr, clock).value();
  MessageBody body;
  body.memory = "Subject: x\r\n\r\n" + std::string(4096, 'x') + "\r\n";
  body.size = body.memory.size();
  (void)time_deliveries(*plain, users, body);  // makes the Maildirs
  std::vector<double> off, on, ratio;
  for (int i = 0; i < rounds; ++i) {
    off.push_back(time_deliveries(*plain, users, body));
    on.push_back(time_deliveries(*looking, users, body));
    ratio.push_back(on.back() / off.back());
  }
  fmt::print("a delivery, us: without the look {}, with it {}; with to without {}\n", bench::spread(off, 1),
             bench::spread(on, 1), bench::spread(ratio, 3));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: script_bench DIRECTORY [users]\n");
    return 64;
  }
  std::string directory = argv[1];
  if (::geteuid() == 0) {
    if (::chown(directory.c_str(), mail_uid, mail_uid) != 0 || ::setgroups(0, nullptr) != 0 ||
        ::setgid(mail_uid) != 0 || ::setuid(mail_uid) != 0)
      return 71;
  }
  twinloft::log_set_level(twinloft::LogLevel::error);
  return run(directory, argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 10'000);
}
