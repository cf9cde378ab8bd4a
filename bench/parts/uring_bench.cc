// What registered memory saves for a journal: durable writes (O_DIRECT, RWF_DSYNC) from scattered blocks of a
// 256 MiB arena in huge pages, with and without. The writes are sequential, into an allocated and written
// file.
//
//   uring_bench FILE [--seconds S] [--rounds N] [--blocks 1,3,13,65] [--depths 1,4]
//
// The two ways alternate within a round. FILE is created and removed. CPU is that of all threads of this
// process, including io_uring's workers.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cerrno>
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

constexpr std::size_t block = 4096, arena_bytes = 256u << 20, huge_page_bytes = 2u << 20;
constexpr std::uint64_t journal_bytes = 256u << 20;

struct Way {
  const char* name;
  bool registered;
};
constexpr Way ways[] = {{"no", false}, {"yes", true}};

struct Round {
  double cpu_us = 0, p50_us = 0;
};

// Keeps `depth` writes in flight, each at the end of the journal.
class Load {
 public:
  Load(UringLoop& loop, const Clock& clock, int fd, MutableByteSpan arena, std::size_t blocks,
       std::size_t depth)
      : loop_(loop), clock_(clock), fd_(fd), arena_(arena), blocks_(blocks), writes_(depth) {}

  Result<Round> run(double seconds) {
    rusage before = usage();
    end_ = clock_.now() + Duration(static_cast<std::int64_t>(seconds * 1e9));
    for (Write& w : writes_) start(w);
    while (loop_.disk_ops_in_flight() > 0) TL_TRY(loop_.turn(Duration::max()));
    rusage after = usage();
    if (error_ != 0) return fail_errno(error_, "writing to the journal");
    auto us = [](const rusage& u) {
      return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
             static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    };
    std::sort(times_us_.begin(), times_us_.end());
    return Round{(us(after) - us(before)) / static_cast<double>(times_us_.size()),
                 times_us_[times_us_.size() / 2]};
  }

 private:
  struct Write : DiskOp {
    Load* load = nullptr;
    Instant begin;
    std::vector<iovec> iov;
  };

  static rusage usage() {
    rusage u{};
    ::getrusage(RUSAGE_SELF, &u);
    return u;
  }

  void start(Write& w) {
    w.load = this;
    w.done = [](DiskOp& op) { static_cast<Write&>(op).load->on_done(static_cast<Write&>(op)); };
    w.iov.clear();
    for (std::size_t i = 0; i < blocks_; ++i)
      w.iov.push_back({arena_.data() + random_() % (arena_.size() / block) * block, block});
    std::uint64_t bytes = blocks_ * block;
    if (at_ + bytes > journal_bytes) at_ = 0;
    w.begin = clock_.now();
    loop_.write(fd_, at_, w.iov, true, w);
    at_ += bytes;
  }
  void on_done(Write& w) {
    Instant now = clock_.now();
    times_us_.push_back(static_cast<double>((now - w.begin).count()) / 1e3);
    if (w.result != 0) error_ = -w.result;
    if (error_ == 0 && now < end_) start(w);
  }

  UringLoop& loop_;
  const Clock& clock_;
  int fd_;
  MutableByteSpan arena_;
  std::size_t blocks_;
  std::vector<Write> writes_;
  std::minstd_rand random_{1};
  std::uint64_t at_ = 0;
  Instant end_;
  int error_ = 0;
  std::vector<double> times_us_;
};

Result<MutableByteSpan> map_arena() {
  void* p = ::mmap(nullptr, arena_bytes + huge_page_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return fail_errno(errno, "no memory for the arena");
  auto address = reinterpret_cast<std::uintptr_t>(p);
  auto* data = static_cast<std::byte*>(p) + (huge_page_bytes - address % huge_page_bytes) % huge_page_bytes;
  if (::madvise(data, arena_bytes, MADV_HUGEPAGE) != 0) return fail_errno(errno, "no huge pages");
  for (std::size_t i = 0; i < arena_bytes; ++i) data[i] = static_cast<std::byte>(i * 131 >> 3);
  return MutableByteSpan(data, arena_bytes);
}

Result<Fd> make_journal(const std::string& path, ByteSpan content) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600));
  if (!fd) return fail_errno(errno, "{}", path);
  if (int rc = ::posix_fallocate(fd.get(), 0, journal_bytes); rc != 0) return fail_errno(rc, "{}", path);
  for (std::uint64_t at = 0; at < journal_bytes; at += 1u << 20)
    if (::pwrite(fd.get(), content.data() + at, 1u << 20, static_cast<off_t>(at)) != 1 << 20)
      return fail_errno(errno, "{}", path);
  TL_TRY(repl::io::make_durable(fd.get(), std::filesystem::absolute(path).parent_path()));
  return fd;
}

