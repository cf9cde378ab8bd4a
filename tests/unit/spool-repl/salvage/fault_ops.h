// File operations with one fault: an operation fails, or the process ends there.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/salvage/file_ops.h"

namespace twinloft::repl::salvage {

class FaultOps final : public FileOps {
 public:
  enum class Fault { none, fails, ends, ends_in_the_middle };  // ends_in_the_middle: of a write
  FaultOps() = default;
  FaultOps(Fault fault, int at) : fault_(fault), at_(at) {}
  int calls() const { return calls_; }
  // Called before a file gets this name by create() or rename(), to act as another process.
  std::function<void(const std::string& name)> before_name;

  Result<Fd> create(int dir, const std::string& name) override {
    TL_TRY(step());
    if (before_name) before_name(name);
    return os_.create(dir, name);
  }
  Status write(int fd, ByteSpan data) override {
    if (calls_ + 1 == at_ && fault_ == Fault::ends_in_the_middle) {
      TL_CHECK(os_.write(fd, data.first(data.size() / 2)));
      ::_exit(0);
    }
    return then(os_.write(fd, data), step());
  }
  Status truncate(int fd, std::uint64_t bytes) override {
    return run([&] { return os_.truncate(fd, bytes); });
  }
  Status set_owner(int fd, const Ownership& owner) override {
    return run([&] { return os_.set_owner(fd, owner); });
  }
  Status set_modified(int fd, FileTime time) override {
    return run([&] { return os_.set_modified(fd, time); });
  }
  Status sync(int fd) override {
    return run([&] { return os_.sync(fd); });
  }
  Status sync_file_system(int fd) override {
    return run([&] { return os_.sync_file_system(fd); });
  }
  Status make_directory(int dir, const std::string& name) override {
    return run([&] { return os_.make_directory(dir, name); });
  }
  Status rename(int from_dir, const std::string& from, int to_dir, const std::string& to) override {
    if (before_name) before_name(to);
    return run([&] { return os_.rename(from_dir, from, to_dir, to); });
  }
  Status replace(int dir, const std::string& from, const std::string& to) override {
    return run([&] { return os_.replace(dir, from, to); });
  }
  Status remove(int dir, const std::string& name) override {
    return run([&] { return os_.remove(dir, name); });
  }

 private:
  Status step() {
    if (++calls_ != at_ || fault_ == Fault::none) return {};
    if (fault_ == Fault::fails) return fail_errno(EIO, "step {}", at_);
    ::_exit(0);
  }
  Status run(const std::function<Status()>& operation) {
    TL_TRY(step());
    return operation();
  }
  // A failed write has changed the file, as a real one may have.
  static Status then(Status done, Status said) { return done ? said : done; }

  OsFileOps os_;
  Fault fault_ = Fault::none;
  int at_ = 0, calls_ = 0;
};

// Runs in a child process that may end anywhere. Returns whether it reached its end.
inline bool run_in_child(const std::function<void()>& work) {
  constexpr int came_to_its_end = 77;
  pid_t child = ::fork();
  TL_CHECK(child >= 0);
  if (child == 0) {
    work();
    ::_exit(came_to_its_end);
  }
  int status = 0;
  TL_CHECK(::waitpid(child, &status, 0) == child);
  TL_CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == came_to_its_end));
  return WEXITSTATUS(status) == came_to_its_end;
}

}  // namespace twinloft::repl::salvage
