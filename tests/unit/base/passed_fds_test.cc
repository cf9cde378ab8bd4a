#include "twinloft/base/passed_fds.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

namespace twinloft {
namespace {

struct PassedFds : testing::Test {
  PassedFds() {
    auto pair = make_socket_pair();
    EXPECT_TRUE(pair);
    ours = std::move(pair->ours), theirs = std::move(pair->theirs);
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_end.reset(ends[0]), write_end.reset(ends[1]);
  }
  static std::size_t open_here() {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
  }
  static std::size_t count(const ReceivedPacket& packet) {
    std::size_t n = 0;
    for (const Fd& fd : packet.fds) n += fd ? 1 : 0;
    return n;
  }
  std::expected<ReceivedPacket, int> receive(std::size_t fds_max) {
    return receive_packet(theirs.get(), buffer, fds_max, MSG_DONTWAIT);
  }
  std::string text(const ReceivedPacket& packet) {
    return std::string(as_text(ByteSpan(buffer).first(packet.bytes)));
  }

  Fd ours, theirs, read_end, write_end;
  std::vector<std::byte> buffer = std::vector<std::byte>(64);
};

TEST_F(PassedFds, ArriveInTheirOrderAndAreClosedAtAnExec) {
  int both[] = {read_end.get(), write_end.get()};
  ASSERT_EQ(send_packet(ours.get(), as_bytes("two"), both), 0);
  auto got = receive(2);
  ASSERT_TRUE(got);
  EXPECT_EQ(text(*got), "two");
  EXPECT_TRUE(!got->cut && !got->fds_lost);
  ASSERT_EQ(count(*got), 2u);
  EXPECT_EQ(::fcntl(got->fds[0].get(), F_GETFD), FD_CLOEXEC);
  ASSERT_TRUE(write_all(got->fds[1].get(), as_bytes("x")));
  std::byte one[1];
  EXPECT_TRUE(read_exact(got->fds[0].get(), one)) << "the first one is the read end";
}

TEST_F(PassedFds, APacketNeedsNone) {
  ASSERT_EQ(send_packet(ours.get(), as_bytes("none")), 0);
  auto got = receive(1);
  ASSERT_TRUE(got);
  EXPECT_EQ(text(*got), "none");
  EXPECT_EQ(count(*got), 0u);
  EXPECT_FALSE(got->fds_lost);
}

// Also if the kernel's padding has room for one more descriptor than was requested.
TEST_F(PassedFds, WhatNobodyWantsIsClosed) {
  std::vector<int> four(passed_fds_max, read_end.get());
  for (std::size_t wanted = 0; wanted <= passed_fds_max; ++wanted) {
    std::size_t before = open_here();
    {
      ASSERT_EQ(send_packet(ours.get(), as_bytes("four"), four), 0);
      auto got = receive(wanted);
      ASSERT_TRUE(got);
      EXPECT_EQ(text(*got), "four") << "the packet arrives nevertheless";
      EXPECT_EQ(count(*got), wanted);
      EXPECT_EQ(got->fds_lost, wanted < four.size());
      EXPECT_EQ(open_here(), before + wanted);
    }
    EXPECT_EQ(open_here(), before);
  }
}

TEST_F(PassedFds, AProcessWithoutNumbersLosesThemAndIsTold) {
  int both[] = {read_end.get(), write_end.get()};
  ASSERT_EQ(send_packet(ours.get(), as_bytes("two"), both), 0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  int next = ::dup(0);
  ASSERT_GE(next, 0);
  ::close(next);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(next) + 1;  // one free descriptor number: all lower numbers are in use
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  auto got = receive(2);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(got);
  EXPECT_EQ(text(*got), "two");
  EXPECT_TRUE(got->fds_lost);
  EXPECT_EQ(count(*got), 1u);
}

TEST_F(PassedFds, APacketLargerThanTheBufferIsCut) {
  ASSERT_EQ(send_packet(ours.get(), std::vector<std::byte>(65)), 0);
  auto got = receive(0);
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->cut);
  EXPECT_EQ(got->bytes, 64u);
}

TEST_F(PassedFds, TheEndAndNothingYetAreTold) {
  auto nothing = receive(1);
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error(), EAGAIN);
  ours.reset();
  auto end = receive(1);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->bytes, 0u);
}

TEST_F(PassedFds, NobodyToTakeAPacketIsAnErrorAndNoSignal) {
  theirs.reset();
  EXPECT_EQ(send_packet(ours.get(), as_bytes("x")), EPIPE);
}

TEST_F(PassedFds, AFullSocketTakesNoPacket) {
  std::vector<std::byte> packet(1024);
  int error = 0;
  for (int i = 0; i < 100'000 && error == 0; ++i) error = send_packet(ours.get(), packet, {}, MSG_DONTWAIT);
  EXPECT_EQ(error, EAGAIN);
}

}  // namespace
}  // namespace twinloft
