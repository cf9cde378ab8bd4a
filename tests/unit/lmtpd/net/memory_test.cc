// Memory runs out for a moment on a worker thread that returns a result. The result is not lost, and the
// process continues.
#include <cstdlib>
#include <new>

#include "memory_patience.h"
#include "server_fixture.h"

namespace {

// The number of this thread's next allocations that fail.
thread_local int failures = 0;

void* allocate(std::size_t bytes) {
  for (;;) {
    if (failures > 0)
      --failures;
    else if (void* memory = std::malloc(bytes == 0 ? 1 : bytes))
      return memory;
    std::new_handler handler = std::get_new_handler();
    if (!handler) throw std::bad_alloc();
    handler();
  }
}

}  // namespace

// As [new.delete.single] requires.
void* operator new(std::size_t bytes) {
  return allocate(bytes);
}
void* operator new[](std::size_t bytes) {
  return allocate(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace twinloft::lmtpd {
namespace {

// More than the steps of a hand-over, so that an allocation fails at each step.
constexpr int some = 40;

class Memory : public ServerTest {
 protected:
  void expect_250(std::initializer_list<std::string_view> recipients) {
    start();
    LmtpClient client(port_);
    client.begin();
    client.envelope(recipients);
    client.send(message);
    for (std::size_t i = 0; i < recipients.size(); ++i) EXPECT_EQ(client.reply().substr(0, 3), "250");
    EXPECT_EQ(client.ask("NOOP\r\n").substr(0, 3), "250");
  }
};

TEST_F(Memory, IsWaitedForWhereADeliveryHasEnded) {
  deliverer_.last_step = [] { failures = some; };
  expect_250({"ann@example.org", "bob@example.org"});
}

TEST_F(Memory, IsWaitedForWhereAUserWasFound) {
  users_.last_step = [] { failures = some; };
  expect_250({"a-name-that-is-too-long-for-a-small-string@example.org",
              "quota-of-another-long-name-that-is-looked-at@example.org"});
}

TEST_F(Memory, IsNotWaitedForElsewhere) {
  MemoryPatience::install();
  failures = 1;
  EXPECT_THROW(std::string(1000, 'x'), std::bad_alloc);
  EXPECT_EQ(failures, 0);
  MemoryPatience patient;
  failures = some;
  EXPECT_EQ(std::string(1000, 'x').size(), 1000u);
}

TEST_F(Memory, IsNotWaitedForForEver) {
  MemoryPatience::install();
  MemoryPatience patient;
  failures = 1 << 20;
  EXPECT_THROW(std::string(1000, 'x'), std::bad_alloc);
  failures = 0;
}

}  // namespace
}  // namespace twinloft::lmtpd
