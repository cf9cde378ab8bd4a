#include "arena_memory.h"

#include <sys/mman.h>

#include <cerrno>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; linux/mman.h
#endif

namespace twinloft::repl::daemon {

namespace {

constexpr std::uint64_t huge_page_bytes = 2u << 20;
constexpr std::uint64_t page_bytes = 4096;

// Before Linux 5.14, touching the pages allocates them now.
int populate(std::byte* data, std::uint64_t bytes) {
  int rc;
  do rc = ::madvise(data, bytes, MADV_POPULATE_WRITE);
  while (rc != 0 && (errno == EINTR || errno == EAGAIN));
  if (rc == 0) return 0;
  if (errno != EINVAL) return errno;
  for (std::uint64_t at = 0; at < bytes; at += page_bytes)
    *reinterpret_cast<volatile std::byte*>(data + at) = std::byte{0};
  return 0;
}

}  // namespace

Status ArenaMemory::map(std::uint64_t bytes) {
  mapped_bytes_ = bytes + huge_page_bytes;  // the kernel aligns to small pages
  // Not accessible yet: with mlockall(2), small pages would be allocated at once.
  void* p = ::mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return fail_errno(errno, "no memory for an arena of {} MiB", bytes >> 20);
  mapped_ = p;
  auto address = reinterpret_cast<std::uintptr_t>(p);
  data_ = static_cast<std::byte*>(p) + (huge_page_bytes - address % huge_page_bytes) % huge_page_bytes;
  bytes_ = bytes;
  (void)::madvise(data_, bytes, MADV_HUGEPAGE);  // refused if huge pages are off; small pages are sufficient
  if (::mprotect(data_, bytes, PROT_READ | PROT_WRITE) != 0)
    return fail_errno(errno, "no memory for an arena of {} MiB", bytes >> 20);
  if (int error = populate(data_, bytes); error != 0)
    return fail_errno(error, "no memory for an arena of {} MiB", bytes >> 20);
  return {};
}

ArenaMemory::~ArenaMemory() {
  if (mapped_) ::munmap(mapped_, mapped_bytes_);
}

}  // namespace twinloft::repl::daemon
