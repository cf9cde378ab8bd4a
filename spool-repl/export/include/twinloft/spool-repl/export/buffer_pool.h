// Memory for data between clients and the target: page-aligned buffers of 4 KiB to 1 MiB, in powers of two.
// Free buffers are kept, so that requests allocate no memory. For one thread.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace twinloft::repl::exports {

class BufferPool;

// Owns a buffer, and returns it to its pool.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { reset(); }
  std::byte* data() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }
  void reset();

 private:
  friend class BufferPool;
  BufferPool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  unsigned size_class_ = 0;
};

class BufferPool {
 public:
  static constexpr std::size_t max_bytes = 1u << 20;  // of a buffer

  // retain_bytes: how much free memory is kept. It is allocated and touched at once, as buffers of 4 KiB, 128
  // KiB and 1 MiB. Later, the sizes follow the use.
  explicit BufferPool(std::size_t retain_bytes);
  ~BufferPool();  // every buffer must have been returned
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // A buffer of at least `bytes` (1 to max_bytes) with undefined content. Empty: the system has no memory
  // left.
  Buffer take(std::size_t bytes);
  std::size_t in_use_bytes() const { return in_use_bytes_; }
  std::size_t free_bytes() const { return free_bytes_; }

 private:
  friend class Buffer;
  static constexpr unsigned classes = 9;  // 4 KiB << 0..8
  void give_back(std::byte* data, unsigned size_class);
  void make_room(std::size_t bytes);

  std::size_t retain_bytes_;
  std::size_t free_bytes_ = 0;
  std::size_t in_use_bytes_ = 0;
  std::array<std::vector<std::byte*>, classes> free_;
};

}  // namespace twinloft::repl::exports
