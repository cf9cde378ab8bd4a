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
#include <iterator>

#include "twinloft/base/process.h"

namespace twinloft {

namespace {

constexpr int kill_wait_ms = 2000;  // until a killed program has ended

// Reads the available bytes. False: the stream has ended. Bytes beyond `limit` are dropped, and set `beyond`.
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

Result<Fd> file_of(const std::string& input, const std::string& program) {
  Fd file(::memfd_create("input", MFD_CLOEXEC));
  if (!file) return fail_errno(errno, "memory for the input of {}", program);
  TL_TRY(write_all(file.get(), as_bytes(input)));
  if (::lseek(file.get(), 0, SEEK_SET) != 0) return fail_errno(errno, "memory for the input of {}", program);
  return file;
}

// The actions of posix_spawn(3) in the child.
class SpawnPlan {
 public:
  SpawnPlan(int in, int out, int err) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_adddup2(&actions_, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, err, STDERR_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setflags(&attributes_,
                             POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes_, 0);
    // The program must not inherit the blocked and ignored signals of this process.
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  Result<pid_t> start(const std::vector<std::string>& argv,
                      const std::vector<std::string>& environment) const {
    std::vector<char*> words = exec_pointers(argv), variables = exec_pointers(environment);
    pid_t pid = -1;
    int error = ::posix_spawn(&pid, words[0], &actions_, &attributes_, words.data(), variables.data());
    if (error != 0) return fail_errno(error, "{}", argv[0]);
    return pid;
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace

struct ProgramRunner::Child {
  pid_t pid = -1;
  Fd pidfd, out, err;
  ProgramResult result;
  bool too_much = false, ignored = false;

  Status spawn(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
               const std::string& input) {
    TL_TRY_ASSIGN(Fd child_in, file_of(input, argv[0]));
    TL_TRY_ASSIGN(PipeEnds child_out, make_pipe());
    TL_TRY_ASSIGN(PipeEnds child_err, make_pipe());
    for (const PipeEnds* pipe : {&child_out, &child_err}) ::fcntl(pipe->read.get(), F_SETFL, O_NONBLOCK);
    TL_TRY_ASSIGN(
        pid,
        SpawnPlan(child_in.get(), child_out.write.get(), child_err.write.get()).start(argv, environment));
    out = std::move(child_out.read);
    err = std::move(child_err.read);
    pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!pidfd) return fail_errno(errno, "{}: pidfd_open", argv[0]);
    return {};
  }
};

ProgramRunner::ProgramRunner(const Clock& clock, std::vector<std::string> environment)
    : clock_(clock), environment_(std::move(environment)), wakeup_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  environment_.emplace_back("PATH=/usr/sbin:/usr/bin:/sbin:/bin");
  environment_.emplace_back("LC_ALL=C");
}

ProgramRunner::~ProgramRunner() {
  reap();
}

void ProgramRunner::cancel() {
  cancelled_ = true;
  std::uint64_t one = 1;
  (void)!::write(wakeup_.get(), &one, sizeof one);
}

// Reads the output until the program has ended.
Status ProgramRunner::wait(Child& c, Instant deadline) {
  for (;;) {
    Duration left = deadline - clock_.now();
    if (cancelled_) return fail(Errc::unavailable, "cancelled: this node is being stopped");
    if (left <= Duration(0)) return fail(Errc::timeout, "it has not ended in time");
    if (c.too_much) return fail(Errc::exhausted, "it prints more than {} MiB", out_bytes_max >> 20);
    pollfd fds[] = {{c.pidfd.get(), POLLIN, 0},
                    {wakeup_.get(), POLLIN, 0},
                    {c.out.get(), POLLIN, 0},
                    {c.err.get(), POLLIN, 0}};
    int ms = static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(left).count()) + 1;
    if (::poll(fds, std::size(fds), ms) < 0 && errno != EINTR) return fail_errno(errno, "poll");
    // After the program's end, its last output is still in the pipes. The end of the pipes is not awaited,
    // since a child of the program may keep them open.
    if (c.out && !drain(c.out.get(), c.result.out, out_bytes_max, c.too_much)) c.out.reset();
    if (c.err && !drain(c.err.get(), c.result.err, err_bytes_max, c.ignored)) c.err.reset();
    if (fds[0].revents && !c.too_much) return {};
  }
}

// The wait is limited, since a process that is blocked in the kernel may never end.
void ProgramRunner::stop(Child& child) {
  ::kill(-child.pid, SIGKILL);
  pollfd end{child.pidfd.get(), POLLIN, 0};
  if (child.pidfd) (void)::poll(&end, 1, kill_wait_ms);
  unreaped_.push_back(child.pid);
  reap();
}

void ProgramRunner::reap() {
  std::erase_if(unreaped_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
}

Result<ProgramResult> ProgramRunner::run(const std::vector<std::string>& argv, const std::string& input,
                                         Instant deadline) {
  reap();
  Child child;
  Status ended = child.spawn(argv, environment_, input);
  if (!ended && child.pid < 0) return std::unexpected(ended.error());
  if (ended) ended = wait(child, deadline);
  if (!ended) {
    stop(child);
    return fail(ended.error().code, "{}: {}", argv[0], ended.error().message);
  }
  int status = wait_for_child(child.pid);
  ::kill(-child.pid, SIGKILL);  // processes that it left behind
  if (!WIFEXITED(status)) return fail(Errc::unavailable, "{}: ended by signal {}", argv[0], WTERMSIG(status));
  child.result.exit_code = WEXITSTATUS(status);
  return std::move(child.result);
}

}  // namespace twinloft
