#include "twinloft/base/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace twinloft {

namespace {

Status make_pipe(Fd& read, Fd& write) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return fail_errno(errno, "a pipe");
  read.reset(fds[0]);
  write.reset(fds[1]);
  return {};
}

// False at the end of the stream. What is beyond `limit` is read and counted, not kept.
bool drain(int fd, std::string& into, std::size_t limit, bool& beyond) {
  char chunk[16384];
  for (;;) {
    ssize_t n = ::read(fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return true;
    if (n == 0) return false;
    std::size_t keep = std::min(static_cast<std::size_t>(n), limit - into.size());
    into.append(chunk, keep);
    beyond = beyond || keep < static_cast<std::size_t>(n);
  }
}

}  // namespace

struct ProgramRunner::Child {
  pid_t pid = -1;
  Fd pidfd, out, err;
  ProgramResult result;
  bool too_much = false, ignored = false;

  Status spawn(const std::vector<std::string>& argv, const std::string& input);
  ~Child() {
    if (pid <= 0) return;
    ::kill(-pid, SIGKILL);
    int status;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
};

Status ProgramRunner::Child::spawn(const std::vector<std::string>& argv, const std::string& input) {
  Fd child_in(::memfd_create("input", MFD_CLOEXEC)), child_out, child_err;
  if (!child_in) return fail_errno(errno, "memory for the input of {}", argv[0]);
  TL_TRY(write_all(child_in.get(), as_bytes(input)));
  if (::lseek(child_in.get(), 0, SEEK_SET) != 0)
    return fail_errno(errno, "memory for the input of {}", argv[0]);
  TL_TRY(make_pipe(out, child_out));
  TL_TRY(make_pipe(err, child_err));
  for (int fd : {out.get(), err.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, child_in.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, child_out.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, child_err.get(), 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  // This process blocks and ignores signals that the program has its own use for.
  sigset_t none, defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  for (int s : {SIGPIPE, SIGTERM, SIGINT, SIGHUP}) sigaddset(&defaults, s);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin", locale[] = "LC_ALL=C";
  char* environment[] = {path, locale, nullptr};
  int rc = ::posix_spawn(&pid, words[0], &actions, &attributes, words.data(), environment);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (rc != 0) {
    pid = -1;
    return fail_errno(rc, "{}", argv[0]);
  }
  pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) return fail_errno(errno, "{}: pidfd_open", argv[0]);
  return {};
}

ProgramRunner::ProgramRunner(const Clock& clock)
    : clock_(clock), wakeup_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void ProgramRunner::cancel() {
  cancelled_ = true;
  std::uint64_t one = 1;
  (void)!::write(wakeup_.get(), &one, sizeof one);
}

// Takes what the program prints until it has ended.
Status ProgramRunner::wait(Child& c, Instant deadline) {
  for (;;) {
    Duration left = deadline - clock_.now();
    if (cancelled_) return fail(Errc::unavailable, "given up: this node is being stopped");
    if (left <= Duration(0)) return fail(Errc::timeout, "it has not ended in time");
    if (c.too_much) return fail(Errc::exhausted, "it prints more than {} MiB", out_bytes_max >> 20);
    pollfd fds[] = {{c.pidfd.get(), POLLIN, 0},
                    {wakeup_.get(), POLLIN, 0},
                    {c.out.get(), POLLIN, 0},
                    {c.err.get(), POLLIN, 0}};
    int ms = static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(left).count()) + 1;
    if (::poll(fds, std::size(fds), ms) < 0 && errno != EINTR) return fail_errno(errno, "poll");
    // After the end what it had written is still in the pipes; a child of its own may keep them open for
    // ever.
    if (c.out && !drain(c.out.get(), c.result.out, out_bytes_max, c.too_much)) c.out.reset();
    if (c.err && !drain(c.err.get(), c.result.err, err_bytes_max, c.ignored)) c.err.reset();
    if (fds[0].revents && !c.too_much) return {};
  }
}

Result<ProgramResult> ProgramRunner::run(const std::vector<std::string>& argv, const std::string& input,
                                         Instant deadline) {
  Child child;
  TL_TRY(child.spawn(argv, input));
  if (Status ended = wait(child, deadline); !ended)
    return fail(ended.error().code, "{}: {}", argv[0], ended.error().message);
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  ::kill(-child.pid, SIGKILL);  // whatever it left behind
  child.pid = -1;
  if (!WIFEXITED(status)) return fail(Errc::unavailable, "{}: ended by signal {}", argv[0], WTERMSIG(status));
  child.result.exit_code = WEXITSTATUS(status);
  return std::move(child.result);
}

}  // namespace twinloft
