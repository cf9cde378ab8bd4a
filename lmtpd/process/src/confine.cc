#include "twinloft/lmtpd/process/confine.h"

#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

// For files of the spool and of SQLite, for messages in files, and for memory. User ids and mounts limit
// which files these calls can reach.
constexpr const char* on_files[] = {"_llseek",
                                    "access",
                                    "close",
                                    "copy_file_range",
                                    "dup",
                                    "dup2",
                                    "dup3",
                                    "faccessat",
                                    "faccessat2",
                                    "fadvise64",
                                    "fallocate",
                                    "fchmod",
                                    "fdatasync",
                                    "fgetxattr",
                                    "flock",
                                    "fremovexattr",
                                    "fsetxattr",
                                    "fstat",
                                    "fstat64",
                                    "fstatat64",
                                    "fstatfs",
                                    "fstatfs64",
                                    "fsync",
                                    "ftruncate",
                                    "ftruncate64",
                                    "getcwd",
                                    "getdents64",
                                    "linkat",
                                    "lseek",
                                    "lstat",
                                    "lstat64",
                                    "memfd_create",
                                    "mkdir",
                                    "mkdirat",
                                    "msync",
                                    "newfstatat",
                                    "open",
                                    "openat",
                                    "openat2",
                                    "pread64",
                                    "preadv",
                                    "preadv2",
                                    "pwrite64",
                                    "pwritev",
                                    "pwritev2",
                                    "read",
                                    "readlink",
                                    "readlinkat",
                                    "readv",
                                    "rename",
                                    "renameat",
                                    "renameat2",
                                    "rmdir",
                                    "sendfile",
                                    "sendfile64",
                                    "stat",
                                    "stat64",
                                    "statfs",
                                    "statfs64",
                                    "statx",
                                    "sync_file_range",
                                    "syncfs",
                                    "umask",
                                    "unlink",
                                    "unlinkat",
                                    "utimensat",
                                    "utimensat_time64",
                                    "write",
                                    "writev"};

// For sockets that other processes have opened. The process cannot create or connect network sockets.
constexpr const char* on_sockets[] = {"accept",     "accept4",    "getpeername", "getsockname",
                                      "getsockopt", "recv",       "recvfrom",    "recvmsg",
                                      "send",       "setsockopt", "shutdown"};

constexpr const char* on_itself[] = {"brk",
                                     "clock_getres",
                                     "clock_getres_time64",
                                     "clock_gettime",
                                     "clock_gettime64",
                                     "clock_nanosleep",
                                     "clock_nanosleep_time64",
                                     "epoll_create1",
                                     "epoll_ctl",
                                     "epoll_pwait",
                                     "epoll_pwait2",
                                     "epoll_wait",
                                     "eventfd2",
                                     "exit",
                                     "exit_group",
                                     "futex",
                                     "futex_time64",
                                     "get_robust_list",
                                     "getcpu",
                                     "getegid",
                                     "geteuid",
                                     "getgid",
                                     "getpid",
                                     "getppid",
                                     "getrandom",
                                     "getrlimit",
                                     "getrusage",
                                     "gettid",
                                     "gettimeofday",
                                     "getuid",
                                     "madvise",
                                     "membarrier",
                                     "mremap",
                                     "munmap",
                                     "nanosleep",
                                     "pipe2",
                                     "poll",
                                     "ppoll",
                                     "ppoll_time64",
                                     "pselect6",
                                     "restart_syscall",
                                     "rseq",
                                     "rt_sigaction",
                                     "rt_sigpending",
                                     "rt_sigprocmask",
                                     "rt_sigreturn",
                                     "rt_sigtimedwait",
                                     "sched_getaffinity",
                                     "sched_getparam",
                                     "sched_getscheduler",
                                     "sched_yield",
                                     "set_robust_list",
                                     "sigaltstack",
                                     "sigreturn",
                                     "sysinfo",
                                     "time",
                                     "timerfd_create",
                                     "timerfd_gettime",
                                     "timerfd_settime",
                                     "timerfd_settime64",
                                     "ugetrlimit",
                                     "uname",
                                     "wait4",
                                     "waitid"};

