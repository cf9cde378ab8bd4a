#include "overlay.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "twinloft/spool-repl/journal/aligned.h"
#include "twinloft/spool-repl/journal/recovery.h"

namespace twinloft::power {

using repl::block_size;

namespace {

constexpr std::size_t room_bytes = 16u << 20;

Status read_at(int fd, std::uint64_t offset, MutableByteSpan out, const std::string& name) {
  while (!out.empty()) {
    ssize_t n = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (n <= 0) return fail_errno(n < 0 ? errno : EIO, "{}: cannot be read at {}", name, offset);
    out = out.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

Status apply_record(const repl::StoredRecord& r, Overlay& data) {
  std::size_t at = 0;
  for (const repl::Extent& e : r.body.extents) {
    std::uint64_t bytes = std::uint64_t{e.blocks} * block_size;
    if (e.kind == repl::ExtentKind::zeros) {
      TL_TRY(data.write_zeros(e.lba.v * block_size, bytes));
      continue;
    }
    TL_TRY(data.write(e.lba.v * block_size, ByteSpan(r.payload).subspan(at, bytes)));
    at += bytes;
  }
  return {};
}

// The content that recovery has left in memory.
Status apply_loaded(const repl::RecoveredLog& log, ByteSpan room, Overlay& data) {
  Status done;
  auto keep = [&](Status s) {
    if (done && !s) done = std::move(s);
  };
  for_each_loaded(
      log,
      [&](std::size_t n, const repl::LoadedBlock& b) {
        keep(data.write(b.lba.v * block_size, room.subspan(n * block_size, block_size)));
      },
      [&](const repl::Extent& e, repl::Lsn) {
        keep(data.write_zeros(e.lba.v * block_size, std::uint64_t{e.blocks} * block_size));
      });
  return done;
}

}  // namespace

Status Overlay::read(std::uint64_t offset, MutableByteSpan out) {
  TL_TRY(read_at(fd_, offset, out, name_));
  if (blocks_.empty()) return {};
  for (std::uint64_t at = 0; at < out.size(); at += block_size) {
    auto it = blocks_.find((offset + at) / block_size);
    if (it == blocks_.end()) continue;
    if (it->second.empty())
      std::memset(out.data() + at, 0, block_size);
    else
      std::memcpy(out.data() + at, it->second.data(), block_size);
  }
  return {};
}

Status Overlay::write(std::uint64_t offset, ByteSpan data) {
  for (std::uint64_t at = 0; at < data.size(); at += block_size) {
    ByteSpan block = data.subspan(at, block_size);
    blocks_[(offset + at) / block_size].assign(block.begin(), block.end());
  }
  return {};
}

Status Overlay::write_zeros(std::uint64_t offset, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += block_size) blocks_[(offset + at) / block_size].clear();
  return {};
}

Status recover_and_compare(Overlay& journal, Overlay& data, int image_fd, std::uint64_t image_bytes) {
  // As at a start: the newest committed content goes into memory, here at most a part of it.
  repl::journal::AlignedBuffer room(room_bytes);
  TL_TRY_ASSIGN(repl::journal::RecoveredVolume volume,
                repl::journal::recover(journal, data, {}, room.span()));
  TL_TRY(apply_loaded(volume.log, room.span(), data));
  for (const repl::StoredRecord& r : volume.log.records)
    if (r.body.mark().lsn > volume.log.commit) TL_TRY(apply_record(r, data));
  std::vector<std::byte> expected(1 << 20), found(1 << 20);
  for (std::uint64_t at = 0; at < image_bytes; at += expected.size()) {
    std::uint64_t n = std::min<std::uint64_t>(expected.size(), image_bytes - at);
    TL_TRY(data.read(at, MutableByteSpan(expected).first(n)));
    TL_TRY(read_at(image_fd, at, MutableByteSpan(found).first(n), "image"));
    for (std::uint64_t b = 0; b < n; b += block_size)
      if (std::memcmp(expected.data() + b, found.data() + b, block_size) != 0)
        return fail(Errc::conflict, "block {}: the image differs from what recovery makes",
                    (at + b) / block_size);
  }
  return {};
}

}  // namespace twinloft::power
