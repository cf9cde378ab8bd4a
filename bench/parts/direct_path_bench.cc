// What a direct path would save: new blocks go to their home once, in place of the journal first and their
// home at a checkpoint. This program makes the disk writes of one replica for both ways, and of nothing else.
//
//   direct_path_bench DIRECTORY [--seconds S] [--rounds N] [--new 1,12,64] [--others 8] [--extent 1,12]
//
// A commit has `new` blocks of new mail, in extents of `extent` blocks at random homes, and `others` blocks
// (metadata), which go through the journal in both ways. One commit at a time:
//   record: one sequential write of all blocks and a header (O_DSYNC). After 256 commits their new blocks go
//   home, sorted,
//           adjacent ones merged, two writes at a time, with one sync, while commits go on.
//   direct: header and other blocks to the journal (O_DSYNC) and at once the new blocks to their homes, each
//   O_DSYNC. synced: as direct, but one sync of the data area after its writes.
// The ways alternate within a round. The files are preallocated, written and removed.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <random>
#include <vector>

#include "figures.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/io/direct_file.h"
#include "twinloft/spool-repl/io/uring_loop.h"

namespace {

using namespace twinloft;
using bench::numbers;
using bench::spread;
using repl::io::DiskOp;
using repl::io::UringLoop;
namespace po = boost::program_options;

constexpr std::size_t block = 4096, buffer_blocks = 1024, merged_blocks_max = 256;
constexpr std::uint64_t journal_blocks = 64u << 10, data_blocks = 512u << 10;
constexpr unsigned commits_per_checkpoint = 256;

enum class Way { record, direct, synced };
constexpr Way ways[] = {Way::record, Way::direct, Way::synced};
constexpr const char* way_names[] = {"record", "direct", "synced"};

struct Shape {
  std::size_t fresh, others, extent;  // blocks
};

struct Run {
  std::uint64_t at, blocks;
};

struct Op : DiskOp {
  std::function<void(int)> then;
  std::vector<iovec> iov;
};

class Load {
 public:
  Load(UringLoop& loop, const Clock& clock, int journal, int data, MutableByteSpan buffer, Shape shape,
       Way way)
      : loop_(loop),
        clock_(clock),
        journal_(journal),
        data_(data),
        buffer_(buffer),
        shape_(shape),
        way_(way) {}

  // Microseconds a commit, with the checkpoint of all its blocks.
  Result<double> run(double seconds) {
    Instant begin = clock_.now();
    end_ = begin + Duration(static_cast<std::int64_t>(seconds * 1e9));
    commit();
    while (loop_.disk_ops_in_flight() > 0) TL_TRY(loop_.turn(Duration::max()));
    if (error_ != 0) return fail_errno(error_, "a write of the measurement");
    return static_cast<double>((clock_.now() - begin).count()) / 1e3 / static_cast<double>(commits_);
  }

 private:
  void write(int fd, std::uint64_t at, std::uint64_t blocks, bool dsync, std::function<void()> then) {
    Op& op = take(std::move(then));
    op.iov.assign(1, {buffer_.data(), blocks * block});
    loop_.write(fd, at * block, op.iov, dsync, op);
  }
  void sync(std::function<void()> then) { loop_.datasync(data_, take(std::move(then))); }
  Op& take(std::function<void()> then) {
    if (free_.empty()) free_.push_back(&ops_.emplace_back());
    Op& op = *free_.back();
    free_.pop_back();
    op.then = [this, &op, then = std::move(then)](int result) {
      if (result < 0) error_ = -result;
      free_.push_back(&op);
      if (error_ == 0) then();
    };
    op.done = [](DiskOp& done) {
      auto call = std::move(static_cast<Op&>(done).then);
      call(done.result);
    };
    return op;
  }

  void commit() {
    std::vector<Run> homes;
    for (std::size_t left = shape_.fresh; left > 0;) {
      std::uint64_t n = std::min(left, shape_.extent);
      homes.push_back({random_() % (data_blocks - n), n});
      left -= n;
    }
    ++commits_;
    waits_ = 1;
    const std::uint64_t in_journal = 1 + shape_.others + (way_ == Way::record ? shape_.fresh : 0);
    if (journal_at_ + in_journal > journal_blocks) journal_at_ = 0;
    write(journal_, std::exchange(journal_at_, journal_at_ + in_journal), in_journal, true,
          [this] { part_done(); });
    if (way_ == Way::record) {
      pending_.insert(pending_.end(), homes.begin(), homes.end());
      if (commits_ % commits_per_checkpoint == 0 && going_home_.empty()) checkpoint();
      return;
    }
    go_direct(homes);
  }
  void go_direct(const std::vector<Run>& homes) {
    ++waits_;
    homes_left_ = homes.size();
    for (const Run& home : homes)
      write(data_, home.at, home.blocks, way_ == Way::direct, [this] {
        if (--homes_left_ > 0) return;
        if (way_ == Way::synced)
          sync([this] { part_done(); });
        else
          part_done();
      });
  }
  void part_done() {
    if (--waits_ > 0) return;
    if (clock_.now() < end_) return commit();
    if (way_ == Way::record && going_home_.empty() && !pending_.empty()) checkpoint();
  }

