#include <signal.h>
#include <sys/ioctl.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "support.h"

namespace twinloft::repl::io {
namespace {

class DiskTest : public FileOpsTest {};
INSTANTIATE_TEST_SUITE_P(Rings, DiskTest, testing::Values(false, true), ring_name);

iovec piece(std::string& text) {
  return {text.data(), text.size()};
}

TEST_P(DiskTest, writes_and_reads_in_pieces_at_an_offset) {
  std::string a = "hello ", none, b = "wide ", c = "world";
  std::array<iovec, 4> out = {piece(a), piece(none), piece(b), piece(c)};
  Op op;
  loop->write(file.fd(), 10, out, true, op);
  EXPECT_FALSE(op.finished);
  EXPECT_EQ(loop->disk_ops_in_flight(), 1u);
  EXPECT_EQ(wait(op), 0);
  EXPECT_EQ(loop->disk_ops_in_flight(), 0u);
  EXPECT_EQ(content(), std::string(10, '\0') + "hello wide world");

  std::string x(3, '?'), y(13, '?');
  std::array<iovec, 2> in = {piece(x), piece(y)};
  loop->read(file.fd(), 10, in, op);
  EXPECT_EQ(wait(op), 0);
  EXPECT_EQ(x + y, "hello wide world");
}

TEST_P(DiskTest, short_reads_are_continued) {
  auto [reader, writer] = make_pipe();
  std::string x(3, '?'), y(4, '?'), z(2, '?');
  std::array<iovec, 3> in = {piece(x), piece(y), piece(z)};
  Op op;
  loop->read(reader.get(), 0, in, op);
  for (const char* part : {"ab", "cde", "f", "ghi"}) {
    EXPECT_FALSE(op.finished);
    ASSERT_EQ(write(writer.get(), part, strlen(part)), static_cast<ssize_t>(strlen(part)));
    // Waits until the pipe is empty, so that each part is a short read.
    run_until([&, fd = reader.get()] {
      int waiting = 0;
      return ioctl(fd, FIONREAD, &waiting) == 0 && waiting == 0;
    });
  }
  EXPECT_EQ(wait(op), 0);
  EXPECT_EQ(x + y + z, "abcdefghi");
}

TEST_P(DiskTest, a_read_that_meets_the_end_of_the_file_says_so) {
  ASSERT_EQ(pwrite(file.fd(), "abcdef", 6, 0), 6);
  std::string x(10, '?');
  std::array<iovec, 1> in = {piece(x)};
  Op op;
  loop->read(file.fd(), 2, in, op);
  EXPECT_EQ(wait(op), -ENODATA);
  EXPECT_EQ(x.substr(0, 4), "cdef");
}

TEST_P(DiskTest, a_short_write_is_continued_until_the_error) {
  std::string a(600, 'a'), b(600, 'b');
  std::array<iovec, 2> out = {piece(a), piece(b)};
  Op op;
  {
    FileSizeLimit limit(1000);
    loop->write(file.fd(), 0, out, false, op);
    EXPECT_EQ(wait(op), -EFBIG);
  }
  EXPECT_EQ(content(), std::string(600, 'a') + std::string(400, 'b'));
}

TEST_P(DiskTest, nothing_to_transfer_succeeds) {
  Op op;
  loop->write(file.fd(), 0, {}, false, op);
  EXPECT_EQ(wait(op), 0);
  loop->read(file.fd(), 100, {}, op);
  EXPECT_EQ(wait(op), 0);
}

TEST_P(DiskTest, bad_descriptor_is_an_error_of_the_operation) {
  Op op;
  loop->datasync(-1, op);
  EXPECT_EQ(wait(op), -EBADF);
  std::string a = "x";
  std::array<iovec, 1> out = {piece(a)};
  loop->write(-1, 0, out, false, op);
  EXPECT_EQ(wait(op), -EBADF);
}

TEST_P(DiskTest, zeroing_reads_back_as_zeros_and_keeps_the_size) {
  std::string data(64 << 10, 'x');
  ASSERT_EQ(pwrite(file.fd(), data.data(), data.size(), 0), static_cast<ssize_t>(data.size()));
  Op op;
  loop->punch_hole(file.fd(), 4096, 8192, op);
  EXPECT_EQ(wait(op), 0);
  data.replace(4096, 8192, 8192, '\0');
  EXPECT_EQ(content(), data);
  loop->zero_range(file.fd(), 32768, 1 << 20, op);
  int result = wait(op);
  // If the file system has no FALLOC_FL_ZERO_RANGE, it reports this, and nothing is changed.
  if (result != -EOPNOTSUPP) {
    EXPECT_EQ(result, 0);
    data.replace(32768, 32768, 32768, '\0');
  }
  EXPECT_EQ(content(), data);
}

TEST_P(DiskTest, datasync_succeeds_on_a_file) {
  Op op;
  loop->datasync(file.fd(), op);
  EXPECT_EQ(wait(op), 0);
}

TEST_P(DiskTest, many_more_operations_than_entries) {
  auto small = make_loop(clock, GetParam(), 4);
  constexpr std::size_t count = 200;
  struct Block {
    Op op;
    std::string text;
    std::array<iovec, 1> iov;
  };
  std::vector<Block> blocks(count);
  for (std::size_t i = 0; i < count; ++i) {
    blocks[i].text = std::string(512, static_cast<char>('a' + i % 26));
    blocks[i].iov = {piece(blocks[i].text)};
    small->write(file.fd(), i * 512, blocks[i].iov, false, blocks[i].op);
  }
  while (small->disk_ops_in_flight() > 0) ASSERT_TRUE(small->turn(std::chrono::seconds(1)));
  std::string all = content();
  ASSERT_EQ(all.size(), count * 512);
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(blocks[i].op.result, 0);
    EXPECT_EQ(all.substr(i * 512, 512), blocks[i].text);
  }
}

TEST_P(DiskTest, an_operation_may_be_started_again_from_its_own_completion) {
  struct Chain : DiskOp {
    UringLoop* loop;
    int fd;
    int left = 10;
  } chain;
  chain.loop = loop.get();
  chain.fd = file.fd();
  chain.done = [](DiskOp& op) {
    auto& c = static_cast<Chain&>(op);
    EXPECT_EQ(c.result, 0);
    if (--c.left > 0) c.loop->datasync(c.fd, c);
  };
  loop->datasync(file.fd(), chain);
  run_until([&] { return chain.left == 0; });
  EXPECT_EQ(loop->disk_ops_in_flight(), 0u);
}

TEST_P(DiskTest, destruction_waits_for_what_is_in_flight) {
  std::string data(1 << 20, 'x');
  std::array<iovec, 1> out = {piece(data)};
  Op op;
  loop->write(file.fd(), 0, out, true, op);
  ASSERT_TRUE(loop->turn(Duration::zero()));
  loop.reset();
  EXPECT_EQ(content(), data);
}

}  // namespace
}  // namespace twinloft::repl::io
