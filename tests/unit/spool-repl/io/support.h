// Common parts of the tests of io/: a loop on either kind of ring, pipes, temporary files.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::io {

inline std::unique_ptr<UringLoop> make_loop(const Clock& clock, bool plain_ring, unsigned entries = 64) {
  auto loop = UringLoop::create(clock, {.entries = entries, .plain_ring = plain_ring});
  EXPECT_TRUE(loop) << loop.error().message;
  return loop ? std::move(*loop) : nullptr;
}

// The parameter: whether the ring is set up without optional flags.
class LoopTest : public testing::TestWithParam<bool> {
 protected:
  // Turns until `done` is true. The test program's time limit ends a loop that never gets there.
  template <class Predicate>
  void run_until(Predicate done) {
    while (!done()) {
      auto turned = loop->turn(std::chrono::seconds(1));
      ASSERT_TRUE(turned) << turned.error().message;
    }
  }
  OsClock clock;
  std::unique_ptr<UringLoop> loop = make_loop(clock, GetParam());
};

inline std::string ring_name(const testing::TestParamInfo<bool>& ring) {
  return ring.param ? "plain" : "newest";
}

inline std::pair<Fd, Fd> make_socketpair() {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

inline std::pair<Fd, Fd> make_pipe() {
  int fds[2];
  EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

// A file that is removed with the object.
class TempFile {
 public:
  TempFile() {
    const char* dir = std::getenv("TMPDIR");
    path_ = std::string(dir ? dir : "/tmp") + "/tl-io-XXXXXX";
    fd_ = Fd(mkostemp(path_.data(), O_CLOEXEC));
    EXPECT_TRUE(fd_) << path_;
  }
  ~TempFile() { unlink(path_.c_str()); }
  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Fd fd_;
};

// Limits the size of this process's files. A write beyond the limit is short, and a write that begins there
// fails.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    rlimit small = before_;
    small.rlim_cur = bytes;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  ~FileSizeLimit() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0);
    signal(SIGXFSZ, old_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*old_handler_)(int);
  rlimit before_{};
};

// Disk operations on a file.
class FileOpsTest : public LoopTest {
 protected:
  struct Op : DiskOp {
    bool finished = false;
    Op() {
      done = [](DiskOp& op) { static_cast<Op&>(op).finished = true; };
    }
  };
  int wait(Op& op) {
    run_until([&] { return op.finished; });
    op.finished = false;
    return op.result;
  }
  static std::string content(const TempFile& f) {
    std::string out(static_cast<std::size_t>(lseek(f.fd(), 0, SEEK_END)), '\0');
    EXPECT_EQ(pread(f.fd(), out.data(), out.size(), 0), static_cast<ssize_t>(out.size()));
    return out;
  }
  std::string content() const { return content(file); }
  TempFile file;
};

}  // namespace twinloft::repl::io
