// Where an external agent's message is kept.
#include "agent_stdin.h"

#include <fcntl.h>

#include <cerrno>

#include "../support/fixture.h"

namespace twinloft::lmtpd {
namespace {

bool is_in_memory(const AgentStdin& message) {
  return ::fcntl(message.fd(), F_GET_SEALS) >= 0;
}

std::string text_of(const AgentStdin& message) {
  std::string out(1000, '\0');
  ssize_t got = ::pread(message.fd(), out.data(), out.size(), 0);
  out.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  return out;
}

const std::string temporary = "/tmp";

TEST(AgentStdin, IsChargedToTheMemoryOfAllMessages) {
  MemoryBudget budget(1000);
  {
    auto message = AgentStdin::create("Header: x\n", test::in_memory("text\r\n"), false,
                                      {100, &budget, temporary});
    ASSERT_TRUE(message.has_value()) << message.error().message;
    EXPECT_TRUE(is_in_memory(*message));
    EXPECT_EQ(budget.used(), 16u);
    AgentStdin moved = std::move(*message);
    EXPECT_EQ(budget.used(), 16u);
  }
  EXPECT_EQ(budget.used(), 0u);
}

TEST(AgentStdin, IsAFileWhereMemoryIsUsedUp) {
  MemoryBudget budget(15);
  auto message = AgentStdin::create("Header: x\n", test::in_memory("text\r\n"), false,
                                    {100, &budget, temporary});
  ASSERT_TRUE(message.has_value()) << message.error().message;
  EXPECT_FALSE(is_in_memory(*message));
  EXPECT_EQ(text_of(*message), "Header: x\ntext\n");
  EXPECT_EQ(budget.used(), 0u);
}

TEST(AgentStdin, FilesShareABudgetToo) {
  MemoryBudget memory(0), disk(20);
  {
    auto first = AgentStdin::create("Header: x\n", test::in_memory("text\r\n"), false,
                                    {100, &memory, temporary, &disk});
    ASSERT_TRUE(first.has_value()) << first.error().message;
    EXPECT_EQ(disk.used(), 16u);
    auto second = AgentStdin::create("Header: x\n", test::in_memory("text\r\n"), false,
                                     {100, &memory, temporary, &disk});
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code, Errc::exhausted);
    EXPECT_EQ(second.error().sys, ENOSPC) << "452 4.3.1";
  }
  EXPECT_EQ(disk.used(), 0u);
}

TEST(AgentStdin, IsAFileWhereItIsLarge) {
  MemoryBudget budget(1000);
  auto message = AgentStdin::create("", test::in_memory("text\r\n"), true, {5, &budget, temporary});
  ASSERT_TRUE(message.has_value()) << message.error().message;
  EXPECT_FALSE(is_in_memory(*message));
  EXPECT_EQ(text_of(*message), "text\r\n");
  EXPECT_EQ(budget.used(), 0u);
}

}  // namespace
}  // namespace twinloft::lmtpd
