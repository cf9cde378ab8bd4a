#include "agent_stdin.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "twinloft/lmtpd/maildir/message_writer.h"

namespace twinloft::lmtpd {

namespace {

constexpr timespec long_past{1, 0};

Result<Fd> make_file(bool in_memory, const std::string& temporary) {
  if (in_memory) {
    Fd fd(::memfd_create("message", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd) return fail_errno(errno, "memfd_create");
    return fd;
  }
  Fd fd(::open(temporary.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return fail_errno(errno, "unlinked file in {}", temporary);
  return fd;
}

}  // namespace

Result<AgentStdin> AgentStdin::create(std::string_view header, const MessageBody& body, bool crlf,
                                      const Place& place) {
  AgentStdin out;
  bool in_memory = body.size <= place.memory_bytes_max &&
                   out.charge_.take(place.budget, header.size() + body.size);
  if (!in_memory && !out.charge_.take(place.disk, header.size() + body.size))
    return std::unexpected(
        Error{Errc::exhausted, "messages in files use all of limits.body_disk_total", ENOSPC});
  TL_TRY_ASSIGN(out.fd_, make_file(in_memory, place.temporary));
  TL_TRY(write_message(header, body, crlf,
                       [&](std::string_view chunk) { return write_all(out.fd_.get(), as_bytes(chunk)); }));
  if (::lseek(out.fd_.get(), 0, SEEK_SET) != 0) return fail_errno(errno, "lseek");
  constexpr int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (in_memory && ::fcntl(out.fd_.get(), F_ADD_SEALS, seals) != 0)
    return fail_errno(errno, "sealing the message");
  struct statvfs about{};
  bool keeps_access_times = in_memory ||
                            (::fstatvfs(out.fd_.get(), &about) == 0 && !(about.f_flag & ST_NOATIME));
  timespec times[2] = {long_past, {0, UTIME_OMIT}};
  out.access_time_counts_ = keeps_access_times && ::futimens(out.fd_.get(), times) == 0;
  return out;
}

bool AgentStdin::was_read() const {
  struct stat about{};
  if (::fstat(fd_.get(), &about) != 0 || about.st_size == 0) return true;
  if (::lseek(fd_.get(), 0, SEEK_CUR) != 0) return true;
  if (!access_time_counts_) return true;
  return about.st_atim.tv_sec != long_past.tv_sec || about.st_atim.tv_nsec != long_past.tv_nsec;
}

}  // namespace twinloft::lmtpd
