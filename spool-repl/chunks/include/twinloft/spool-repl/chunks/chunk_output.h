// The output of a link that has several paths, without I/O: which bytes go over which path, and what is kept
// until the other side has it.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>

#include "twinloft/base/backlog.h"
#include "twinloft/base/result.h"

namespace twinloft::repl::chunks {

class ChunkOutput {
 public:
  struct Chunk {
    std::uint64_t position = 0;
    std::uint32_t bytes = 0;
    std::uint64_t end() const { return position + bytes; }
  };

  // window: the most that is kept. unsent: the most of it that has not been sent.
  ChunkOutput(std::size_t window, std::size_t unsent) : window_(window), unsent_max_(unsent) {}

  // Copies as many bytes as there is room for, behind the first `skip`, and returns their number.
  std::size_t accept(std::span<const iovec> from, std::size_t skip = 0);
  std::size_t room() const {
    std::size_t unsent = static_cast<std::size_t>(end() - next_);
    return std::min(window_ - kept_.bytes(), unsent_max_ - std::min(unsent, unsent_max_));
  }
  bool has_next() const { return !again_.empty() || next_ < end(); }
  // The next bytes for this path: those of a lost path first. Call it with has_next(). A chunk is being
  // written until finished().
  Chunk next(unsigned path, std::uint32_t bytes_max);
  void finished(const Chunk& chunk);
  // What this path has had, and what has not been taken, is sent again.
  void lost(unsigned path);
  // The other side's owner has read up to here. Errors: Errc::corrupt (more than was sent).
  Status taken(std::uint64_t position);
  std::uint64_t end() const { return base_ + kept_.bytes(); }  // of what was accepted
  // The bytes of a chunk that is being written.
  void for_each_part(const Chunk& chunk, std::size_t from, auto&& what) const {
    kept_.for_range(static_cast<std::size_t>(chunk.position - base_) + from, chunk.bytes - from, what);
  }

 private:
  struct Sent {
    std::uint32_t bytes;
    unsigned path;
    bool is_written;  // completely
  };
  void drop_taken();

  std::size_t window_, unsent_max_;
  Backlog kept_;
  std::uint64_t base_ = 0;   // the position of the first kept byte
  std::uint64_t next_ = 0;   // from here on, nothing was sent
  std::uint64_t taken_ = 0;  // by the other side's owner
  // By position. Each kept byte before next_ is in one of them.
  std::map<std::uint64_t, Sent> sent_;
  std::map<std::uint64_t, std::uint32_t> again_;  // bytes
};

}  // namespace twinloft::repl::chunks