struct Freed {
  void operator()(void* filter) const { seccomp_release(filter); }
};
using Filter = std::unique_ptr<void, Freed>;

// Keeps the first error. A call that this architecture lacks is not an error.
class Rules {
 public:
  explicit Rules(scmp_filter_ctx filter) : filter_(filter) {}

  void add(std::uint32_t action, const char* name, std::initializer_list<scmp_arg_cmp> arguments = {}) {
    int number = seccomp_syscall_resolve_name(name);
    if (number == __NR_SCMP_ERROR) return;
    note(seccomp_rule_add_array(filter_, action, number, static_cast<unsigned>(arguments.size()),
                                arguments.begin()));
  }
  void allow(const char* name, std::initializer_list<scmp_arg_cmp> arguments = {}) {
    add(SCMP_ACT_ALLOW, name, arguments);
  }
  int error() const { return error_; }

 private:
  void note(int result) {
    if (result < 0 && error_ == 0) error_ = -result;
  }
  scmp_filter_ctx filter_;
  int error_ = 0;
};

// As seccomp.h's SCMP_A0 to SCMP_A5, which are C.
scmp_arg_cmp argument(unsigned number, scmp_compare how, scmp_datum_t value, scmp_datum_t other = 0) {
  return {number, how, value, other};
}

void add_rules(Rules& rules) {
  for (const char* name : on_files) rules.allow(name);
  for (const char* name : on_sockets) rules.allow(name);
  for (const char* name : on_itself) rules.allow(name);
  // For the result of an agent. A pair of datagram sockets is refused, because it could send to any address.
  rules.allow("socketpair",
              {argument(0, SCMP_CMP_EQ, AF_UNIX), argument(1, SCMP_CMP_EQ, SOCK_SEQPACKET | SOCK_CLOEXEC)});
  // MSG_FASTOPEN is refused, because it makes a send connect.
  rules.allow("sendto", {argument(3, SCMP_CMP_MASKED_EQ, MSG_FASTOPEN, 0)});
  rules.allow("sendmsg", {argument(2, SCMP_CMP_MASKED_EQ, MSG_FASTOPEN, 0)});
  // F_SETOWN and O_ASYNC are refused, because they could signal any process of the same user.
  for (const char* name : {"fcntl", "fcntl64"}) {
    for (int command : {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_GETLK, F_SETLK, F_SETLKW,
                        F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_ADD_SEALS, F_GET_SEALS})
      rules.allow(name, {argument(1, SCMP_CMP_EQ, static_cast<scmp_datum_t>(command))});
    rules.allow(name, {argument(1, SCMP_CMP_EQ, F_SETFL), argument(2, SCMP_CMP_MASKED_EQ, O_ASYNC, 0)});
  }
  rules.allow("ioctl", {argument(1, SCMP_CMP_EQ, FIONBIO)});
  rules.allow("ioctl", {argument(1, SCMP_CMP_EQ, FIONREAD)});
  rules.allow("prctl", {argument(0, SCMP_CMP_EQ, PR_SET_NAME)});
  rules.allow("prlimit64", {argument(2, SCMP_CMP_EQ, 0)});  // reads limits; cannot change them
  // Memory cannot be made executable.
  for (const char* name : {"mmap", "mmap2", "mprotect"})
    rules.allow(name, {argument(2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)});
  // Threads only, no processes. A filter cannot see the flags of clone3, which are in memory. clone3 gives
  // ENOSYS, so the C library uses clone.
  rules.allow("clone", {argument(0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD)});
  // For abort(3) in this process.
  rules.allow("tgkill", {argument(0, SCMP_CMP_EQ, static_cast<scmp_datum_t>(::getpid()))});
  // If libseccomp cannot find out whether the kernel has KILL_PROCESS, for example because of an outer
  // filter, TRAP is used: its SIGSYS ends the process too.
  std::uint32_t end = seccomp_api_get() >= 3 ? SCMP_ACT_KILL_PROCESS : SCMP_ACT_TRAP;
  for (const char* name : {"execve", "execveat"}) rules.add(end, name);
}

