// Parallel transfers of a file.
#include <algorithm>
#include <array>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/io/direct_file.h"
#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::io {

namespace {

constexpr unsigned at_once = 128;

// Starts the next piece when an operation ends. Failed pieces are left to the caller.
class Transfer {
 public:
  using Piece = ports::BlockFile::Piece;
  Transfer(UringLoop& loop, int fd, bool writes, std::span<const Piece> pieces)
      : loop_(loop), fd_(fd), writes_(writes), pieces_(pieces) {}

  Status run() {
    for (Lane& lane : lanes_) {
      lane.op.owner = &lane;
      lane.op.done = [](DiskOp& op) {
        Lane& ended = *static_cast<Lane*>(op.owner);
        ended.transfer->on_done(ended);
      };
      lane.transfer = this;
      start(lane);
    }
    while (under_way_ > 0) TL_TRY(loop_.turn(Duration::max()));
    return {};
  }
  const std::vector<std::size_t>& failed() const { return failed_; }

 private:
  struct Lane {
    DiskOp op;
    iovec iov;
    std::size_t piece;
    Transfer* transfer;
  };

  void start(Lane& lane) {
    if (next_ == pieces_.size()) return;
    lane.piece = next_++;
    const Piece& p = pieces_[lane.piece];
    lane.iov = {p.memory.data(), p.memory.size()};
    ++under_way_;
    if (writes_)
      loop_.write(fd_, p.offset, {&lane.iov, 1}, false, lane.op);
    else
      loop_.read(fd_, p.offset, {&lane.iov, 1}, lane.op);
  }
  void on_done(Lane& lane) {
    --under_way_;
    if (lane.op.result != 0) failed_.push_back(lane.piece);
    if (failed_.empty()) start(lane);
  }

  UringLoop& loop_;
  int fd_;
  bool writes_;
  std::span<const Piece> pieces_;
  std::size_t next_ = 0;
  unsigned under_way_ = 0;
  std::vector<std::size_t> failed_;
  std::array<Lane, at_once> lanes_;
};

}  // namespace

OsBlockFile::OsBlockFile(DirectFile& file) : file_(file) {}
OsBlockFile::~OsBlockFile() = default;

bool OsBlockFile::has_loop() {
  if (!loop_ && !without_loop_) {
    auto made = UringLoop::create(clock_, {.entries = at_once});
    if (made)
      loop_ = std::move(*made);
    else
      without_loop_ = true;  // one piece after the other also works, but is slower
  }
  return loop_ != nullptr;
}

// Failed pieces, and pieces that had not begun, are transferred one by one. The second attempt may succeed;
// otherwise the single operation reports the error.
Status OsBlockFile::many(bool writes, std::span<const Piece> pieces) {
  auto one = [&](const Piece& p) { return writes ? write(p.offset, p.memory) : read(p.offset, p.memory); };
  if (pieces.size() > 1 && has_loop()) {
    Transfer transfer(*loop_, file_.fd.get(), writes, pieces);
    if (!transfer.run()) {
      loop_.reset();  // waits for operations in flight, which refer to `transfer`
      without_loop_ = true;
    } else if (transfer.failed().empty()) {
      return {};
    }
    for (std::size_t i : transfer.failed()) TL_TRY(one(pieces[i]));
  }
  for (const Piece& p : pieces) TL_TRY(one(p));
  return {};
}

Status OsBlockFile::read_all(std::span<const Piece> pieces) {
  return many(false, pieces);
}
Status OsBlockFile::write_all(std::span<const Piece> pieces) {
  return many(true, pieces);
}

}  // namespace twinloft::repl::io
