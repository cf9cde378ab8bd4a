#include "spawn_child.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <map>

#include "twinloft/base/process.h"

namespace twinloft::lmtpd {

namespace {

enum class Step : std::uint32_t {
  session,
  descriptors,
  account,
  limits,
  group,
  user,
  privileges,
  parent,
  directory,
  program,
  interpreter,
  denied_interpreter,
  no_file,
  format,
  processes
};
constexpr const char* step_names[] = {
    "setsid",
    "descriptors",
    "home or group (the home is neither in the spool nor in delivery.homes nor in the account's own, or "
    "the group is not the account's)",
    "resource limits",
    "group",
    "user",
    "no_new_privs",
    "parent check",
    "directory",
    "the program",
    "the program exists, but the interpreter in its first line or its dynamic loader is missing",
    "the program may be run, but the interpreter in its first line may not, or its file system is mounted "
    "noexec",
    "the program is not a file",
    "the program is neither one of this machine nor a script whose first line names an interpreter",
    "the program: its user has the maximum number of processes (agent.NAME.rlimits.processes, or the "
    "machine's)"};

// Finds the reason of an error of execve(2) that its errno does not show.
Step failed_exec(const char* program, int error) {
  struct stat about{};
  switch (error) {
    case ENOENT:
      return ::faccessat(AT_FDCWD, program, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ? Step::interpreter
                                                                            : Step::program;
    case EACCES:
      if (::stat(program, &about) == 0 && !S_ISREG(about.st_mode)) return Step::no_file;
      return ::faccessat(AT_FDCWD, program, X_OK, AT_EACCESS) == 0 ? Step::denied_interpreter : Step::program;
    case ENOEXEC:
      return Step::format;
    case EAGAIN:
      return Step::processes;
    default:
      return Step::program;
  }
}

[[noreturn]] void give_up(int failure_pipe, Step step) {
  ChildFailure failure{static_cast<std::uint32_t>(step), errno};
  [[maybe_unused]] ssize_t ignored = ::write(failure_pipe, &failure, sizeof failure);
  ::_exit(127);
}

bool set_limit(__rlimit_resource what, std::uint64_t value) {
  if (value == 0) return true;
  struct rlimit now{};
  if (::getrlimit(what, &now) != 0) return false;
  rlim_t bound = now.rlim_max == RLIM_INFINITY ? value : std::min<rlim_t>(value, now.rlim_max);
  struct rlimit wanted{bound, bound};
  return ::setrlimit(what, &wanted) == 0;
}

bool set_limits(const AgentLimits& l) {
  struct rlimit no_core{0, 0};
  return ::setrlimit(RLIMIT_CORE, &no_core) == 0 && set_limit(RLIMIT_CPU, l.cpu_seconds) &&
         set_limit(RLIMIT_AS, l.memory_bytes) && set_limit(RLIMIT_FSIZE, l.file_bytes) &&
         set_limit(RLIMIT_NOFILE, l.open_files) && set_limit(RLIMIT_NPROC, l.processes);
}

// Runs in the child; a single-threaded process forked it, so the C library may be used.
[[noreturn]] void become_agent(const ChildPlan& plan, pid_t spawner, int output, int failure,
                               char* const* arguments, char* const* environment) {
  if (::setsid() < 0) give_up(failure, Step::session);
  if (::dup2(plan.message, STDIN_FILENO) < 0 || ::dup2(output, STDOUT_FILENO) < 0 ||
      ::dup2(output, STDERR_FILENO) < 0 || ::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) != 0)
    give_up(failure, Step::descriptors);
  reset_signals();
  if (!account_agrees(plan.ask, plan.uid, plan.gid, plan.home)) {
    errno = EPERM;
    give_up(failure, Step::account);
  }
  ::umask(077);
  if (!set_limits(plan.limits)) give_up(failure, Step::limits);
  if (plan.switch_user) {
    gid_t only = plan.gid;
    if (::setgroups(1, &only) != 0 || ::setresgid(plan.gid, plan.gid, plan.gid) != 0)
      give_up(failure, Step::group);
    if (::setresuid(plan.uid, plan.uid, plan.uid) != 0) give_up(failure, Step::user);
  }
  // Never as root: if root can be regained, this is a defect, and the run ends.
  if (::getuid() == 0 || ::geteuid() == 0 || ::getegid() == 0 || ::setuid(0) == 0) {
    errno = EPERM;
    give_up(failure, Step::user);
  }
  if (plan.no_new_privs && ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) give_up(failure, Step::privileges);
  // An agent must not outlive the spawner, since its delivery then got 451. A change of ids clears this
  // setting, so it comes last.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != spawner) give_up(failure, Step::parent);
  if (::chdir(plan.home.c_str()) != 0 && ::chdir("/") != 0) give_up(failure, Step::directory);
  ::execve(arguments[0], arguments, environment);
  const int error = errno;
  const Step step = failed_exec(arguments[0], error);
  errno = error;
  give_up(failure, step);
}

Result<PipeEnds> make_polled_pipe() {
  TL_TRY_ASSIGN(PipeEnds out, make_pipe());
  if (::fcntl(out.read.get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno(errno, "pipe");
  return out;
}

}  // namespace

const char* step_name(std::uint32_t step) {
  return step < std::size(step_names) ? step_names[step] : "start";
}

std::vector<std::string> agent_environment(const AgentSpec& spec, const std::string& home,
                                           const std::string& user) {
  std::map<std::string, std::string> all = {{"HOME", home},
                                            {"USER", user},
                                            {"LOGNAME", user},
                                            {"SHELL", "/usr/sbin/nologin"},
                                            {"PATH", "/usr/local/bin:/usr/bin:/bin"}};
  for (const std::string& name : spec.pass_environment)
    if (const char* value = std::getenv(name.c_str())) all[name] = value;
  for (const auto& [name, value] : spec.set_environment) all[name] = value;
  std::vector<std::string> out;
  for (const auto& [name, value] : all) out.push_back(name + "=" + value);
  return out;
}

Result<StartedChild> start_child(const ChildPlan& plan) {
  TL_TRY_ASSIGN(PipeEnds output, make_polled_pipe());
  TL_TRY_ASSIGN(PipeEnds failure, make_polled_pipe());
  std::vector<char*> arguments = exec_pointers(plan.arguments);
  std::vector<char*> environment = exec_pointers(plan.environment);
  pid_t spawner = ::getpid();
  pid_t pid = ::fork();
  if (pid < 0) return fail_errno(errno, "fork");
  if (pid == 0)
    become_agent(plan, spawner, output.write.get(), failure.write.get(), arguments.data(),
                 environment.data());
  StartedChild child;
  child.pid = pid;
  child.output = std::move(output.read);
  child.failure = std::move(failure.read);
  return child;
}

}  // namespace twinloft::lmtpd
