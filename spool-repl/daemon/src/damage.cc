#include "damage.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/journal/aligned.h"

namespace twinloft::repl::daemon {

namespace {
constexpr std::uint64_t chunk = 1 << 20;

// Unreadable blocks become zeros.
void read_what_can_be(ports::BlockFile& journal, std::uint64_t at, MutableByteSpan out) {
  if (journal.read(at, out)) return;
  for (std::size_t i = 0; i < out.size(); i += block_size) {
    MutableByteSpan block = out.subspan(i, block_size);
    if (!journal.read(at + i, block)) std::memset(block.data(), 0, block.size());
  }
}
}  // namespace

Result<std::string> keep_journal(ports::BlockFile& journal, const journal::Damage& damage,
                                 const std::string& directory, const std::string& volume) {
  std::string path = fmt::format("{}/{}-damaged-{}.journal", directory, volume, damage.after.v);
  Fd out(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!out) return fail_errno(errno, "{}: cannot be made", path);
  journal::AlignedBuffer buffer(chunk);
  std::uint64_t size = journal.size_bytes() / block_size * block_size;
  for (std::uint64_t at = 0; at < size; at += chunk) {
    MutableByteSpan bytes = buffer.span().first(std::min(chunk, size - at));
    read_what_can_be(journal, at, bytes);
    bool empty = std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
    Status stored;
    if (!empty) {
      if (::lseek(out.get(), static_cast<off_t>(at), SEEK_SET) < 0)
        stored = fail_errno(errno, "seek");
      else
        stored = write_all(out.get(), bytes);
    }
    if (!stored) return fail(stored.error().code, "{}: {}", path, stored.error().message);
  }
  if (::ftruncate(out.get(), static_cast<off_t>(size)) != 0)
    return fail_errno(errno, "{}: cannot be sized", path);
  TL_TRY(io::make_durable(out.get(), directory));
  return path;
}

}  // namespace twinloft::repl::daemon
