// An agent for tests: `tl_test_agent MODE [ARGUMENT...]`. See main() for the modes.
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

extern char** environ;

namespace {

void copy_stdin(const char* to) {
  int out = ::open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  char buffer[4096];
  ssize_t n;
  while ((n = ::read(0, buffer, sizeof buffer)) > 0)
    if (out < 0 || ::write(out, buffer, static_cast<std::size_t>(n)) != n) std::exit(74);
  if (out < 0) std::exit(73);
  ::close(out);
}

void pread_stdin() {
  char byte;
  if (::pread(0, &byte, 1, 0) != 1) std::exit(74);
}

void map_stdin() {
  void* at = ::mmap(nullptr, 1, PROT_READ, MAP_SHARED, 0, 0);
  if (at == MAP_FAILED || *static_cast<volatile char*>(at) == 0) std::exit(74);
}

// A daemon with an empty environment. It fills the agent's output for as long as it lives.
void leave_flooding_child(const char* fifo) {
  int ready[2];
  if (::pipe(ready) != 0) std::exit(71);
  if (::fork() == 0) {
    ::setsid();
    if (::fork() != 0) ::_exit(0);
    for (char** e = environ; *e; ++e) std::memset(*e, 0, std::strlen(*e));
    if (::open(fifo, O_RDONLY | O_NONBLOCK) < 0 || ::write(ready[1], "r", 1) != 1) ::_exit(1);
    const std::string block(4096, 'x');
    while (::write(1, block.data(), block.size()) > 0) {
    }
    ::_exit(0);
  }
  char byte;
  ::close(ready[1]);
  if (::read(ready[0], &byte, 1) != 1) std::exit(71);
}

// A child that holds `fifo` open for reading and never ends. The parent continues once the child has it open.
// `hide`: the child has an empty environment.
void leave_child(const char* fifo, bool own_session, bool hide = false) {
  int ready[2];
  if (::pipe(ready) != 0) std::exit(71);
  if (::fork() == 0) {
    if (own_session) {
      ::setsid();
      if (::fork() != 0) ::_exit(0);
    }
    for (char** e = environ; hide && *e; ++e) std::memset(*e, 0, std::strlen(*e));
    ::signal(SIGTERM, SIG_IGN);
    ::signal(SIGHUP, SIG_IGN);
    if (::open(fifo, O_RDONLY | O_NONBLOCK) < 0) ::_exit(1);
    if (::write(ready[1], "r", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char byte;
  ::close(ready[1]);
  if (::read(ready[0], &byte, 1) != 1) std::exit(71);
}

// Returns once the other end of `gate` was opened and closed.
void wait_for(const char* gate) {
  int fd = ::open(gate, O_RDONLY);
  char byte;
  if (fd < 0 || ::read(fd, &byte, 1) != 0) std::exit(71);
}

void hold_and_wait(const char* fifo, bool ignore_term) {
  if (ignore_term) ::signal(SIGTERM, SIG_IGN);
  if (::open(fifo, O_RDWR) < 0) std::exit(71);
  for (;;) ::pause();
}

// Writes one byte to `fifo` and keeps it open, so that the test knows that the agent runs.
void announce_and_wait(const char* fifo) {
  int fd = ::open(fifo, O_WRONLY);
  if (fd < 0 || ::write(fd, "r", 1) != 1) std::exit(71);
  for (;;) ::pause();
}

int open_descriptors() {
  int count = 0;
  DIR* dir = ::opendir("/proc/self/fd");
  while (dirent* entry = ::readdir(dir)) {
    int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != ::dirfd(dir)) ++count;
  }
  ::closedir(dir);
  return count;
}

void report(const char* to) {
  std::FILE* out = std::fopen(to, "w");
  if (!out) std::exit(73);
  gid_t groups[64];
  int count = ::getgroups(64, groups);
  char cwd[4096];
  mode_t mask = ::umask(0);
  sigset_t blocked;
  ::sigprocmask(SIG_BLOCK, nullptr, &blocked);
  struct sigaction pipe_action{};
  ::sigaction(SIGPIPE, nullptr, &pipe_action);
  struct rlimit core{}, files{};
  ::getrlimit(RLIMIT_CORE, &core);
  ::getrlimit(RLIMIT_NOFILE, &files);
  std::fprintf(out, "uid %u %u gid %u %u groups %d %u\n", ::getuid(), ::geteuid(), ::getgid(), ::getegid(),
               count, count > 0 ? groups[0] : 0);
  std::fprintf(out, "leader %d %d\n", ::getsid(0) == ::getpid(), ::getpgrp() == ::getpid());
  std::fprintf(out, "cwd %s umask %03o\n", ::getcwd(cwd, sizeof cwd), mask);
  std::fprintf(out, "descriptors %d offset %ld\n", open_descriptors(),
               static_cast<long>(::lseek(0, 0, SEEK_CUR)));
  std::fprintf(out, "signals %d %d\n", ::sigismember(&blocked, SIGCHLD), pipe_action.sa_handler == SIG_DFL);
  std::fprintf(out, "core %lu files %lu\n", static_cast<unsigned long>(core.rlim_cur),
               static_cast<unsigned long>(files.rlim_cur));
  for (char** e = environ; *e; ++e) std::fprintf(out, "env %s\n", *e);
  std::fclose(out);
}

void flood() {
  std::string line(1000, 'x');
  line += '\n';
  for (int i = 0; i < 5000; ++i)
    if (::write(1, line.data(), line.size()) < 0) std::exit(74);
  if (::write(1, "the last line\n", 14) != 14) std::exit(74);
}

}  // namespace

int main(int argc, char** argv) {
  auto text = [&](int i) { return i < argc ? argv[i] : const_cast<char*>(""); };
  std::string mode = text(1);
  if (mode == "exit") {  // exit CODE [LINE]: reads its stdin, prints LINE
    copy_stdin("/dev/null");
    if (argc > 3) std::printf("%s\n", text(3));
    return std::atoi(text(2));
  }
  if (mode == "save") return copy_stdin(text(2)), 0;
  if (mode == "noread") return std::atoi(text(2));
  if (mode == "pread") return pread_stdin(), 0;
  if (mode == "mmap") return map_stdin(), 0;
  if (mode == "child") return copy_stdin("/dev/null"), leave_child(text(2), false), std::atoi(text(3));
  if (mode == "daemon") return copy_stdin("/dev/null"), leave_child(text(2), true), std::atoi(text(3));
  if (mode == "daemon-gate") return copy_stdin("/dev/null"), leave_child(text(2), true), wait_for(text(3)), 0;
  if (mode == "daemon-hidden") return copy_stdin("/dev/null"), leave_child(text(2), true, true), 0;
  if (mode == "daemon-flood") return copy_stdin("/dev/null"), leave_flooding_child(text(2)), 0;
  if (mode == "hang") hold_and_wait(text(2), false);
  if (mode == "hang-ignoring") hold_and_wait(text(2), true);
  if (mode == "announce") announce_and_wait(text(2));
  if (mode == "report") return copy_stdin("/dev/null"), report(text(2)), 0;
  if (mode == "flood") return copy_stdin("/dev/null"), flood(), 75;
  if (mode == "signal") ::raise(SIGKILL);
  return 64;
}
