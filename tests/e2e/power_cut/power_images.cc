// Makes the content of disks after power cuts from the log of power_disk. Each cut continues from the cut
// before.
//
//   power_images --log FILE --work DIR --replica NAME... --account FILE --images N [--lsn-percent P]
//                [--seed N]
//
// DIR holds NAME.data and NAME.journal of each replica as they were at the start of the log. They are
// changed. FILE is the load's account as it was at the end. After each cut, one line of JSON names the files:
//
//   NAME.data, NAME.journal   the disks of one replica, chosen at random, after the cut
//   base.NAME.data, .journal  the same of an earlier cut
//   account                   the part of the account from before the cut: each 250 in it came before the cut
//
// A step "lsn" names an LSN instead. The account then ends with the last reply from before any record after
// that LSN was durable. Its messages must be in an image of that LSN.
//
// Then a line is read from standard input:
//
//   next          continue
//   compare FILE  run recovery on the two disks (in memory), and compare the volume with this image; the
//   answer
//                 is "equal", or the reason why not
//
// Exit: 0, or 1 with a message.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cerrno>
#include <iostream>
#include <memory>
#include <optional>

#include "disk_model.h"
#include "flush_points.h"
#include "overlay.h"
#include "plan.h"
#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/io/direct_file.h"
#include "twinloft/spool-repl/journal/superblock_store.h"

