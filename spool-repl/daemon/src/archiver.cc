#include "archiver.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/io/direct_file.h"
#include "twinloft/spool-repl/journal/aligned.h"

namespace twinloft::repl::daemon {

Archiver::Archiver(ports::Loop& loop, int journal_fd, std::string directory, std::string volume)
    : loop_(loop), journal_fd_(journal_fd), directory_(std::move(directory)), volume_(std::move(volume)) {}

void Archiver::start(core::ArchiveTail tail, std::function<void(Result<std::string>)> done) {
  if (thread_.joinable()) thread_.join();  // one at a time: the core waits for the end of each
  thread_ = std::jthread([this, tail = std::move(tail), done = std::move(done)]() mutable {
    std::string path = fmt::format("{}/{}-{}-{}-{}.tail", directory_, volume_, tail.first.v, tail.last.v,
                                   tail.epoch.id.text());
    Status stored = store(tail, path);
    Result<std::string> outcome = std::move(path);
    if (!stored) outcome = std::unexpected(stored.error());
    loop_.post(
        [done = std::move(done), outcome = std::move(outcome)]() mutable { done(std::move(outcome)); });
  });
}

Status Archiver::store(const core::ArchiveTail& tail, const std::string& path) const {
  Fd out(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!out) return fail_errno(errno, "{}: cannot be made", path);
  for (const auto& [offset, bytes] : tail.parts) {
    journal::AlignedBuffer buffer(bytes);
    std::size_t have = 0;
    while (have < bytes) {
      ssize_t n = ::pread(journal_fd_, buffer.span().data() + have, bytes - have,
                          static_cast<off_t>(offset + have));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return fail_errno(n < 0 ? errno : EIO, "the journal cannot be read at {}", offset + have);
      have += static_cast<std::size_t>(n);
    }
    TL_TRY(write_all(out.get(), buffer.span().first(bytes)));
  }
  return io::make_durable(out.get(), directory_);
}

}  // namespace twinloft::repl::daemon
