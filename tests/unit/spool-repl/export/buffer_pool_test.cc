#include "twinloft/spool-repl/export/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstring>

namespace twinloft::repl::exports {
namespace {

TEST(BufferPool, buffers_are_aligned_writable_and_distinct) {
  BufferPool pool(1 << 20);
  std::vector<Buffer> held;
  for (std::size_t bytes : {1u, 4096u, 4097u, 65536u, 65537u, 1u << 20}) {
    held.push_back(pool.take(bytes));
    ASSERT_TRUE(held.back());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(held.back().data()) % 4096, 0u);
    std::memset(held.back().data(), static_cast<int>(held.size()), bytes);
  }
  for (std::size_t i = 0; i < held.size(); ++i) EXPECT_EQ(held[i].data()[0], static_cast<std::byte>(i + 1));
  EXPECT_EQ(pool.in_use_bytes(), 4096u + 4096 + 8192 + 65536 + 131072 + (1u << 20));
  held.clear();
  EXPECT_EQ(pool.in_use_bytes(), 0u);
}

TEST(BufferPool, a_returned_buffer_is_used_again) {
  BufferPool pool(1 << 20);
  Buffer first = pool.take(300000);
  std::byte* where = first.data();
  first.reset();
  EXPECT_FALSE(first);
  EXPECT_EQ(pool.take(300000).data(), where);
}

TEST(BufferPool, what_is_kept_stays_within_its_bound_and_follows_use) {
  constexpr std::size_t retain = 2 << 20;
  BufferPool pool(retain);
  EXPECT_LE(pool.free_bytes(), retain);
  for (std::size_t bytes : {4096u, 1u << 20, 65536u}) {
    std::vector<Buffer> held;
    for (int i = 0; i < 40; ++i) held.push_back(pool.take(bytes));
    held.clear();
    EXPECT_LE(pool.free_bytes(), retain);
    EXPECT_GE(pool.free_bytes(), std::min(retain, 40 * bytes) / 2);
  }
}

TEST(BufferPool, moving_hands_over_and_returns_what_was_held) {
  BufferPool pool(1 << 20);
  Buffer a = pool.take(4096), b = pool.take(8192);
  std::byte* second = b.data();
  a = std::move(b);
  EXPECT_EQ(a.data(), second);
  EXPECT_EQ(pool.in_use_bytes(), 8192u);
}

}  // namespace
}  // namespace twinloft::repl::exports
