#include "read_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace twinloft::repl::salvage {

Status read_pieces(int fd, const std::function<Result<bool>(ByteSpan)>& take) {
  std::vector<std::byte> buffer(128 * 1024);
  for (off_t at = 0;;) {
    ssize_t n = ::pread(fd, buffer.data(), buffer.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "read at byte {}", at);
    if (n == 0) return {};
    at += n;
    TL_TRY_ASSIGN(bool more, take(ByteSpan(buffer).first(static_cast<std::size_t>(n))));
    if (!more) return {};
  }
}

Result<std::string> read_start(int fd, std::size_t bytes) {
  std::string out;
  TL_TRY(read_pieces(fd, [&](ByteSpan piece) -> Result<bool> {
    out += as_text(piece.first(std::min(piece.size(), bytes - out.size())));
    return out.size() < bytes;
  }));
  return out;
}

}  // namespace twinloft::repl::salvage
