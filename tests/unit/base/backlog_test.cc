#include "twinloft/base/backlog.h"

#include <gtest/gtest.h>

#include <cstring>

#include "twinloft/base/random.h"

namespace twinloft {

TEST(BacklogTest, KeepsTheOrderAcrossItsPieces) {
  SeededRandom random(3);
  Backlog backlog;
  std::vector<std::byte> all;  // what waits
  for (int i = 0; i < 300; ++i) {
    std::vector<std::byte> more(random.below(200'000));
    random.fill(more);
    backlog.append(more);
    all.insert(all.end(), more.begin(), more.end());
    std::size_t out = random.below(3) == 0 ? all.size() : random.below(all.size() + 1);
    backlog.drop(out);
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(out));
    ASSERT_EQ(backlog.bytes(), all.size());
    std::size_t at = 0;
    backlog.for_each([&](ByteSpan part) {
      ASSERT_LE(at + part.size(), all.size());
      EXPECT_EQ(std::memcmp(part.data(), all.data() + at, part.size()), 0);
      at += part.size();
    });
    ASSERT_EQ(at, all.size());
  }
  backlog.clear();
  EXPECT_EQ(backlog.bytes(), 0u);
  backlog.for_each([](ByteSpan) { ADD_FAILURE() << "nothing waits"; });
}

}  // namespace twinloft
