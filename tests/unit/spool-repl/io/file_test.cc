#include <array>
#include <cerrno>
#include <cstring>

#include "support.h"
#include "twinloft/spool-repl/io/direct_file.h"

namespace twinloft::repl::io {
namespace {

struct AlignedBlocks {
  explicit AlignedBlocks(std::size_t count)
      : memory(static_cast<std::byte*>(std::aligned_alloc(4096, count * 4096)), &std::free),
        bytes(count * 4096) {
    std::memset(memory.get(), 0, bytes);
  }
  MutableByteSpan span() { return {memory.get(), bytes}; }
  std::unique_ptr<std::byte, decltype(&std::free)> memory;
  std::size_t bytes;
};

TEST(OpenDirect, file_is_opened_and_measured) {
  TempFile temp;
  ASSERT_EQ(ftruncate(temp.fd(), 3 * 4096), 0);
  auto file = open_direct(temp.path(), Access::read_write);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->size_bytes, 3u * 4096);
  EXPECT_FALSE(file->block_device);
  EXPECT_EQ((fcntl(file->fd.get(), F_GETFL) & O_DIRECT) != 0, file->direct);
}

TEST(OpenDirect, file_system_without_direct_io_is_reported_not_refused) {
  auto file = open_direct("/proc/self/comm", Access::read_only);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_FALSE(file->direct);
  EXPECT_EQ(fcntl(file->fd.get(), F_GETFL) & O_DIRECT, 0);
}

TEST(OpenDirect, errors_name_the_path_and_the_reason) {
  TempFile temp;
  auto missing = open_direct(temp.path() + ".missing", Access::read_write);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().sys, ENOENT);
  EXPECT_NE(missing.error().message.find(temp.path() + ".missing"), std::string::npos);
  auto directory = open_direct("/", Access::read_only);
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().code, Errc::invalid);
  auto terminal = open_direct("/dev/null", Access::read_write);
  ASSERT_FALSE(terminal);
  EXPECT_EQ(terminal.error().code, Errc::invalid);
}

TEST(OpenDirect, a_second_writer_is_refused_a_reader_is_not) {
  TempFile temp;
  auto first = open_direct(temp.path(), Access::read_write);
  ASSERT_TRUE(first);
  auto second = open_direct(temp.path(), Access::read_write);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::unavailable);
  EXPECT_TRUE(open_direct(temp.path(), Access::read_only));
  first->fd.reset();
  EXPECT_TRUE(open_direct(temp.path(), Access::read_write));
}

struct ManyTest : testing::Test {
  static constexpr std::size_t blocks = 1000;
  void SetUp() override {
    ASSERT_EQ(ftruncate(temp.fd(), blocks * 4096), 0);
    auto opened = open_direct(temp.path(), Access::read_write);
    ASSERT_TRUE(opened) << opened.error().message;
    file = std::move(*opened);
    for (std::size_t i = 0; i < blocks; ++i)
      std::memset(out.span().data() + i * 4096, static_cast<int>(i % 251), 4096);
  }
  // Each block is its own piece, in reverse order.
  std::vector<ports::BlockFile::Piece> pieces(AlignedBlocks& memory) {
    std::vector<ports::BlockFile::Piece> all;
    for (std::size_t i = blocks; i-- > 0;) all.push_back({i * 4096, memory.span().subspan(i * 4096, 4096)});
    return all;
  }
  TempFile temp;
  DirectFile file;
  AlignedBlocks out{blocks}, in{blocks};
};

TEST_F(ManyTest, all_pieces_are_written_and_read) {
  OsBlockFile disk(file);
  ASSERT_TRUE(disk.write_all(pieces(out)));
  ASSERT_TRUE(disk.read_all(pieces(in)));
  EXPECT_EQ(std::memcmp(in.span().data(), out.span().data(), in.bytes), 0);
  EXPECT_TRUE(disk.read_all({}));
}

TEST_F(ManyTest, one_that_fails_is_named_and_the_file_is_of_use_afterwards) {
  OsBlockFile disk(file);
  ASSERT_TRUE(disk.write_all(pieces(out)));
  auto wanted = pieces(in);
  wanted[500].offset = (blocks + 7) * 4096;
  auto beyond = disk.read_all(wanted);
  ASSERT_FALSE(beyond);
  EXPECT_NE(beyond.error().message.find(std::to_string((blocks + 7) * 4096)), std::string::npos)
      << beyond.error().message;
  EXPECT_TRUE(disk.read_all(pieces(in)));
  EXPECT_EQ(std::memcmp(in.span().data(), out.span().data(), in.bytes), 0);
}

TEST_F(ManyTest, writes_that_fail_are_an_error) {
  auto reader = open_direct(temp.path(), Access::read_only);
  ASSERT_TRUE(reader);
  OsBlockFile disk(*reader);
  auto refused = disk.write_all(pieces(out));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().sys, EBADF);
}

TEST(OsBlockFile, reads_what_it_wrote_and_zeroed) {
  TempFile temp;
  ASSERT_EQ(ftruncate(temp.fd(), 8 * 4096), 0);
  auto file = open_direct(temp.path(), Access::read_write);
  ASSERT_TRUE(file) << file.error().message;
  OsBlockFile disk(*file);
  EXPECT_EQ(disk.size_bytes(), 8u * 4096);
  AlignedBlocks out(4), in(4);
  std::memset(out.span().data(), 'x', out.bytes);
  ASSERT_TRUE(disk.write(4096, out.span()));
  ASSERT_TRUE(disk.write_zeros(8192, 4096));
  ASSERT_TRUE(disk.sync());
  ASSERT_TRUE(disk.read(4096, in.span()));
  std::memset(out.span().data() + 4096, 0, 4096);
  EXPECT_EQ(std::memcmp(in.span().data(), out.span().data(), in.bytes), 0);
  auto beyond = disk.read(6 * 4096, in.span());
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, Errc::corrupt);
}

}  // namespace
}  // namespace twinloft::repl::io