struct Cell {
  std::size_t blocks, depth;
  std::vector<Round> rounds[std::size(ways)];
};

Status measure(Cell& cell, const Clock& clock, int fd, MutableByteSpan arena, double seconds) {
  for (std::size_t i = 0; i < std::size(ways); ++i) {
    TL_TRY_ASSIGN(auto loop, UringLoop::create(clock));
    if (ways[i].registered) TL_TRY(loop->register_memory({{arena}}));
    TL_TRY_ASSIGN(Round r, Load(*loop, clock, fd, arena, cell.blocks, cell.depth).run(seconds));
    cell.rounds[i].push_back(r);
  }
  return {};
}

void print_row(const Cell& cell) {
  for (std::size_t i = 0; i < std::size(ways); ++i) {
    std::vector<double> cpu, p50, to_plain;
    for (std::size_t r = 0; r < cell.rounds[i].size(); ++r) {
      cpu.push_back(cell.rounds[i][r].cpu_us);
      p50.push_back(cell.rounds[i][r].p50_us);
      to_plain.push_back(cell.rounds[i][r].cpu_us / cell.rounds[0][r].cpu_us);
    }
    fmt::print("| {} | {} | {} | {} | {} | {} |\n", cell.blocks, cell.depth, ways[i].name, spread(cpu, 1),
               spread(to_plain, 2), spread(p50, 0));
  }
}

struct Options {
  std::string file, blocks, depths;
  double seconds = 0.5;
  unsigned rounds = 5;
};

Status run(const Options& o) {
  TL_TRY_ASSIGN(auto blocks, numbers(o.blocks, 1024));
  TL_TRY_ASSIGN(auto depths, numbers(o.depths, 64));
  TL_TRY_ASSIGN(MutableByteSpan arena, map_arena());
  TL_TRY_ASSIGN(Fd journal, make_journal(o.file, arena));
  ::unlink(o.file.c_str());
  OsClock clock;
  std::vector<Cell> cells;
  for (std::size_t b : blocks)
    for (std::size_t d : depths) cells.push_back({b, d, {}});
  for (unsigned round = 0; round < o.rounds; ++round)
    for (Cell& cell : cells) TL_TRY(measure(cell, clock, journal.get(), arena, o.seconds));
  fmt::print(
      "| blocks | depth | registered | CPU a write, us | to not registered | p50, us "
      "|\n|---|---|---|---|---|---|\n");
  for (const Cell& cell : cells) print_row(cell);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  po::options_description all;
  all.add_options()("file", po::value(&o.file)->required())("seconds", po::value(&o.seconds))(
      "rounds", po::value(&o.rounds))("blocks", po::value(&o.blocks)->default_value("1,3,13,65"))(
      "depths", po::value(&o.depths)->default_value("1,4"));
  po::positional_options_description words;
  words.add("file", 1);
  try {
    po::variables_map found;
    po::store(po::command_line_parser(argc, argv).options(all).positional(words).run(), found);
    po::notify(found);
  } catch (const po::error& e) {
    fmt::print(stderr,
               "{}\nusage: uring_bench FILE [--seconds S] [--rounds N] [--blocks LIST] [--depths LIST]\n",
               e.what());
    return 64;
  }
  Status done = o.rounds > 0 && o.seconds > 0 ? run(o)
                                              : fail(Errc::invalid, "--rounds and --seconds are more than 0");
  if (done) return 0;
  fmt::print(stderr, "uring_bench: {}\n", done.error().message);
  return 1;
}
