// The content of a volume whose newest blocks are partly in a journal: a read-only view over the data area
// and the journal, with random access. Only the positions of the pieces are in memory.
#pragma once

#include <functional>
#include <vector>

#include "twinloft/spool-repl/format/home_map.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

class Image {
 public:
  struct Piece {  // blocks that replace those of the data area
    std::uint64_t lba, blocks;
    ports::BlockFile* journal;  // null: zeros
    std::uint64_t offset;       // bytes, in the journal
  };
  // `pieces` are disjoint, in any order. The files must outlive the image.
  Image(ports::BlockFile& data, HomeMap home_map, std::vector<Piece> pieces);

  std::uint64_t size_bytes() const { return home_map_.volume_blocks() * block_size; }
  // As ports::BlockFile::read(). For one thread at a time.
  Status read(std::uint64_t offset, MutableByteSpan out) const;

  struct Run {  // adjacent blocks
    std::uint64_t lba, blocks;
    ports::BlockFile* file;  // null: zeros
    std::uint64_t offset;    // bytes, in the file
    bool from_journal;       // false: from the data area
  };
  // Visits the runs of a range in order. An error of `visit` ends the visit, and is returned.
  Status visit(std::uint64_t lba, std::uint64_t blocks, const std::function<Status(const Run&)>& visit) const;

 private:
  ports::BlockFile& data_;
  HomeMap home_map_;
  std::vector<Piece> pieces_;  // in order
};

}  // namespace twinloft::repl::journal
