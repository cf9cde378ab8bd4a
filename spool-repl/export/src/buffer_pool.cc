#include "twinloft/spool-repl/export/buffer_pool.h"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "twinloft/base/check.h"

namespace twinloft::repl::exports {

namespace {
constexpr std::size_t smallest = 4096;
constexpr std::size_t bytes_of(unsigned size_class) {
  return smallest << size_class;
}
}  // namespace

Buffer::Buffer(Buffer&& other) noexcept
    : pool_(other.pool_), data_(std::exchange(other.data_, nullptr)), size_class_(other.size_class_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  reset();
  pool_ = other.pool_;
  data_ = std::exchange(other.data_, nullptr);
  size_class_ = other.size_class_;
  return *this;
}

void Buffer::reset() {
  if (data_ != nullptr) pool_->give_back(std::exchange(data_, nullptr), size_class_);
}

BufferPool::BufferPool(std::size_t retain_bytes) : retain_bytes_(retain_bytes) {
  static_assert(bytes_of(classes - 1) == max_bytes);
  for (auto [size_class, share] : {std::pair{0u, 8u}, std::pair{5u, 4u}, std::pair{8u, 4u}}) {
    for (std::size_t left = retain_bytes / share; left >= bytes_of(size_class);
         left -= bytes_of(size_class)) {
      auto* data = static_cast<std::byte*>(std::aligned_alloc(smallest, bytes_of(size_class)));
      if (data == nullptr) return;
      std::memset(data, 0, bytes_of(size_class));
      free_[size_class].push_back(data);
      free_bytes_ += bytes_of(size_class);
    }
  }
}

BufferPool::~BufferPool() {
  TL_CHECK_MSG(in_use_bytes_ == 0, "a buffer outlives its pool");
  make_room(retain_bytes_);
}

Buffer BufferPool::take(std::size_t bytes) {
  TL_CHECK(bytes > 0 && bytes <= max_bytes);
  Buffer b;
  b.pool_ = this;
  b.size_class_ = bytes <= smallest ? 0 : static_cast<unsigned>(std::bit_width((bytes - 1) / smallest));
  auto& free = free_[b.size_class_];
  std::size_t size = bytes_of(b.size_class_);
  if (!free.empty()) {
    b.data_ = free.back();
    free.pop_back();
    free_bytes_ -= size;
  } else {
    b.data_ = static_cast<std::byte*>(std::aligned_alloc(smallest, size));
    if (b.data_ == nullptr) return b;
  }
  in_use_bytes_ += size;
  return b;
}

void BufferPool::give_back(std::byte* data, unsigned size_class) {
  std::size_t size = bytes_of(size_class);
  in_use_bytes_ -= size;
  // The last returned size is likely to be needed next, so idle buffers of other sizes are freed for it.
  make_room(size);
  if (free_bytes_ + size > retain_bytes_) return std::free(data);
  free_[size_class].push_back(data);
  free_bytes_ += size;
}

// Frees idle buffers, the largest first, until `bytes` more may be kept.
void BufferPool::make_room(std::size_t bytes) {
  for (unsigned c = classes; c-- > 0;) {
    while (free_bytes_ + bytes > retain_bytes_ && !free_[c].empty()) {
      std::free(free_[c].back());
      free_[c].pop_back();
      free_bytes_ -= bytes_of(c);
    }
  }
}

}  // namespace twinloft::repl::exports
