// Late steps, for tests/lib/delays.py: a library that is loaded before the others and sleeps around calls
// whose order other processes could rely on. Each delay is far shorter than what a test waits for a program.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EACH_SOCKET_CALL(X) X(listen) X(connect) X(accept) X(accept4) X(epoll_wait) X(epoll_pwait2)
#define EACH_FILE_CALL(X) X(chmod) X(chown) X(fchownat) X(write)
#define EACH_NAME_CALL(X) X(rename) X(renameat) X(renameat2) X(linkat) X(unlink) X(unlinkat)
#define EACH_PROGRAM_CALL(X) X(fork) X(execve) X(kill) X(pthread_create)
#define EACH_CALL(X) EACH_SOCKET_CALL(X) EACH_FILE_CALL(X) EACH_NAME_CALL(X) EACH_PROGRAM_CALL(X)

// next_NAME: the function that would have been called without this library.
#define DECLARE(name) static __typeof__(&name) next_##name;
EACH_CALL(DECLARE)

#define FIND(name) next_##name = (__typeof__(&name))dlsym(RTLD_NEXT, #name);

// Early, since dlsym() takes the loader's lock. A constructor of another library may still come before.
__attribute__((constructor)) static void find_next(void) {
  EACH_CALL(FIND)
}

#define NEXT(name) (next_##name ? next_##name : (find_next(), next_##name))

// AT_RANDOM differs between programs, and costs no system call.
static unsigned random_number(void) {
  static unsigned calls;
  unsigned seed;
  memcpy(&seed, (const void*)getauxval(AT_RANDOM), sizeof seed);
  unsigned x = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) * 2246822519u ^ seed;
  x = (x ^ x >> 13) * 0x5bd1e995;
  return x ^ x >> 15;
}

// Not by nanosleep(), which is a point of cancellation of a thread.
static void wait_ms(unsigned ms) {
  int error = errno;
  struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  syscall(SYS_nanosleep, &time, NULL);
  errno = error;
}

// Up to this many milliseconds, at one of `each` calls.
static void late(unsigned each, unsigned most_ms) {
  if (random_number() % each == 0) wait_ms(random_number() % most_ms);
}

static int is_socket(const char* path) {
  struct stat s;
  return stat(path, &s) == 0 && S_ISSOCK(s.st_mode);
}

// A socket that has its address, its owner or its mode, and does not listen yet.
int listen(int fd, int backlog) {
  wait_ms(250);
  return NEXT(listen)(fd, backlog);
}

int chmod(const char* path, mode_t mode) {
  if (is_socket(path)) wait_ms(200);
  return NEXT(chmod)(path, mode);
}

int chown(const char* path, uid_t user, gid_t group) {
  if (is_socket(path)) wait_ms(200);
  return NEXT(chown)(path, user, group);
}

int fchownat(int at, const char* path, uid_t user, gid_t group, int flags) {
  if (at == AT_FDCWD && is_socket(path)) wait_ms(200);
  return NEXT(fchownat)(at, path, user, group, flags);
}

int connect(int fd, const struct sockaddr* address, socklen_t size) {
  late(3, 50);
  return NEXT(connect)(fd, address, size);
}

int accept(int fd, struct sockaddr* address, socklen_t* size) {
  int accepted = NEXT(accept)(fd, address, size);
  late(4, 60);
  return accepted;
}

int accept4(int fd, struct sockaddr* address, socklen_t* size, int flags) {
  int accepted = NEXT(accept4)(fd, address, size, flags);
  late(4, 60);
  return accepted;
}

int epoll_wait(int fd, struct epoll_event* events, int most, int timeout) {
  int count = NEXT(epoll_wait)(fd, events, most, timeout);
  if (count > 0) late(48, 40);
  return count;
}

int epoll_pwait2(int fd, struct epoll_event* events, int most, const struct timespec* timeout,
                 const sigset_t* mask) {
  int count = NEXT(epoll_pwait2)(fd, events, most, timeout, mask);
  if (count > 0) late(48, 40);
  return count;
}

// A line of a log after what it tells.
ssize_t write(int fd, const void* data, size_t size) {
  if (fd == STDERR_FILENO && size > 6 && memcmp(data, "level=", 6) == 0) late(2, 400);
  return NEXT(write)(fd, data, size);
}

int rename(const char* from, const char* to) {
  late(4, 100);
  return NEXT(rename)(from, to);
}

int renameat(int from_at, const char* from, int to_at, const char* to) {
  late(4, 100);
  return NEXT(renameat)(from_at, from, to_at, to);
}

int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) {
  late(4, 100);
  return NEXT(renameat2)(from_at, from, to_at, to, flags);
}

int linkat(int from_at, const char* from, int to_at, const char* to, int flags) {
  late(6, 50);
  return NEXT(linkat)(from_at, from, to_at, to, flags);
}

int unlink(const char* path) {
  late(6, 50);
  return NEXT(unlink)(path);
}

int unlinkat(int at, const char* path, int flags) {
  late(6, 50);
  return NEXT(unlinkat)(at, path, flags);
}

// The parent or the child, since both come back here.
pid_t fork(void) {
  pid_t child = NEXT(fork)();
  late(3, 100);
  return child;
}

int execve(const char* path, char* const words[], char* const environment[]) {
  late(2, 80);
  return NEXT(execve)(path, words, environment);
}

int kill(pid_t process, int number) {
  int result = NEXT(kill)(process, number);
  late(2, 100);
  return result;
}

struct begin {
  void* (*run)(void*);
  void* of;
};

static void* begin_late(void* given) {
  struct begin begin = *(struct begin*)given;
  free(given);
  late(2, 200);
  return begin.run(begin.of);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* of) {
  struct begin* begin = malloc(sizeof *begin);
  if (!begin) return EAGAIN;
  *begin = (struct begin){run, of};
  int error = NEXT(pthread_create)(thread, attributes, begin_late, begin);
  if (error) free(begin);
  return error;
}
