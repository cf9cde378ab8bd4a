#include "twinloft/spool-repl/snapshot/cow_target.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>

#include "../support/memory_file.h"
#include "twinloft/base/random.h"

namespace twinloft::repl::snapshot {
namespace {

constexpr std::uint64_t blocks = 600, bytes = blocks * block_size;

std::vector<std::byte> random_bytes(std::uint64_t seed, std::size_t n) {
  std::vector<std::byte> out(n);
  SeededRandom random(seed);
  for (auto& b : out) b = std::byte(random.below(256));
  return out;
}

class CowTargetTest : public testing::Test {
 protected:
  CowTargetTest()
      : data(random_bytes(1, bytes)), model(data.bytes), image(data, HomeMap::identity(blocks), {}) {
    const char* tmp = std::getenv("TMPDIR");
    auto made = CowTarget::create(image, tmp ? tmp : "/var/tmp");
    if (!made) throw std::runtime_error(made.error().message);
    target = std::move(*made);
  }
  int io(ports::IoOp op, std::uint64_t offset, std::uint32_t length, std::byte* memory = nullptr) {
    ports::IoRequest r;
    r.op = op, r.offset = offset, r.length = length, r.data = memory;
    bool done = false;
    r.owner = &done;
    r.done = [](ports::IoRequest& x) { *static_cast<bool*>(x.owner) = true; };
    target->submit(r);
    EXPECT_TRUE(done);
    return r.error;
  }
  void expect_content() {
    std::vector<std::byte> out(bytes);
    for (std::uint64_t at = 0; at < bytes; at += ports::io_max_length) {
      auto n = static_cast<std::uint32_t>(std::min<std::uint64_t>(ports::io_max_length, bytes - at));
      ASSERT_EQ(io(ports::IoOp::read, at, n, out.data() + at), 0);
    }
    EXPECT_EQ(out == model, true);
  }

  MemoryFile data;
  std::vector<std::byte> model;
  journal::Image image;
  std::unique_ptr<CowTarget> target;
};

TEST_F(CowTargetTest, ReadsWhatWasWrittenAndLeavesTheImageAlone) {
  SeededRandom random(7);
  std::vector<bool> touched(blocks);
  for (int i = 0; i < 600; ++i) {
    // Any bytes, but more often whole blocks, as the loop device requests.
    std::uint64_t unit = random.below(3) == 0 ? 1 : block_size;
    std::uint64_t offset = random.below(bytes / unit) * unit;
    std::uint64_t n = std::min<std::uint64_t>(bytes - offset,
                                              (1 + random.below(40)) * (unit == 1 ? 300 : block_size));
    auto content = random_bytes(static_cast<std::uint64_t>(i), n);
    unsigned what = static_cast<unsigned>(random.below(4));
    if (what == 0) {
      std::vector<std::byte> out(n);
      ASSERT_EQ(io(ports::IoOp::read, offset, static_cast<std::uint32_t>(n), out.data()), 0);
      ASSERT_EQ(std::equal(out.begin(), out.end(), model.begin() + static_cast<std::ptrdiff_t>(offset)),
                true);
      continue;
    }
    if (what == 1) std::fill(content.begin(), content.end(), std::byte{0});
    ports::IoOp op = what == 1 ? (i % 2 ? ports::IoOp::trim : ports::IoOp::write_zeroes) : ports::IoOp::write;
    ASSERT_EQ(io(op, offset, static_cast<std::uint32_t>(n), content.data()), 0);
    std::copy(content.begin(), content.end(), model.begin() + static_cast<std::ptrdiff_t>(offset));
    for (std::uint64_t b = offset / block_size; b <= (offset + n - 1) / block_size; ++b) touched[b] = true;
  }
  expect_content();
  EXPECT_EQ(data.bytes == random_bytes(1, bytes), true);
  EXPECT_EQ(data.writes, 0u);
  for (std::uint64_t b = 0; b < blocks; ++b) ASSERT_EQ(target->changed(b, 1), touched[b]) << b;
  EXPECT_FALSE(target->changed(blocks, 100)) << "beyond the end";
  EXPECT_EQ(io(ports::IoOp::flush, 0, 0), 0);
  EXPECT_FALSE(target->failure());
}

TEST_F(CowTargetTest, AnUnreadableImageIsAnErrorThatIsRemembered) {
  data.fails = [](std::uint64_t offset, std::uint64_t count, bool) {
    return offset <= 5 * block_size && 5 * block_size < offset + count;
  };
  std::vector<std::byte> out(2 * block_size);
  EXPECT_EQ(io(ports::IoOp::read, 6 * block_size, block_size, out.data()), 0);
  EXPECT_EQ(io(ports::IoOp::read, 4 * block_size, 2 * block_size, out.data()), EIO);
  ASSERT_TRUE(target->failure());
  EXPECT_NE(target->failure()->message.find("reading at"), std::string::npos);
  // A block that is overwritten as a whole is not read from the image.
  EXPECT_EQ(io(ports::IoOp::write, 5 * block_size, block_size, out.data()), 0);
  EXPECT_EQ(io(ports::IoOp::read, 4 * block_size, 2 * block_size, out.data()), 0);
}

TEST_F(CowTargetTest, ADirectoryThatIsNotThereIsNamed) {
  auto made = CowTarget::create(image, "/nowhere/at/all");
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("/nowhere/at/all"), std::string::npos);
}

}  // namespace
}  // namespace twinloft::repl::snapshot
