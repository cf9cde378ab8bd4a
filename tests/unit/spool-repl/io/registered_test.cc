// Memory that is registered with the kernel. The tests prove its use: pinned memory can be transferred even
// where the process itself has no access any more.
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "support.h"

namespace twinloft::repl::io {
namespace {

constexpr std::size_t page = 4096;

class Pages {
 public:
  explicit Pages(std::size_t count) : bytes_(count * page) {
    data_ = static_cast<char*>(
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(static_cast<void*>(data_), MAP_FAILED);
    for (std::size_t i = 0; i < bytes_; ++i) data_[i] = static_cast<char>('a' + i / page % 26);
  }
  ~Pages() { ::munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  MutableByteSpan span() const { return {reinterpret_cast<std::byte*>(data_), bytes_}; }
  iovec piece(std::size_t offset, std::size_t bytes) const { return {data_ + offset, bytes}; }
  std::string text(std::size_t offset, std::size_t bytes) const { return {data_ + offset, bytes}; }
  void forbid() { ASSERT_EQ(::mprotect(data_, bytes_, PROT_NONE), 0); }
  void allow() { ASSERT_EQ(::mprotect(data_, bytes_, PROT_READ | PROT_WRITE), 0); }

 private:
  std::size_t bytes_;
  char* data_ = nullptr;
};

// A direct question to the kernel: 61 is IORING_OP_WRITEV_FIXED of Linux 6.15.
bool kernel_has_fixed_vectors() {
  std::unique_ptr<io_uring_probe, decltype(&io_uring_free_probe)> probe(io_uring_get_probe(),
                                                                        &io_uring_free_probe);
  return probe && io_uring_opcode_supported(probe.get(), 61);
}

class RegisteredTest : public FileOpsTest {
 protected:
  int write(int fd, std::uint64_t offset, std::vector<iovec> iov) {
    Op op;
    loop->write(fd, offset, iov, true, op);
    return wait(op);
  }
  int read(int fd, std::uint64_t offset, std::vector<iovec> iov) {
    Op op;
    loop->read(fd, offset, iov, op);
    return wait(op);
  }
};
INSTANTIATE_TEST_SUITE_P(Rings, RegisteredTest, testing::Values(false, true), ring_name);

TEST_P(RegisteredTest, one_piece_of_registered_memory) {
  Pages memory(4);
  ASSERT_TRUE(loop->register_memory({{memory.span()}}));
  memory.forbid();
  EXPECT_EQ(write(file.fd(), 100, {memory.piece(page, page)}), 0);
  EXPECT_EQ(content(file), std::string(100, '\0') + std::string(page, 'b'));
  EXPECT_EQ(read(file.fd(), 100, {memory.piece(3 * page, page)}), 0);
  memory.allow();
  EXPECT_EQ(memory.text(3 * page, page), std::string(page, 'b'));
}

TEST_P(RegisteredTest, several_pieces_of_registered_memory) {
  Pages memory(8);
  ASSERT_TRUE(loop->register_memory({{memory.span()}}));
  std::vector<iovec> out = {memory.piece(5 * page, page), memory.piece(0, 100),
                            memory.piece(2 * page + 7, 2 * page)};
  std::string wanted = std::string(page, 'f') + std::string(100, 'a') + std::string(page - 7, 'c') +
                       std::string(page, 'd') + "eeeeeee";
  EXPECT_EQ(write(file.fd(), 0, out), 0);
  EXPECT_EQ(content(file), wanted);
  EXPECT_EQ(read(file.fd(), page, {memory.piece(7 * page, 50), memory.piece(6 * page, 50)}), 0);
  EXPECT_EQ(memory.text(7 * page, 50) + memory.text(6 * page, 50), std::string(100, 'a'));
  memory.forbid();
  EXPECT_EQ(write(file.fd(), 0, out), kernel_has_fixed_vectors() ? 0 : -EFAULT);
  memory.allow();
}

TEST_P(RegisteredTest, memory_that_is_not_registered_or_only_in_part) {
  Pages first(2), second(2), other(2);
  ASSERT_TRUE(loop->register_memory(std::array{first.span(), second.span()}));
  EXPECT_EQ(write(file.fd(), 0, {other.piece(page, page)}), 0);
  EXPECT_EQ(write(file.fd(), page, {first.piece(0, 10), other.piece(0, 10)}), 0);
  EXPECT_EQ(write(file.fd(), page + 20, {second.piece(page, 10), first.piece(page, 10)}), 0);
  EXPECT_EQ(write(file.fd(), page + 40, {second.piece(2 * page, 0)}), 0);
  EXPECT_EQ(content(file), std::string(page, 'b') + std::string(20, 'a') + std::string(20, 'b'));
  second.forbid();
  EXPECT_EQ(write(file.fd(), 0, {second.piece(page, page)}), 0);  // the second area, by its own index
  second.allow();
}

TEST_P(RegisteredTest, short_reads_are_continued_within_the_area) {
  Pages memory(1);
  ASSERT_TRUE(loop->register_memory({{memory.span()}}));
  auto [reader, writer] = make_pipe();
  std::vector<iovec> in = {memory.piece(900, 3), memory.piece(10, 4), memory.piece(500, 5)};
  Op op;
  loop->read(reader.get(), 0, in, op);
  for (const char* part : {"ab", "cde", "f", "ghi", "jkl"}) {
    EXPECT_FALSE(op.finished);
    ASSERT_EQ(::write(writer.get(), part, strlen(part)), static_cast<ssize_t>(strlen(part)));
    run_until([&, fd = reader.get()] {
      int waiting = 0;
      return ioctl(fd, FIONREAD, &waiting) == 0 && waiting == 0;
    });
  }
  EXPECT_EQ(wait(op), 0);
  EXPECT_EQ(memory.text(900, 3) + memory.text(10, 4) + memory.text(500, 5), "abcdefghijkl");
}

TEST_P(RegisteredTest, a_short_write_is_continued_until_the_error) {
  Pages memory(2);
  ASSERT_TRUE(loop->register_memory({{memory.span()}}));
  {
    FileSizeLimit limit(1000);
    EXPECT_EQ(write(file.fd(), 0, {memory.piece(page, 600), memory.piece(0, 600)}), -EFBIG);
    EXPECT_EQ(write(file.fd(), 900, {memory.piece(page, 600)}), -EFBIG);
  }
  EXPECT_EQ(content(file), std::string(600, 'b') + std::string(300, 'a') + std::string(100, 'b'));
}

TEST_P(RegisteredTest, memory_that_is_not_mapped_is_refused_and_nothing_changes) {
  Pages memory(2);
  auto* gone = static_cast<std::byte*>(::mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(::munmap(gone, page), 0);
  Status refused = loop->register_memory(std::array{memory.span(), MutableByteSpan(gone, page)});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().sys, EFAULT);
  EXPECT_EQ(write(file.fd(), 0, {memory.piece(page, 5)}), 0);
  EXPECT_EQ(content(file), "bbbbb");
  EXPECT_TRUE(loop->register_memory({{memory.span()}}));
}

TEST_P(RegisteredTest, another_loop_does_not_know_what_this_one_registered) {
  Pages memory(2);
  ASSERT_TRUE(loop->register_memory({{memory.span()}}));
  EXPECT_EQ(write(file.fd(), 0, {memory.piece(page, 5)}), 0);
  loop = make_loop(clock, GetParam());
  memory.forbid();
  EXPECT_EQ(write(file.fd(), 0, {memory.piece(page, 5)}), -EFAULT);
  memory.allow();
}

}  // namespace
}  // namespace twinloft::repl::io