namespace twinloft::power {
namespace {

namespace po = boost::program_options;

struct Options {
  std::string log, work, account;
  std::vector<std::string> replicas;
  std::size_t images = 0;
  unsigned lsn_percent = 30;
  std::uint64_t seed = 1;
};

// Copies all but the holes.
Status copy_sparse(int from, const std::string& path) {
  Fd to(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  struct stat st{};
  if (!to || ::fstat(from, &st) != 0 || ::ftruncate(to.get(), st.st_size) != 0)
    return fail_errno(errno, "{}", path);
  for (off_t at = 0; (at = ::lseek(from, at, SEEK_DATA)) >= 0;) {
    off_t end = ::lseek(from, at, SEEK_HOLE), source = at;
    while (source < end) {
      ssize_t n = ::copy_file_range(from, &source, to.get(), &at, static_cast<std::size_t>(end - source), 0);
      if (n <= 0) return fail_errno(n < 0 ? errno : EIO, "{}", path);
    }
  }
  return errno == ENXIO ? Status{} : fail_errno(errno, "{}", path);
}

struct Replica {
  std::string name;
  DiskModel data, journal;
  repl::Superblock superblock;
  FlushPoints flush;
  std::optional<repl::Lsn> base_arrived;            // nothing after this LSN is in the saved base
  std::uint64_t journaled = 0, base_journaled = 0;  // bytes
};

Result<std::unique_ptr<Replica>> open_replica(const std::string& work, const std::string& name) {
  TL_TRY_ASSIGN(repl::io::DirectFile file,
                repl::io::open_direct(work + "/" + name + ".journal", repl::io::Access::read_only));
  repl::io::OsBlockFile journal_file(file);
  TL_TRY_ASSIGN(repl::journal::SuperblockCopies found, repl::journal::read_superblock(journal_file));
  TL_TRY_ASSIGN(DiskModel data, DiskModel::open(work + "/" + name + ".data"));
  TL_TRY_ASSIGN(DiskModel journal, DiskModel::open(work + "/" + name + ".journal"));
  return std::make_unique<Replica>(Replica{name, std::move(data), std::move(journal), found.superblock,
                                           FlushPoints(found.superblock), std::nullopt, 0, 0});
}

class Images {
 public:
  explicit Images(Options options) : options_(std::move(options)) {}

  Status run() {
    for (const std::string& name : options_.replicas) {
      TL_TRY_ASSIGN(auto replica, open_replica(options_.work, name));
      replicas_.push_back(std::move(replica));
    }
    TL_TRY(read_account());
    TL_TRY_ASSIGN(EventReader log, EventReader::open(options_.log));
    SeededRandom random(options_.seed);
    PlanOptions plan{options_.images, options_.lsn_percent, 4096, replicas_[0]->superblock.ring_offset};
    TL_TRY_ASSIGN(std::vector<Step> steps, make_plan(log, plan, random));
    std::size_t next = 0;
    EventReader::Item item;
    for (std::uint64_t number = 1; next < steps.size() && log.next(item); ++number) {
      TL_TRY(apply(item, number));
      if (next > 0)
        for (auto& r : replicas_) TL_TRY(save_base(*r));
      for (; next < steps.size() && steps[next].event == number; ++next) TL_TRY(make(steps[next], next));
    }
    return {};
  }

 private:
  struct Reply {  // a part of the account, and the durable LSNs when it was written
    std::uint64_t account_bytes;
    std::vector<repl::Lsn> durable;  // by replica
  };

  Status read_account() {
    Fd fd(::open(options_.account.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat st{};
    if (!fd || ::fstat(fd.get(), &st) != 0) return fail_errno(errno, "{}", options_.account);
    account_.resize(static_cast<std::size_t>(st.st_size));
    if (::read(fd.get(), account_.data(), account_.size()) != st.st_size)
      return fail_errno(EIO, "{}", options_.account);
    return {};
  }

  Status apply(const EventReader::Item& item, std::uint64_t number) {
    const Event& e = item.event;
    if (e.kind == EventKind::name) files_[e.file] = std::string(as_text(item.bytes));
    const std::string& name = files_[e.file];
    if (name == "account") {
      if (e.kind == EventKind::write) note_reply(e.offset + e.length);
      return {};
    }
    for (auto& r : replicas_) {
      if (name == r->name + ".data") return r->data.apply(item, number);
      if (name != r->name + ".journal") continue;
      r->flush.apply(item);
      if (e.kind == EventKind::write) r->journaled += e.length;
      return r->journal.apply(item, number);
    }
    return {};
  }

  void note_reply(std::uint64_t account_bytes) {
    Reply reply{std::max(account_bytes, replies_.empty() ? 0 : replies_.back().account_bytes), {}};
    for (const auto& r : replicas_) reply.durable.push_back(r->flush.durable());
    replies_.push_back(std::move(reply));
  }

  Status make(const Step& step, std::size_t number) {
    SeededRandom random(options_.seed * 1'000'003 + number);
    std::size_t which = random.below(replicas_.size());
    Replica& r = *replicas_[which];
    std::uint64_t draw = random.below(100);
    CutStyle style = draw < 25 ? CutStyle::drop_all : draw < 35 ? CutStyle::keep_all : CutStyle::mixed;
    TL_TRY_ASSIGN(Losses journal, r.journal.cut(style, random));
    TL_TRY_ASSIGN(Losses data, r.data.cut(style, random));
    std::optional<repl::Lsn> lsn = step.at_lsn ? draw_lsn(r, random) : std::nullopt;
    std::uint64_t account_bytes = lsn ? account_bytes_at(*lsn, which) : replies_.back().account_bytes;
    TL_TRY(write_account(account_bytes));
    auto losses = [](const Losses& l) {
      return fmt::format("{{\"kept\":{},\"dropped\":{},\"torn\":{}}}", l.kept, l.dropped, l.torn);
    };
    fmt::print(
        "{{\"step\":{},\"kind\":\"{}\",\"moment\":\"{}\",\"event\":{},\"replica\":\"{}\",\"lsn\":{},"
        "\"durable\":{},"
        "\"account_bytes\":{},\"journal\":{},\"data\":{}}}\n",
        number, lsn ? "lsn" : "power", to_string(step.moment), step.event, r.name, lsn ? lsn->v : 0,
        r.flush.durable().v, account_bytes, losses(journal), losses(data));
    std::fflush(stdout);
    TL_TRY(answer_commands(r));
    if (random.below(4) == 0) r.base_journaled = 0;  // the next base is made of the disks after this cut
    TL_TRY(save_base(r));
    TL_TRY(r.data.undo());
    return r.journal.undo();
  }

  // The end of a record that the journal holds and the saved base lacks.
  static std::optional<repl::Lsn> draw_lsn(const Replica& r, SeededRandom& random) {
    const auto& ends = r.flush.record_ends();
    if (!r.base_arrived) return std::nullopt;
    auto from = std::upper_bound(ends.begin(), ends.end(), *r.base_arrived);
    auto to = std::upper_bound(ends.begin(), ends.end(), r.flush.durable());
    if (from >= to) return std::nullopt;
    return from[static_cast<std::ptrdiff_t>(random.below(static_cast<std::uint64_t>(to - from)))];
  }

  // The last reply when nothing after `lsn` was durable: its messages were flushed by then.
  std::uint64_t account_bytes_at(repl::Lsn lsn, std::size_t which) const {
    auto behind = std::upper_bound(replies_.begin(), replies_.end(), lsn,
                                   [&](repl::Lsn at, const Reply& r) { return at < r.durable[which]; });
    return behind == replies_.begin() ? 0 : std::prev(behind)->account_bytes;
  }

  Status write_account(std::uint64_t bytes) const {
    std::string path = options_.work + "/account";
    Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!fd) return fail_errno(errno, "{}", path);
    return write_all(fd.get(), ByteSpan(account_).first(std::min<std::size_t>(bytes, account_.size())));
  }

  // A new base after a quarter of the ring, so that the records after the base are still in the ring.
  Status save_base(Replica& r) {
    if (r.base_arrived && r.journaled - r.base_journaled < r.superblock.ring_bytes / 4) return {};
    TL_TRY(copy_sparse(r.data.fd(), options_.work + "/base." + r.name + ".data"));
    TL_TRY(copy_sparse(r.journal.fd(), options_.work + "/base." + r.name + ".journal"));
    r.base_arrived = r.flush.arrived();
    r.base_journaled = r.journaled;
    return {};
  }

  Status answer_commands(Replica& r) {
    for (std::string line; std::getline(std::cin, line);) {
      if (line == "next") return {};
      if (!line.starts_with("compare ")) return fail(Errc::invalid, "unknown command \"{}\"", line);
      Fd image(::open(line.c_str() + 8, O_RDONLY | O_CLOEXEC));
      if (!image) return fail_errno(errno, "{}", line.substr(8));
      Overlay journal(r.journal.fd(), r.journal.size_bytes(), "journal"),
          data(r.data.fd(), r.data.size_bytes(), "data");
      Status equal = recover_and_compare(journal, data, image.get(),
                                         r.superblock.volume_blocks * repl::block_size);
      fmt::print("{}\n", equal ? "equal" : equal.error().message);
      std::fflush(stdout);
    }
    return fail(Errc::invalid, "the input ended");
  }

  Options options_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::map<std::uint16_t, std::string> files_;
  std::vector<std::byte> account_;
  std::vector<Reply> replies_;
};

int run(int argc, char** argv) {
  Options o;
  po::options_description options;
  options.add_options()("log", po::value(&o.log)->required())("work", po::value(&o.work)->required())(
      "account", po::value(&o.account)->required())(
      "replica", po::value(&o.replicas)->composing()->required())("images", po::value(&o.images)->required())(
      "lsn-percent", po::value(&o.lsn_percent))("seed", po::value(&o.seed));
  po::variables_map found;
  po::store(po::parse_command_line(argc, argv, options), found);
  po::notify(found);
  Status done = Images(std::move(o)).run();
  if (!done) fmt::print(stderr, "power_images: {}\n", done.error().message);
  return done ? 0 : 1;
}

}  // namespace
}  // namespace twinloft::power

int main(int argc, char** argv) {
  try {
    return twinloft::power::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "power_images: {}\n", e.what());
    return 1;
  }
}
