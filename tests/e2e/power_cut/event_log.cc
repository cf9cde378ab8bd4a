#include "event_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace twinloft::power {

namespace {
constexpr std::size_t buffer_bytes = 1 << 20;

bool has_bytes(const Event& e) {
  return e.kind == EventKind::name || e.kind == EventKind::write;
}
}  // namespace

Result<EventWriter> EventWriter::create(const std::string& path) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return fail_errno(errno, "log {}", path);
  return EventWriter(std::move(fd));
}

Status EventWriter::append(const Event& event, ByteSpan bytes) {
  auto head = std::as_bytes(std::span(&event, 1));
  buffer_.insert(buffer_.end(), head.begin(), head.end());
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return buffer_.size() < buffer_bytes ? Status{} : flush();
}

Status EventWriter::flush() {
  Status written = write_all(fd_.get(), buffer_);
  buffer_.clear();
  return written;
}

Result<EventReader> EventReader::open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat st{};
  if (!fd || ::fstat(fd.get(), &st) != 0) return fail_errno(errno, "log {}", path);
  EventReader reader;
  reader.size_ = static_cast<std::size_t>(st.st_size);
  if (reader.size_ == 0) return fail(Errc::invalid, "log {}: it is empty", path);
  void* memory = ::mmap(nullptr, reader.size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (memory == MAP_FAILED) return fail_errno(errno, "log {}", path);
  reader.memory_ = static_cast<std::byte*>(memory);
  return reader;
}

EventReader::EventReader(EventReader&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), size_(other.size_), at_(other.at_) {}

EventReader::~EventReader() {
  if (memory_ != nullptr) ::munmap(memory_, size_);
}

bool EventReader::next(Item& item) {
  if (size_ - at_ < sizeof(Event)) return false;
  std::memcpy(&item.event, memory_ + at_, sizeof(Event));
  std::size_t bytes = has_bytes(item.event) ? item.event.length : 0;
  if (size_ - at_ - sizeof(Event) < bytes) return false;
  item.bytes = {memory_ + at_ + sizeof(Event), bytes};
  at_ += sizeof(Event) + bytes;
  return true;
}

}  // namespace twinloft::power
