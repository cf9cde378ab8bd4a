// No thread of a service waits for the reader of the log. Lines that were logged before the end are written.
#include "twinloft/base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "log_sink.h"
#include "twinloft/base/check.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"

namespace twinloft {
namespace {

// A process whose standard error is a pipe or a socket of the test. It writes no core file.
class Child {
 public:
  enum class Log { pipe, socket, writes };  // writes: each write(2) is one packet
  Child(Log kind, const std::function<void()>& body) {
    int ends[2];
    int type = kind == Log::writes ? SOCK_SEQPACKET : SOCK_STREAM;
    EXPECT_EQ(kind == Log::pipe ? ::pipe(ends) : ::socketpair(AF_UNIX, type, 0, ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDERR_FILENO);
      ::close(ends[0]), ::close(ends[1]);
      ::signal(SIGALRM, SIG_DFL);
      ::alarm(60);  // ends a process that hangs
      body();
      ::_exit(0);
    }
    ::close(ends[1]);
    reader_.reset(ends[0]);
  }
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return status;
  }
  std::string read_what_is_there() {
    ::fcntl(reader_.get(), F_SETFL, O_NONBLOCK);
    std::string out = read_all();
    ::fcntl(reader_.get(), F_SETFL, 0);
    return out;
  }
  std::string read_slowly() {
    std::string out;
    char buffer[16384];
    for (ssize_t n; (n = ::read(reader_.get(), buffer, sizeof buffer)) > 0;) {
      out.append(buffer, static_cast<std::size_t>(n));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return out;
  }
  // The text of each read until the end.
  std::vector<std::string> read_each() {
    std::vector<std::string> out;
    char buffer[65536];
    for (ssize_t n; (n = ::read(reader_.get(), buffer, sizeof buffer)) > 0;)
      out.emplace_back(buffer, static_cast<std::size_t>(n));
    return out;
  }
  std::string read_all() {
    std::string out;
    char buffer[65536];
    for (ssize_t n; (n = ::read(reader_.get(), buffer, sizeof buffer)) > 0;)
      out.append(buffer, static_cast<std::size_t>(n));
    return out;
  }

 private:
  pid_t pid_ = -1;
  Fd reader_;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}
std::string tail_of(const std::string& text) {
  return text.substr(text.size() - std::min<std::size_t>(text.size(), 500));
}
std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Log, NobodyWaitsForAReaderThatHasStopped) {
  for (auto kind : {Child::Log::pipe, Child::Log::socket}) {
    Fd ready[2];
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    ready[0].reset(ends[0]), ready[1].reset(ends[1]);
    Child child(kind, [&] {
      LogWriter writer;
      for (int i = 0; i < 100'000; ++i) log_info("line {} of many", i);
      (void)!::write(ready[1].get(), "x", 1);
      log_settle();
      log_info("the last line");
      log_settle();
    });
    char byte;
    ASSERT_EQ(::read(ready[0].get(), &byte, 1), 1);  // all lines were logged, and no line was read
    std::string text = child.read_all();
    EXPECT_EQ(child.wait(), 0);
    EXPECT_TRUE(has(text, "line 0 of many") && has(text, "line 1000 of many") &&
                !has(text, "line 99999 of many"));
    EXPECT_TRUE(has(text, "log lines are missing here: the log's reader was too slow\" lines=\""))
        << tail_of(text);
    EXPECT_TRUE(has(text, "the last line"));
  }
}

// The reader begins when all lines are logged, so that most lines wait in the queue.
TEST(Log, LinesThatWaitTogetherAreWrittenTogether) {
  constexpr std::size_t lines = 5000, write_max = 4096;  // bytes that a pipe takes whole
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Fd ready[2] = {Fd(ends[0]), Fd(ends[1])};
  Child child(Child::Log::writes, [&] {
    LogWriter writer;
    for (std::size_t i = 0; i < lines; ++i) log_info("line {}", i);
    (void)!::write(ready[1].get(), "x", 1);
    log_settle();
  });
  char byte;
  ASSERT_EQ(::read(ready[0].get(), &byte, 1), 1);
  std::string text;
  std::vector<std::string> writes = child.read_each();
  for (const std::string& each : writes) {
    EXPECT_TRUE(each.size() <= write_max && each.ends_with('\n')) << each.size();
    text += each;
  }
  EXPECT_EQ(child.wait(), 0);
  EXPECT_LT(writes.size(), lines / 2);
  std::size_t at = 0;
  for (std::size_t i = 0; i < lines; ++i, ++at) {
    at = text.find(fmt::format("msg=\"line {}\"\n", i), at);
    ASSERT_NE(at, text.npos) << i;
  }
}

// The number in a line about missing lines: `lines="17"` gives 17. Any other line gives 0.
std::size_t told_missing(const std::string& line) {
  std::string key = "log lines are missing here: the log's reader was too slow\" lines=\"";
  std::size_t at = line.find(key);
  return at == line.npos ? 0 : std::stoul(line.substr(at + key.size()));
}

// With a slow reader, the lines that were read and the reported missing lines add up to all lines. The reader
// begins when more lines are logged than the queue has room for.
TEST(Log, WhatASlowReaderMissesIsCountedToTheLine) {
  constexpr std::size_t unread = 100'000, lines = 120'000;
  for (auto kind : {Child::Log::pipe, Child::Log::socket}) {
    Fd ready[2];
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    ready[0].reset(ends[0]), ready[1].reset(ends[1]);
    Child child(kind, [&] {
      LogWriter writer;
      for (std::size_t i = 0; i < unread; ++i) log_info("line {} of many", i);
      (void)!::write(ready[1].get(), "x", 1);
      for (std::size_t i = unread; i < lines; ++i) log_info("line {} of many", i);
    });
    char byte;
    ASSERT_EQ(::read(ready[0].get(), &byte, 1), 1);
    std::string text = child.read_slowly();
    EXPECT_EQ(child.wait(), 0);
    std::size_t read = 0, missing = 0;
    for (std::size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
      std::string line = text.substr(at, end - at);
      std::size_t told = told_missing(line);
      missing += told;
      read += told == 0;
    }
    EXPECT_GT(missing, 0u);
    EXPECT_EQ(read + missing, lines);
  }
}

TEST(Log, TheLastLinesBeforeAFailedCheckGetOut) {
  Child child(Child::Log::pipe, [] {
    LogWriter writer;
    for (int i = 0; i < 500; ++i) log_info("line {}.", i);
    TL_CHECK_MSG(lines_of("") == 1, "the test's");
  });
  std::string text = child.read_all();
  int status = child.wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  EXPECT_TRUE(has(text, "line 499.\"\ntwinloft: check failed: ")) << tail_of(text);
  EXPECT_EQ(lines_of(text), 501u);
}

TEST(Log, AnExceptionThatNobodyCatchesLosesNoLine) {
  Child child(Child::Log::pipe, [] {
    LogWriter writer;
    for (int i = 0; i < 500; ++i) log_info("line {}.", i);
    std::thread([] { throw 1; }).join();
  });
  EXPECT_TRUE(has(child.read_all(), "line 499.\"\n"));
  EXPECT_TRUE(WIFSIGNALED(child.wait()));
}

TEST(Log, NoReaderKeepsADyingProcessAlive) {
  Child failing(Child::Log::pipe, [] {
    LogWriter writer;
    for (int i = 0; i < 5000; ++i) log_info("line {}.", i);
    TL_CHECK(lines_of("") == 1);
  });
  int status = failing.wait();  // before any line is read
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  Child ending(Child::Log::pipe, [] {
    LogWriter writer;
    for (int i = 0; i < 5000; ++i) log_info("line {}.", i);
  });
  EXPECT_EQ(ending.wait(), 0);
}

TEST(Log, AForkedProcessHasNoThreadAndWritesItsOwn) {
  Child child(Child::Log::pipe, [] {
    LogWriter writer;
    for (int round = 0; round < 20; ++round) {
      std::thread noisy([&] {
        for (int i = 0; i < 200; ++i) log_info("parent {} {}.", round, i);
      });
      pid_t pid = ::fork();
      if (pid == 0) {
        log_info("child {}.", round);
        ::_exit(0);
      }
      noisy.join();
      int status = 0;
      ::waitpid(pid, &status, 0);
      if (status != 0) ::_exit(2);
    }
  });
  std::string text = child.read_all();
  EXPECT_EQ(child.wait(), 0);
  std::size_t missing = 0, children = 0;
  for (int round = 0; round < 20; ++round) children += has(text, fmt::format("child {}.", round));
  for (std::size_t at = 0; (at = text.find("parent ", at)) != text.npos; ++at) ++missing;
  EXPECT_EQ(missing, 4000u);  // no line is lost or written twice
  EXPECT_GT(children, 0u);    // a child's line is dropped if the pipe is full
}

std::size_t threads_here() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

// A service forks its helpers before it starts the log's thread. Each helper then starts its own.
TEST(Log, AForkedProcessMayStartAThreadOfItsOwn) {
  Child child(Child::Log::pipe, [] {
    LogWriter writer;
    log_info("parent.");
    log_settle();
    pid_t pid = ::fork();
    if (pid == 0) {
      if (threads_here() != 1) ::_exit(2);
      {
        LogWriter own;
        if (threads_here() != 2) ::_exit(3);
        for (int i = 0; i < 500; ++i) log_info("child {}.", i);
      }
      ::_exit(threads_here() == 1 ? 0 : 4);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    log_info("parent again.");
    if (status != 0) ::_exit(2);
  });
  std::string text = child.read_all();
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(has(text, "\"parent.\"\n") && has(text, "\"child 499.\"\n") &&
              has(text, "\"parent again.\"\n"));
  EXPECT_EQ(lines_of(text), 502u);
}

TEST(Log, WithoutAThreadALineIsDroppedAndCounted) {
  for (auto kind : {Child::Log::pipe, Child::Log::socket}) {
    int ends[2][2];
    ASSERT_TRUE(::pipe(ends[0]) == 0 && ::pipe(ends[1]) == 0);
    Child child(kind, [&] {
      log_never_wait();
      for (int i = 0; i < 50'000; ++i) log_info("line {} of many", i);
      char byte = 'x';
      (void)!::write(ends[0][1], &byte, 1);
      (void)!::read(ends[1][0], &byte, 1);
      log_info("the last line");
    });
    Fd ready(ends[0][0]), go(ends[1][1]);
    ::close(ends[0][1]);
    char byte;
    ASSERT_EQ(::read(ready.get(), &byte, 1), 1);
    std::string text = child.read_what_is_there();  // makes room for the last line
    ASSERT_EQ(::write(go.get(), &byte, 1), 1);
    text += child.read_all();
    EXPECT_EQ(child.wait(), 0);
    EXPECT_TRUE(has(text, "line 0 of many") && !has(text, "line 49999 of many"));
    EXPECT_TRUE(has(text, "log lines are missing here") && has(text, "the last line")) << tail_of(text);
    ::close(ends[1][0]);
  }
}

struct SharedByWriters {
  std::array<std::atomic<std::size_t>, 2> lines{};  // number of attempts of each process
};

// After every read, both processes see free space, and only one process gets it.
TEST(Log, ProcessesThatShareAPipeDoNotWaitForItsReaderEither) {
  void* memory = ::mmap(nullptr, sizeof(SharedByWriters), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& shared = *new (memory) SharedByWriters;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Fd reader(ends[0]), writer(ends[1]);
  ASSERT_EQ(::fcntl(writer.get(), F_SETPIPE_SZ, 4096), 4096) << "room for one line";
  std::vector<pid_t> pids;
  for (auto& lines : shared.lines)
    if (pids.push_back(::fork()); pids.back() == 0) {
      ::dup2(writer.get(), STDERR_FILENO);
      for (const std::string line(4096, 'x');; ++lines) (void)write_within(line, 0);
    }
  std::vector<char> buffer(4096);
  std::size_t stuck = 0;
  for (int round = 0; round < 1000 && stuck == 0; ++round) {
    ASSERT_GT(::read(reader.get(), buffer.data(), buffer.size()), 0);
    const Instant deadline = OsClock().now() + std::chrono::seconds(10);
    for (auto& lines : shared.lines) {
      const std::size_t before = lines;
      while (lines < before + 2 && OsClock().now() < deadline)
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      stuck += lines < before + 2;
    }
  }
  EXPECT_EQ(stuck, 0u) << "a process waits";
  for (pid_t pid : pids) {
    ::kill(pid, SIGKILL);
    EXPECT_EQ(::waitpid(pid, nullptr, 0), pid);
  }
  ::munmap(memory, sizeof shared);
}

}  // namespace
}  // namespace twinloft
