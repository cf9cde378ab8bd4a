// maildir_bench DIRECTORY [seconds per cell] [message bytes] [rounds] [durabilities] [clients]: the rate at
// which the built-in Maildir agent makes messages durable, by durability and by number of parallel
// deliveries. "fsync, tmp/" is fsync with a file that has a name in tmp/ from the start. Durabilities
// alternate within each number of clients, in three rounds by default, so that a slow moment of the machine
// hits all of them. Prints the median. DIRECTORY is used as the spool. Remove its contents afterwards. If
// started as root, the program runs as uid 65534.
#include <fmt/format.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <thread>
#include <vector>

#include "twinloft/lmtpd/intake/intake.h"
#include "twinloft/lmtpd/intake/log_directory.h"
#include "twinloft/lmtpd/intake/upkeep.h"
#include "twinloft/lmtpd/maildir/maildir.h"

namespace {

using namespace twinloft;
using namespace twinloft::lmtpd;

constexpr unsigned mail_uid = 65534;
constexpr int users = 64;

struct Cell {
  double messages_per_second = 0;
  double p50_us = 0;
  double p99_us = 0;
};

std::string make_message(std::size_t bytes) {
  std::string text = "From: a@example.org\r\nTo: b@example.org\r\nSubject: measurement\r\n\r\n";
  while (text.size() < bytes) text += "The quick brown fox jumps over the lazy dog, and 64 bytes it is.\r\n";
  return text;
}

Recipient make_recipient(const std::string& spool, int number) {
  Recipient r;
  r.user.name = fmt::format("user{}", number);
  r.text = r.user.name + "@example.org";
  r.user.uid = ::geteuid();
  r.user.gid = ::getegid();
  r.user.home = fmt::format("{}/{}", spool, r.user.name);
  r.user.maildir = r.user.home + "/Maildir";
  return r;
}

// "fsync" with files in tmp/.
class NamedMessage final : public DurableMessage {
 public:
  explicit NamedMessage(std::unique_ptr<DurableMessage> inner) : inner_(std::move(inner)) {}
  DurabilityWay way() const override { return inner_->way(); }
  bool may_be_unnamed() const override { return false; }
  bool keeps_content() const override { return inner_->keeps_content(); }
  Status content(int file, const PlannedMessage& planned) override { return inner_->content(file, planned); }
  Status entry(std::size_t index, const NewEntry& entry) override { return inner_->entry(index, entry); }
  Status withdraw(std::size_t index) override { return inner_->withdraw(index); }

 private:
  const std::unique_ptr<DurableMessage> inner_;
};

class Named final : public Durability {
 public:
  explicit Named(std::unique_ptr<Durability> inner) : inner_(std::move(inner)) {}
  DurabilityWay way() const override { return inner_->way(); }
  std::unique_ptr<DurableMessage> begin(const SpoolHandle& spool, const MessagePlan& plan) override {
    return std::make_unique<NamedMessage>(inner_->begin(spool, plan));
  }

 private:
  const std::unique_ptr<Durability> inner_;
};

struct Measured {
  const char* name;
  DurabilityWay way;
  bool in_tmp;
};
const Measured all_measured[] = {{"fsync-file", DurabilityWay::fsync_file, true},
                                 {"fsync, tmp/", DurabilityWay::fsync, true},
                                 {"fsync", DurabilityWay::fsync, false},
                                 {"group-sync", DurabilityWay::group_sync, true},
                                 {"intake-log", DurabilityWay::intake_log, false}};

class Bench {
 public:
  Bench(std::string root, double seconds, std::size_t bytes) : root_(std::move(root)), seconds_(seconds) {
    body_.memory = make_message(bytes);
    body_.size = body_.memory.size();
    spool_ = Spool::create({root_, std::nullopt}, ops_).value();
  }

