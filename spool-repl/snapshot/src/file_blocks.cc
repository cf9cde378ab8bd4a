#include "twinloft/spool-repl/snapshot/file_blocks.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl::snapshot {

bool extent_wanted(const fiemap_extent& e, const BlocksWanted& wanted) {
  if (e.fe_flags & (FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC)) return true;
  std::uint64_t first = e.fe_physical / block_size,
                end = (e.fe_physical + e.fe_length + block_size - 1) / block_size;
  return wanted(first, end - first);
}

namespace {

// The part of the extent between the offsets.
fiemap_extent clipped(fiemap_extent e, std::uint64_t from, std::uint64_t to) {
  const std::uint64_t first = std::max<std::uint64_t>(e.fe_logical, from),
                      end = std::min<std::uint64_t>(e.fe_logical + e.fe_length, to);
  e.fe_physical += first - e.fe_logical;
  e.fe_logical = first;
  e.fe_length = end > first ? end - first : 0;
  return e;
}

}  // namespace

Result<bool> file_wanted(int fd, const BlocksWanted& wanted) {
  return range_wanted(fd, 0, FIEMAP_MAX_OFFSET, wanted);
}

Result<bool> range_wanted(int fd, std::uint64_t offset, std::uint64_t bytes, const BlocksWanted& wanted) {
  constexpr std::uint32_t extents_max = 128;
  const std::uint64_t end = bytes > FIEMAP_MAX_OFFSET - offset ? FIEMAP_MAX_OFFSET : offset + bytes;
  std::vector<std::uint64_t> memory((sizeof(fiemap) + extents_max * sizeof(fiemap_extent)) / 8 + 1);
  auto* map = reinterpret_cast<fiemap*>(memory.data());
  for (std::uint64_t from = offset; from < end;) {
    std::memset(map, 0, sizeof *map);
    map->fm_start = from;
    map->fm_length = end - from;
    map->fm_flags = FIEMAP_FLAG_SYNC;
    map->fm_extent_count = extents_max;
    if (::ioctl(fd, FS_IOC_FIEMAP, map) != 0)
      return fail_errno(errno, "the file system does not report the blocks of the file");
    if (map->fm_mapped_extents == 0) return false;
    for (std::uint32_t i = 0; i < map->fm_mapped_extents; ++i)
      if (const fiemap_extent part = clipped(map->fm_extents[i], from, end);
          part.fe_length > 0 && extent_wanted(part, wanted))
        return true;
    const fiemap_extent& last = map->fm_extents[map->fm_mapped_extents - 1];
    if (last.fe_flags & FIEMAP_EXTENT_LAST) return false;
    if (last.fe_logical + last.fe_length <= from)
      return fail(Errc::corrupt, "the file system does not list the extents of the file in order");
    from = last.fe_logical + last.fe_length;
  }
  return false;
}

}  // namespace twinloft::repl::snapshot