// Calls that a client of a database or of a name service does not need.
constexpr const char* on_others[] = {"add_key",
                                     "bpf",
                                     "chroot",
                                     "fork",
                                     "io_uring_enter",
                                     "ioprio_set",
                                     "io_uring_register",
                                     "io_uring_setup",
                                     "kcmp",
                                     "keyctl",
                                     "kill",
                                     "mount",
                                     "move_mount",
                                     "name_to_handle_at",
                                     "open_by_handle_at",
                                     "open_tree",
                                     "perf_event_open",
                                     "personality",
                                     "pidfd_getfd",
                                     "pidfd_open",
                                     "pidfd_send_signal",
                                     "pivot_root",
                                     "process_madvise",
                                     "process_vm_readv",
                                     "process_vm_writev",
                                     "ptrace",
                                     "request_key",
                                     "rt_sigqueueinfo",
                                     "rt_tgsigqueueinfo",
                                     "sched_setaffinity",
                                     "sched_setattr",
                                     "sched_setparam",
                                     "sched_setscheduler",
                                     "setns",
                                     "setpriority",
                                     "tkill",
                                     "umount2",
                                     "unshare",
                                     "userfaultfd",
                                     "vfork"};

void add_rules_for_helper(Rules& rules) {
  for (const char* name : on_others) rules.add(SCMP_ACT_ERRNO(EPERM), name);
  rules.add(SCMP_ACT_ERRNO(EPERM), "tgkill",
            {argument(0, SCMP_CMP_NE, static_cast<scmp_datum_t>(::getpid()))});
  rules.add(SCMP_ACT_ERRNO(EPERM), "clone", {argument(0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0)});
  rules.add(SCMP_ACT_ERRNO(EPERM), "prlimit64", {argument(2, SCMP_CMP_NE, 0)});
  for (const char* name : {"fcntl", "fcntl64"}) {
    for (int command : {F_SETOWN, F_SETOWN_EX, F_SETSIG})
      rules.add(SCMP_ACT_ERRNO(EPERM), name, {argument(1, SCMP_CMP_EQ, static_cast<scmp_datum_t>(command))});
    rules.add(SCMP_ACT_ERRNO(EPERM), name,
              {argument(1, SCMP_CMP_EQ, F_SETFL), argument(2, SCMP_CMP_MASKED_EQ, O_ASYNC, O_ASYNC)});
  }
  for (unsigned long request : {FIOSETOWN, SIOCSPGRP, FIOASYNC})
    rules.add(SCMP_ACT_ERRNO(EPERM), "ioctl", {argument(1, SCMP_CMP_EQ, request)});
  rules.add(SCMP_ACT_ERRNO(ENOSYS), "clone3");  // a filter cannot see its flags; the C library uses clone
  for (const char* name : {"execve", "execveat"}) rules.add(SCMP_ACT_ERRNO(EPERM), name);
}

Status load_filter(std::uint32_t otherwise, void (*add)(Rules&)) {
  Filter filter(seccomp_init(otherwise));
  if (!filter) return fail(Errc::exhausted, "no memory for a filter of system calls");
  Rules rules(filter.get());
  add(rules);
  // The filter as a binary tree: it runs at every system call, and a list would be slower.
  (void)seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
  if (rules.error() != 0) return fail_errno(rules.error(), "a rule for system calls");
  if (int loaded = seccomp_load(filter.get()); loaded < 0) return fail_errno(-loaded, "seccomp");
  return {};
}

}  // namespace

Status confine() {
  return load_filter(SCMP_ACT_ERRNO(ENOSYS), add_rules);
}
Status confine_helper() {
  return load_filter(SCMP_ACT_ALLOW, add_rules_for_helper);
}

Status become_server(const Identity& identity, const std::string& user) {
  TL_TRY(drop_privileges(identity));
  if (Status confined = confine(); !confined)
    log_warning(
        "seccomp filter not installed ({}): the server process is unconfined, and has all permissions "
        "of {}",
        confined.error().message, user);
  return {};
}

Status become_helper(const Identity& identity, const std::string& user, const char* what) {
  TL_TRY(drop_privileges(identity));
  if (Status confined = confine_helper(); !confined)
    log_warning(
        "seccomp filter not installed ({}): the process that {} is unconfined, and has all permissions "
        "of {}",
        confined.error().message, what, user);
  return {};
}

}  // namespace twinloft::lmtpd
