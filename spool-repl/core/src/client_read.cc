// Reads of the clients: from memory if the content is there, otherwise from the data area.
#include <cerrno>

#include "client_io.h"
#include "request_blocks.h"
#include "twinloft/base/check.h"

namespace twinloft::repl::core {

void ClientIo::submit_read(const ClientRequest& r) {
  if (!stalled_reads_.empty() || !try_read({r, v_.now})) stalled_reads_.push_back({r, v_.now});
}

// Copies blocks that are in memory at once, and reads other blocks from the data area. False: no memory now.
bool ClientIo::try_read(const ReadRequest& wanted) {
  const ClientRequest& r = wanted.request;
  if (v_.read_arena.free() < end_block(r) - first_block(r)) return false;
  std::uint64_t op = next_op_++;
  Read read;
  read.request = wanted;
  read.home_changes = v_.home_changes;
  std::uint64_t block = first_block(r), end = end_block(r);
  bool aligned = r.offset % block_size == 0 && r.length % block_size == 0 &&
                 reinterpret_cast<std::uintptr_t>(r.data) % block_size == 0;
  const bool alone = balance_.is_alone(Lba{block}, end - block);
  while (block < end) {
    auto found = newest(Lba{block});
    Part part = part_of(r, block);
    std::byte* to = r.data + (block * block_size + part.from - r.offset);
    if (found.kind == BlockIndex::Kind::data) {
      std::memcpy(to, v_.arena.data(found.slot) + part.from, part.bytes);
      ++block;
      continue;
    }
    if (found.kind == BlockIndex::Kind::zeros) {
      std::memset(to, 0, part.bytes);
      ++block;
      continue;
    }
    std::uint64_t run_end = block + 1;
    while (run_end < end && v_.home_map.follows(Lba{run_end}) &&
           newest(Lba{run_end}).kind == BlockIndex::Kind::absent)
      ++run_end;
    ReadBalance::Choice choice{0, run_end - block};
    if (!wanted.here) choice = balance_.choose(Lba{block}, run_end - block, alone);
    run_end = block + choice.blocks;
    if (choice.peer != 0) {
      balance_.ask(choice.peer, Lba{block}, choice.blocks, op << run_bits | read.runs.size());
      read.runs.push_back({Lba{block}, choice.blocks, {}});
      read.outstanding++;
      read.remote = true;
      block = run_end;
      continue;
    }
    HomeRead home{make_token(TokenKind::client_read, op << run_bits | read.runs.size()),
                  v_.home_map.at(Lba{block}),
                  {}};
    Read::Run run{Lba{block}, run_end - block, {}, balance_.begin_local(run_end - block)};
    if (aligned) {
      home.pieces.push_back({to, static_cast<std::uint32_t>((run_end - block) * block_size)});
    } else {
      for (std::uint64_t b = block; b < run_end; ++b) {
        run.slots.push_back(v_.read_arena.take());
        add_piece(home.pieces, v_.read_arena.data(run.slots.back()), block_size);
      }
    }
    read.runs.push_back(std::move(run));
    read.outstanding++;
    v_.out.home_reads.push_back(std::move(home));
    block = run_end;
  }
  if (read.outstanding == 0)
    complete(r, 0);
  else
    reads_.emplace(op, std::move(read));
  return true;
}

void ClientIo::on_client_read(std::uint64_t n, int error) {
  std::uint64_t op = n >> run_bits;
  auto it = reads_.find(op);
  TL_CHECK(it != reads_.end());
  Read& read = it->second;
  Read::Run& run = read.runs[n & ((1u << run_bits) - 1)];
  const ClientRequest& r = read.request.request;
  balance_.end_local(run.read);
  for (std::uint64_t i = 0; error != 0 && i < run.blocks; ++i) read.unreadable.push_back(run.lba + i);
  if (error == 0) check_run(read, run);
  for (std::size_t i = 0; i < run.slots.size(); ++i) {
    std::uint64_t block = run.lba.v + i;
    Part part = part_of(r, block);
    std::memcpy(r.data + (block * block_size + part.from - r.offset),
                v_.read_arena.data(run.slots[i]) + part.from, part.bytes);
    v_.read_arena.unref(run.slots[i]);
  }
  end_run(it);
}

void ClientIo::end_run(std::unordered_map<std::uint64_t, Read>::iterator it) {
  Read& read = it->second;
  if (--read.outstanding > 0) return;
  if (read.stale)
    stalled_reads_.push_front(read.request);
  else if (read.unreadable.empty())
    answer_read(read);
  else if (auto failed = repairing_reads_.begin(read.request, std::move(read.unreadable),
                                                v_.failed || term_.lost()))
    after_repair(*failed, false);
  reads_.erase(it);
}

// A read that needed a repair, or waited for a peer, says nothing about the latency of this disk.
void ClientIo::answer_read(const Read& read) {
  const ReadRequest& r = read.request;
  if (r.repairs == 0 && !read.remote && !r.here) pace_.answered(Pace::Kind::read, v_.now - r.since);
  complete(r.request, 0);
}

// ---- reads that a peer answers

bool ClientIo::on_blocks_read(ReplicaId from, const BlocksRead& answer) {
  ReadBalance::Asked asked;
  ReadBalance::Answer kind = balance_.take(from, answer, asked);
  if (kind != ReadBalance::Answer::asked) return kind == ReadBalance::Answer::late;
  auto it = reads_.find(asked.owner >> run_bits);
  TL_CHECK(it != reads_.end());
  Read& read = it->second;
  if (answer.blocks == 0 || !take_answer(read, asked, answer)) read.request.here = read.stale = true;
  end_run(it);
  return true;
}

void ClientIo::end_overdue_reads() {
  for (const ReadBalance::Asked& asked : balance_.take_overdue()) {
    auto it = reads_.find(asked.owner >> run_bits);
    TL_CHECK(it != reads_.end());
    it->second.request.here = it->second.stale = true;
    end_run(it);
  }
}

// False: a block may be older than this replica's, or is not what this replica has written.
bool ClientIo::take_answer(Read& read, const ReadBalance::Asked& asked, const BlocksRead& answer) {
  const ClientRequest& r = read.request.request;
  const std::byte* next = answer.content.data();
  bool same_home = asked.home_changes == v_.home_changes;
  for (std::uint32_t i = 0; i < asked.blocks; ++i) {
    Lba lba = asked.lba + i;
    bool zero = (answer.zeros[i / 64] >> i % 64 & 1) != 0;
    const std::byte* content = zero ? zero_block.data() : next;
    if (!zero) next += block_size;
    if (const std::byte* here = v_.content_of(newest(lba)))
      content = here;
    else if (!(same_home ? v_.digests.fits(lba, content) : v_.digests.proves(lba, content))) {
      if (same_home) balance_.note_wrong(asked, lba);
      return false;
    }
    Part part = part_of(r, lba.v);
    std::memcpy(r.data + (lba.v * block_size + part.from - r.offset), content + part.from, part.bytes);
  }
  return true;
}

// If a checkpoint has written the block since the read began, the content may be older than the digest. Then
// the request starts again, and the block does not count as wrong.
void ClientIo::check_run(Read& read, const Read::Run& run) {
  const ClientRequest& r = read.request.request;
  for (std::uint64_t i = 0; i < run.blocks; ++i) {
    Lba lba = run.lba + i;
    const std::byte* block = run.slots.empty() ? r.data + (lba.v * block_size - r.offset)
                                               : v_.read_arena.data(run.slots[i]);
    if (v_.digests.fits(lba, block)) continue;
    if (read.home_changes != v_.home_changes || !v_.is_wrong(lba, block))
      read.stale = true;
    else
      read.unreadable.push_back(lba);
  }
}

// A repaired block stays in memory until it has been written home, so the retry finds the block there.
void ClientIo::after_repair(const ReadRequest& r, bool ok) {
  if (ok)
    stalled_reads_.push_front(r);
  else
    complete(r.request, EIO);
}

}  // namespace twinloft::repl::core