  void checkpoint() {
    std::sort(pending_.begin(), pending_.end(), [](const Run& a, const Run& b) { return a.at < b.at; });
    for (const Run& run : pending_) {
      Run* last = going_home_.empty() ? nullptr : &going_home_.back();
      const bool joins = last && run.at <= last->at + last->blocks && last->blocks < merged_blocks_max;
      if (joins)
        last->blocks = std::max(last->at + last->blocks, run.at + run.blocks) - last->at;
      else
        going_home_.push_back(run);
    }
    pending_.clear();
    write_home();
    write_home();
  }
  void write_home() {
    if (going_home_.empty()) return;
    Run run = going_home_.front();
    going_home_.pop_front();
    ++home_in_flight_;
    write(data_, run.at, std::min<std::uint64_t>(run.blocks, buffer_blocks), false, [this] {
      --home_in_flight_;
      if (!going_home_.empty()) return write_home();
      if (home_in_flight_ == 0) sync([this] { home_done(); });
    });
  }
  // After the end, the last commits' blocks go home too.
  void home_done() {
    if (clock_.now() >= end_ && waits_ == 0 && !pending_.empty()) checkpoint();
  }

  UringLoop& loop_;
  const Clock& clock_;
  const int journal_, data_;
  const MutableByteSpan buffer_;
  const Shape shape_;
  const Way way_;
  std::minstd_rand random_{1};
  std::deque<Op> ops_;
  std::vector<Op*> free_;
  std::vector<Run> pending_;
  std::deque<Run> going_home_;
  std::size_t home_in_flight_ = 0, homes_left_ = 0, waits_ = 0;
  std::uint64_t journal_at_ = 0, commits_ = 0;
  Instant end_;
  int error_ = 0;
};

Result<Fd> make_file(const std::string& path, std::uint64_t blocks, ByteSpan content) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600));
  if (!fd) return fail_errno(errno, "{}", path);
  for (std::uint64_t at = 0; at < blocks * block; at += content.size())
    if (::pwrite(fd.get(), content.data(), content.size(), static_cast<off_t>(at)) !=
        static_cast<ssize_t>(content.size()))
      return fail_errno(errno, "{}", path);
  TL_TRY(repl::io::make_durable(fd.get(), std::filesystem::absolute(path).parent_path()));
  ::unlink(path.c_str());
  return fd;
}

struct Options {
  std::string directory, fresh, extent;
  std::size_t others = 8;
  double seconds = 1;
  unsigned rounds = 5;
};

Status run(const Options& o) {
  TL_TRY_ASSIGN(auto fresh, numbers(o.fresh, 512));
  TL_TRY_ASSIGN(auto extents, numbers(o.extent, 512));
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(block, buffer_blocks * block));
  if (!memory) return fail(Errc::exhausted, "no memory");
  for (std::size_t i = 0; i < buffer_blocks * block; ++i) memory[i] = static_cast<std::byte>(i * 131 >> 3);
  MutableByteSpan buffer(memory, buffer_blocks * block);
  TL_TRY_ASSIGN(Fd journal, make_file(o.directory + "/direct_path_bench.journal", journal_blocks, buffer));
  TL_TRY_ASSIGN(Fd data, make_file(o.directory + "/direct_path_bench.data", data_blocks, buffer));
  OsClock clock;
  fmt::print("| new blocks | in extents of | way | a commit, us | rate to record |\n|---|---|---|---|---|\n");
  for (std::size_t n : fresh)
    for (std::size_t extent : extents) {
      if (extent > n) continue;
      std::vector<double> us[std::size(ways)], ratio[std::size(ways)];
      for (unsigned round = 0; round < o.rounds; ++round)
        for (std::size_t w = 0; w < std::size(ways); ++w) {
          TL_TRY_ASSIGN(auto loop, UringLoop::create(clock));
          Load load(*loop, clock, journal.get(), data.get(), buffer, {n, o.others, extent}, ways[w]);
          TL_TRY_ASSIGN(double took, load.run(o.seconds));
          us[w].push_back(took);
          ratio[w].push_back(us[0].back() / took);
        }
      for (std::size_t w = 0; w < std::size(ways); ++w)
        fmt::print("| {} | {} | {} | {} | {} |\n", n, extent, way_names[w], spread(us[w], 0),
                   spread(ratio[w], 2));
    }
  std::free(memory);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  po::options_description all;
  all.add_options()("directory", po::value(&o.directory)->required())("seconds", po::value(&o.seconds))(
      "rounds", po::value(&o.rounds))("new", po::value(&o.fresh)->default_value("1,12,64"))(
      "others", po::value(&o.others))("extent", po::value(&o.extent)->default_value("1,12,64"));
  po::positional_options_description words;
  words.add("directory", 1);
  try {
    po::variables_map found;
    po::store(po::command_line_parser(argc, argv).options(all).positional(words).run(), found);
    po::notify(found);
  } catch (const po::error& e) {
    fmt::print(stderr,
               "{}\nusage: direct_path_bench DIRECTORY [--seconds S] [--rounds N] [--new LIST] [--others N] "
               "[--extent LIST]\n",
               e.what());
    return 64;
  }
  Status done = o.rounds > 0 && o.seconds > 0 && o.others < 512
                    ? run(o)
                    : fail(Errc::invalid, "--rounds and --seconds are more than 0, --others less than 512");
  if (done) return 0;
  fmt::print(stderr, "direct_path_bench: {}\n", done.error().message);
  return 1;
}