  Cell run(const Measured& measured, int clients) {
    SyncGroup syncs(ops_);
    std::unique_ptr<Durability> durability = make_durability(measured.way, ops_, syncs);
    if (measured.in_tmp) durability = std::make_unique<Named>(std::move(durability));
    if (measured.way == DurabilityWay::intake_log) durability = with_log(std::move(durability));
    MaildirAgent agent({"bench.example.org"}, *spool_, std::move(durability), ops_, clock_);
    std::atomic<bool> stop{false};
    std::vector<std::vector<double>> latencies(static_cast<std::size_t>(clients));
    std::vector<std::thread> threads;
    warm_up(agent);
    Instant start = clock_.now();
    for (int c = 0; c < clients; ++c)
      threads.emplace_back([&, c] { client(agent, c, stop, latencies[static_cast<std::size_t>(c)]); });
    while ((clock_.now() - start).count() < seconds_ * 1e9) ::usleep(10'000);
    stop = true;
    for (auto& t : threads) t.join();
    double elapsed = static_cast<double>((clock_.now() - start).count()) / 1e9;
    return summary(latencies, elapsed);
  }

 private:
  // The log is made when it is missing. The thread that opens it begins at the first message.
  std::unique_ptr<Durability> with_log(std::unique_ptr<Durability> by_files) {
    SpoolHandle handle = spool_->open().value();
    if (!find_log(handle.root.get()).value())
      if (Status made = create_log(handle.root.get(), IntakeSettings{}.log_bytes, random_); !made)
        fmt::print(stderr, "{}\n", made.error().message), std::exit(1);
    auto out = std::make_unique<Intake>(IntakeSettings{}, std::move(by_files), ops_, clock_);
    (void)out->begin(handle, {});
    ::usleep(500'000);
    return out;
  }

  // The first message to each Maildir makes its directories durable.
  void warm_up(MaildirAgent& agent) {
    const SpoolHandle handle = spool_->open().value();
    for (int n = 0; n < users; ++n) (void)agent.deliver(handle, {}, make_recipient(root_, n), body_);
  }

  void client(MaildirAgent& agent, int number, const std::atomic<bool>& stop, std::vector<double>& out) {
    Envelope envelope;
    envelope.id = "bench";
    envelope.from = "a@example.org";
    envelope.lhlo = "bench";
    envelope.client = "unix";
    for (int n = number; !stop; n += 7) {
      Instant begin = clock_.now();
      SpoolHandle handle = spool_->open().value();
      DeliveryOutcome outcome = agent.deliver(handle, envelope, make_recipient(root_, n % users), body_);
      if (outcome.reply.code != 250) {
        fmt::print(stderr, "{} {}\n", outcome.reply.text, outcome.detail);
        std::exit(1);
      }
      out.push_back(static_cast<double>((clock_.now() - begin).count()) / 1e3);
    }
  }

  static Cell summary(const std::vector<std::vector<double>>& latencies, double elapsed) {
    std::vector<double> all;
    for (const auto& l : latencies) all.insert(all.end(), l.begin(), l.end());
    std::sort(all.begin(), all.end());
    double count = static_cast<double>(all.size());
    return {count / elapsed, all[all.size() / 2], all[all.size() * 99 / 100]};
  }

  OsFileOps ops_;
  OsClock clock_;
  OsRandom random_;
  std::string root_;
  double seconds_;
  MessageBody body_;
  std::unique_ptr<Spool> spool_;
};

Cell median(std::vector<Cell> cells) {
  std::sort(cells.begin(), cells.end(),
            [](const Cell& a, const Cell& b) { return a.messages_per_second < b.messages_per_second; });
  return cells[cells.size() / 2];
}

void print_row(Bench& bench, const std::vector<Measured>& ways, int clients, int rounds) {
  std::vector<std::vector<Cell>> cells(ways.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < ways.size(); ++i) cells[i].push_back(bench.run(ways[i], clients));
  for (std::size_t i = 0; i < ways.size(); ++i) {
    Cell m = median(cells[i]);
    fmt::print("| {} | {} | {:.0f} | {:.0f} | {:.0f} |\n", clients, ways[i].name, m.messages_per_second * 60,
               m.p50_us, m.p99_us);
  }
}

// names: of durabilities, with commas; empty: all.
std::vector<Measured> ways_of(const std::string& names) {
  std::vector<Measured> out;
  for (const Measured& way : all_measured)
    if (names.empty() || ("," + names + ",").find(fmt::format(",{},", way.name)) != std::string::npos)
      out.push_back(way);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr,
               "usage: maildir_bench DIRECTORY [seconds per cell] [message bytes] [rounds] [durabilities] "
               "[clients]\n");
    return 64;
  }
  if (::geteuid() == 0) {
    if (::chown(argv[1], mail_uid, mail_uid) != 0 || ::setgroups(0, nullptr) != 0 ||
        ::setresgid(mail_uid, mail_uid, mail_uid) != 0 || ::setresuid(mail_uid, mail_uid, mail_uid) != 0) {
      fmt::print(stderr, "maildir_bench: cannot become uid {} in {}\n", mail_uid, argv[1]);
      return 77;
    }
  }
  double seconds = argc > 2 ? std::atof(argv[2]) : 3;
  Bench bench(argv[1], seconds, argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 4096);
  const int rounds = argc > 4 ? std::max(1, std::atoi(argv[4])) : 3;
  fmt::print("| clients | durability | messages/min | p50 us | p99 us |\n|---|---|---|---|---|\n");
  const std::vector<Measured> ways = ways_of(argc > 5 ? argv[5] : "");
  const std::vector<int> all_clients = argc > 6 ? std::vector<int>{std::max(1, std::atoi(argv[6]))}
                                                : std::vector<int>{1, 4, 12, 32};
  for (int clients : all_clients) print_row(bench, ways, clients, rounds);
}
