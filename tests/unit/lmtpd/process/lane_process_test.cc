// Blocked lanes: the group that holds them, and late answers that no caller waits for.
#include "twinloft/lmtpd/process/lane_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string>
#include <thread>

namespace twinloft::lmtpd {
namespace {

using namespace std::chrono_literals;

std::vector<std::byte> packet(std::string_view text) {
  return {as_bytes(text).begin(), as_bytes(text).end()};
}

// A process that answers with the question. The question "hangs" waits for the gate.
class LanesTest : public testing::Test {
 protected:
  LanesTest() {
    auto open = [gate = gate_]() -> Result<LaneProcess::Serve> {
      return LaneProcess::Serve([gate](ByteSpan request) {
        if (as_text(request) == "pid") return LaneAnswer{packet(std::to_string(::getpid())), Fd()};
        if (as_text(request) == "hangs")
          while (gate->fetch_sub(1) <= 0) {
            gate->fetch_add(1);
            ::usleep(1000);
          }
        return LaneAnswer{packet(as_text(request)), as_text(request) == "file" ? Fd(::dup(0)) : Fd()};
      });
    };
    process_ = LaneProcess::start(
                   {"lanes-test", "the process", 2, 2, 2s, 200ms}, [] { return Status(); }, open)
                   .value();
  }
  // The result of beat() within that number of calls.
  std::string beats(int times) {
    for (int i = 0; i < times; ++i, ::usleep(50'000))
      if (Status alive = process_->beat(); !alive) return alive.error().message;
    return "alive";
  }
  ~LanesTest() override {
    open_gate(8);
    process_.reset();
    ::munmap(gate_, sizeof *gate_);
  }
  void open_gate(int times) { gate_->fetch_add(times); }
  // The answer, or "timeout".
  std::string ask(std::string_view text, std::size_t group,
                  std::optional<std::chrono::milliseconds> time = std::nullopt) {
    auto answer = process_->ask(packet(text), time, group);
    if (!answer) return answer.error().code == Errc::timeout ? "timeout" : answer.error().message;
    return std::string(as_text(answer->packet));
  }

  // In memory that both processes share.
  std::atomic<int>* gate_ = new (::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>(0);
  std::unique_ptr<LaneProcess> process_;
};

// Only the supervisor acts on these signals, but a signal to the process group reaches this process too.
TEST_F(LanesTest, SignalsThatEndItsMakerEndItNot) {
  pid_t pid = std::stoi(ask("pid", 0));
  for (int number : {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) {
    ASSERT_EQ(::kill(pid, number), 0);
    EXPECT_EQ(ask("a", 0), "a") << number;
  }
}

TEST_F(LanesTest, WhereNoDescriptorIsLeftThatIsSaid) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_EQ(fmt::format("{}: {}", "a", 1), "a: 1");  // UBSan needs a descriptor for its first look at such an
                                                     // object
  Fd next(::dup(0));
  rlimit none{static_cast<rlim_t>(next.get()), before.rlim_max};
  next.reset();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  std::string said = ask("file", 0);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_NE(said.find("no free descriptor for the connection of the process"), std::string::npos) << said;
  EXPECT_EQ(ask("file", 0), "file") << "the lane is usable again";
}

TEST_F(LanesTest, AGroupThatStandsStillTakesNoLaneOfAnother) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ask("hangs", 0, 20ms), "timeout");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ask(std::to_string(i), 1), std::to_string(i));
  EXPECT_EQ(ask("a", 0, 20ms), "timeout") << "no lane is free";
  open_gate(2);
  EXPECT_EQ(ask("b", 0), "b") << "not the late answer";
  EXPECT_EQ(ask("c", 0), "c");
}

TEST_F(LanesTest, OneThatWaitsWithoutAnEndGetsALaneOnceALateAnswerIsThere) {
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ask("hangs", 0, 20ms), "timeout");
  std::thread waits([&] { EXPECT_EQ(ask("a", 0), "a"); });
  open_gate(1);
  waits.join();
  EXPECT_EQ(ask("b", 0), "b");
}

TEST_F(LanesTest, GivesSignsOfLifeWhileRequestsAreUnderWay) {
  EXPECT_EQ(ask("hangs", 0, 20ms), "timeout");
  EXPECT_EQ(beats(100), "alive") << "one lane of two is late";
  open_gate(1);
}

TEST_F(LanesTest, AProcessThatHangsIsFoundOut) {
  ASSERT_EQ(::kill(process_->pid(), SIGSTOP), 0);
  EXPECT_EQ(beats(400).substr(0, 41), "the process has given no sign of life for");
  ::kill(process_->pid(), SIGCONT);
}

// The process is alive, but a library without a time limit has taken every lane.
TEST_F(LanesTest, AGroupWithoutAnyAnswerIsFoundOut) {
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ask("hangs", 0, 20ms), "timeout");
  EXPECT_EQ(beats(400).substr(0, 33), "the process has not answered for ");
  open_gate(2);
  EXPECT_EQ(ask("a", 0), "a");
  EXPECT_EQ(beats(100), "alive") << "the process continues";
}

TEST(LaneProcess, OneThatNeverBecomesReadyIsNotWaitedFor) {
  auto hangs = []() -> Result<LaneProcess::Serve> {
    for (;;) ::pause();
  };
  auto started = LaneProcess::start(
      {"lanes-test", "the process", 1, 1, 300ms, 200ms, 100ms}, [] { return Status(); }, hangs);
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, Errc::timeout);
}

}  // namespace
}  // namespace twinloft::lmtpd
