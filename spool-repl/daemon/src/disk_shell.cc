#include "disk_shell.h"

#include <algorithm>
#include <cerrno>
#include <optional>

#include "twinloft/base/check.h"

namespace twinloft::repl::daemon {

namespace {
constexpr std::uint64_t zero_chunk_bytes = 1u << 20;
}

struct DiskShell::Op {
  enum class Kind { plain, journal_read, superblock, zeros };
  io::DiskOp disk;
  DiskShell* shell = nullptr;
  Kind kind = Kind::plain;
  core::Token token = 0;
  std::vector<iovec> iov;                          // keeps its memory between uses
  std::unique_ptr<journal::AlignedBuffer> buffer;  // of a journal read, a superblock or a bitmap
  std::uint32_t buffer_bytes = 0;
  int copy = 0;                       // superblock: the copy that is being written
  std::uint64_t offset = 0, end = 0;  // zeros: the rest
  bool by_hand = false;
  std::optional<Instant> since;  // while it is in flight; of zeros: since the last part
};

DiskShell::DiskShell(io::UringLoop& loop, io::DirectFile& journal, io::DirectFile& data,
                     std::function<void(core::Event&&)> report)
    : loop_(loop), journal_(journal), data_(data), report_(std::move(report)), zeros_(zero_chunk_bytes) {}

DiskShell::~DiskShell() = default;

DiskShell::Op& DiskShell::take(core::Token token) {
  if (free_.empty()) {
    ops_.push_back(std::make_unique<Op>());
    free_.push_back(ops_.back().get());
  }
  Op& op = *free_.back();
  free_.pop_back();
  op.disk.done = &DiskShell::on_done;
  op.disk.owner = &op;
  op.shell = this;
  op.kind = Op::Kind::plain;
  op.token = token;
  op.iov.clear();
  op.by_hand = false;
  op.since = loop_.now();
  return op;
}

Duration DiskShell::oldest(Instant now) const {
  Duration oldest{0};
  for (const auto& op : ops_)
    if (op->since) oldest = std::max(oldest, now - *op->since);
  return oldest;
}

void DiskShell::write_pieces(Op& op, int fd, std::uint64_t offset, const std::vector<core::IoPiece>& pieces,
                             bool dsync) {
  for (const core::IoPiece& p : pieces) op.iov.push_back({p.data, p.bytes});
  loop_.write(fd, offset, op.iov, dsync, op.disk);
}

void DiskShell::perform(const core::JournalWrite& w) {
  write_pieces(take(w.token), journal_.fd.get(), w.offset, w.pieces, true);
}

void DiskShell::perform(const core::JournalRead& r) {
  Op& op = take(r.token);
  op.kind = Op::Kind::journal_read;
  op.buffer = std::make_unique<journal::AlignedBuffer>(r.bytes);
  op.buffer_bytes = r.bytes;
  op.iov.push_back({op.buffer->span().data(), r.bytes});
  loop_.read(journal_.fd.get(), r.offset, op.iov, op.disk);
}

void DiskShell::perform(const core::HomeRead& r) {
  Op& op = take(r.token);
  for (const core::IoPiece& p : r.pieces) op.iov.push_back({p.data, p.bytes});
  loop_.read(data_.fd.get(), r.at.bytes(), op.iov, op.disk);
}

void DiskShell::perform(const core::HomeWrite& w) {
  write_pieces(take(w.token), data_.fd.get(), w.at.bytes(), w.pieces, false);
}

void DiskShell::perform(const core::HomeZero& z) {
  Op& op = take(z.token);
  op.kind = Op::Kind::zeros;
  op.offset = z.at.bytes();
  op.end = op.offset + z.blocks * block_size;
  if (zeros_are_written_) return zero_by_hand(op);
  // A file keeps its space: if a full host file system could not allocate it again, an acknowledged write
  // could not be written home.
  if (data_.block_device)
    loop_.punch_hole(data_.fd.get(), op.offset, op.end - op.offset, op.disk);
  else
    loop_.zero_range(data_.fd.get(), op.offset, op.end - op.offset, op.disk);
}

void DiskShell::perform(const core::HomeSync& s) {
  loop_.datasync(data_.fd.get(), take(s.token).disk);
}

void DiskShell::perform(const core::BitmapWrite& w) {
  Op& op = take(w.token);
  op.buffer = std::make_unique<journal::AlignedBuffer>(w.bytes.size());
  std::memcpy(op.buffer->span().data(), w.bytes.data(), w.bytes.size());
  op.iov.push_back({op.buffer->span().data(), w.bytes.size()});
  loop_.write(journal_.fd.get(), w.offset, op.iov, true, op.disk);
}

void DiskShell::perform(const core::SuperblockWrite& s) {
  Op& op = take(s.token);
  op.kind = Op::Kind::superblock;
  op.buffer = std::make_unique<journal::AlignedBuffer>(block_size);
  encode_superblock(s.superblock, op.buffer->span());
  start_superblock_copy(op, 0);
}

void DiskShell::start_superblock_copy(Op& op, int copy) {
  op.copy = copy;
  op.iov.assign(1, {op.buffer->span().data(), block_size});
  loop_.write(journal_.fd.get(), superblock_offset[copy], op.iov, true, op.disk);
}

// Writes zeros if the data area can neither punch holes nor zero a range.
void DiskShell::zero_by_hand(Op& op) {
  op.by_hand = true;
  op.since = loop_.now();
  std::uint64_t n = std::min(op.end - op.offset, zero_chunk_bytes);
  op.iov.assign(1, {zeros_.span().data(), n});
  std::uint64_t at = op.offset;
  op.offset += n;
  loop_.write(data_.fd.get(), at, op.iov, false, op.disk);
}

void DiskShell::on_done(io::DiskOp& disk) {
  Op& op = *static_cast<Op*>(disk.owner);
  DiskShell& shell = *op.shell;
  int result = disk.result;
  if (op.kind == Op::Kind::superblock && result == 0 && op.copy == 0)
    return shell.start_superblock_copy(op, 1);
  if (op.kind == Op::Kind::zeros) {
    bool unsupported = !op.by_hand && io::cannot_zero(-result);
    shell.zeros_are_written_ = shell.zeros_are_written_ || unsupported;
    if (unsupported || (op.by_hand && result == 0 && op.offset < op.end)) return shell.zero_by_hand(op);
  }
  shell.finish(op, result);
}

void DiskShell::finish(Op& op, int result) {
  core::Token token = op.token;
  std::vector<std::byte> bytes;
  bool journal_read = op.kind == Op::Kind::journal_read;
  if (journal_read && result == 0) {
    ByteSpan all = op.buffer->span();
    bytes.assign(all.begin(), all.begin() + op.buffer_bytes);
  }
  op.buffer.reset();
  op.since.reset();
  free_.push_back(&op);
  if (journal_read)
    report_(core::JournalReadDone{token, -result, std::move(bytes)});
  else
    report_(core::DiskDone{token, -result});
}

}  // namespace twinloft::repl::daemon
