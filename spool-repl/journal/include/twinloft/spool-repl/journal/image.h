// The content of a volume that is in no one place: the data area, and over it blocks that only a journal has.
// Read at random; nothing is written, and nothing but the places of the pieces is kept in memory.
#pragma once

#include <functional>
#include <vector>

#include "twinloft/spool-repl/format/home_map.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

class Image {
 public:
  struct Piece {  // content that the data area does not have
    std::uint64_t lba, blocks;
    ports::BlockFile* journal;  // null: zeros
    std::uint64_t offset;       // bytes, in that file
  };
  // `pieces` are disjoint, in any order. The files must outlive the image.
  Image(ports::BlockFile& data, HomeMap home_map, std::vector<Piece> pieces);

  std::uint64_t size_bytes() const { return home_map_.volume_blocks() * block_size; }
  // As of ports::BlockFile. Not from several threads at once.
  Status read(std::uint64_t offset, MutableByteSpan out) const;

  struct Run {  // of blocks that lie together
    std::uint64_t lba, blocks;
    ports::BlockFile* file;  // null: zeros
    std::uint64_t offset;    // bytes, in that file
    bool from_journal;       // and not from the data area
  };
  // Goes through a range in order. An error of `visit` ends it.
  Status visit(std::uint64_t lba, std::uint64_t blocks, const std::function<Status(const Run&)>& visit) const;

 private:
  ports::BlockFile& data_;
  HomeMap home_map_;
  std::vector<Piece> pieces_;  // in order
};

}  // namespace twinloft::repl::journal
