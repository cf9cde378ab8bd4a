// A directory of files that behave as disks with a volatile cache. It is a FUSE file system, mounted over the
// directory with the files. A write is visible to readers at once. Requests and answers are logged, so that
// power_images can make the content after a power cut at any moment. Only plain files in one directory, and
// only what the tests need.
//
//   power_disk --directory DIR --log FILE [--delay-us N] [--seed N] [--bad-blocks FILE] [--bad-writes FILE]
//
// --bad-blocks: a list of blocks that cannot be read until they are written; --bad-writes: a list of writes
// that fail once (bad_blocks.h).
// Serves until it is unmounted or gets SIGTERM. Exit: 0, or 1 with a message.
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <linux/fuse.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <boost/program_options.hpp>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "answers.h"
#include "bad_blocks.h"
#include "event_log.h"
#include "fuse_api.h"
#include "twinloft/base/fd.h"

namespace twinloft::power {
namespace {

namespace po = boost::program_options;

constexpr double valid_seconds = 0;
constexpr unsigned request_bytes_max = 1 << 20;

struct File {
  std::string name;
  Fd fd;
};

struct Disk {
  Fd directory;
  std::vector<File> files;  // by number; inode is number + 2
  SharedLog* log = nullptr;
  Answers* answers = nullptr;
  BadBlocks bad{{}};
  BadWrites bad_writes{{}};
  std::uint64_t last_id = 0;

  File& of(fuse_ino_t inode) { return files.at(inode - 2); }
  static std::uint16_t number(fuse_ino_t inode) { return static_cast<std::uint16_t>(inode - 2); }
};

Disk& disk_of(fuse_req_t request) {
  return *static_cast<Disk*>(fuse_req_userdata(request));
}

int attributes(Disk& disk, fuse_ino_t inode, struct stat& out) {
  if (::fstat(inode == FUSE_ROOT_ID ? disk.directory.get() : disk.of(inode).fd.get(), &out) != 0)
    return errno;
  out.st_ino = inode;
  return 0;
}

// 0 and the inode, or an errno.
int open_by_name(Disk& disk, const char* name, int flags, mode_t mode, fuse_ino_t& inode) {
  for (std::size_t i = 0; i < disk.files.size(); ++i)
    if (disk.files[i].name == name) return inode = i + 2, 0;
  Fd fd(::openat(disk.directory.get(), name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, mode));
  if (!fd) return errno;
  disk.files.push_back({name, std::move(fd)});
  inode = disk.files.size() + 1;
  Event event{.kind = EventKind::name, .file = Disk::number(inode), .length = std::strlen(name)};
  disk.log->append(event, as_bytes(std::string_view(name)));
  return 0;
}

void op_init(void*, fuse_conn_info* conn) {
  conn->want &= ~static_cast<unsigned>(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE |
                                       FUSE_CAP_WRITEBACK_CACHE);
  conn->want |= conn->capable & (FUSE_CAP_ASYNC_DIO | FUSE_CAP_ASYNC_READ);
  conn->max_write = request_bytes_max;
  conn->max_read = request_bytes_max;  // and in the mount options: both values must agree
  conn->max_background = 128;
  conn->congestion_threshold = 100;
}

bool entry_of(Disk& disk, fuse_ino_t inode, fuse_entry_param& entry) {
  entry.ino = inode;
  entry.attr_timeout = entry.entry_timeout = valid_seconds;
  return attributes(disk, inode, entry.attr) == 0;
}

void op_lookup(fuse_req_t request, fuse_ino_t, const char* name) {
  Disk& disk = disk_of(request);
  fuse_entry_param entry{};
  fuse_ino_t inode = 0;
  if (int error = open_by_name(disk, name, 0, 0, inode); error != 0)
    return void(fuse_reply_err(request, error));
  if (!entry_of(disk, inode, entry)) return void(fuse_reply_err(request, EIO));
  fuse_reply_entry(request, &entry);
}

void op_getattr(fuse_req_t request, fuse_ino_t inode, fuse_file_info*) {
  struct stat st{};
  if (int error = attributes(disk_of(request), inode, st); error != 0)
    return void(fuse_reply_err(request, error));
  fuse_reply_attr(request, &st, valid_seconds);
}

void log_size(Disk& disk, fuse_ino_t inode) {
  struct stat st{};
  if (attributes(disk, inode, st) != 0) return;
  disk.log->append({.kind = EventKind::resize,
                    .file = Disk::number(inode),
                    .length = static_cast<std::uint64_t>(st.st_size)});
}

void op_setattr(fuse_req_t request, fuse_ino_t inode, struct stat* wanted, int which, fuse_file_info* file) {
  Disk& disk = disk_of(request);
  if (which & FUSE_SET_ATTR_SIZE) {
    if (::ftruncate(disk.of(inode).fd.get(), wanted->st_size) != 0)
      return void(fuse_reply_err(request, errno));
    log_size(disk, inode);
  }
  op_getattr(request, inode, file);
}

void op_open(fuse_req_t request, fuse_ino_t, fuse_file_info*) {
  // libfuse 3.14 cannot express FOPEN_PARALLEL_DIRECT_WRITES. Without it the kernel sends one write at a
  // time.
  fuse_open_out out{};
  out.open_flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
  fuse_reply_buf(request, reinterpret_cast<const char*>(&out), sizeof out);
}

void op_create(fuse_req_t request, fuse_ino_t, const char* name, mode_t mode, fuse_file_info* file) {
  Disk& disk = disk_of(request);
  fuse_entry_param entry{};
  fuse_ino_t inode = 0;
  if (int error = open_by_name(disk, name, O_CREAT, mode, inode); error != 0)
    return void(fuse_reply_err(request, error));
  if (!entry_of(disk, inode, entry)) return void(fuse_reply_err(request, EIO));
  file->direct_io = 1;
  fuse_reply_create(request, &entry, file);
}

void op_read(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset, fuse_file_info*) {
  static std::vector<char> buffer;  // one thread takes the requests
  Disk& disk = disk_of(request);
  if (disk.bad.hit(disk.of(inode).name, static_cast<std::uint64_t>(offset), size))
    return void(fuse_reply_err(request, EIO));
  buffer.resize(std::max(buffer.size(), size));
  ssize_t n = ::pread(disk.of(inode).fd.get(), buffer.data(), size, offset);
  if (n < 0) return void(fuse_reply_err(request, errno));
  fuse_reply_buf(request, buffer.data(), static_cast<std::size_t>(n));
}

void op_write(fuse_req_t request, fuse_ino_t inode, const char* data, size_t size, off_t offset,
              fuse_file_info* file) {
  Disk& disk = disk_of(request);
  if (disk.bad_writes.take(disk.of(inode).name, static_cast<std::uint64_t>(offset), size))
    return void(fuse_reply_err(request, EIO));
  Event event{.kind = EventKind::write,
              .file = Disk::number(inode),
              .id = ++disk.last_id,
              .offset = static_cast<std::uint64_t>(offset),
              .length = size};
  // The kernel sends no FSYNC after a direct O_DSYNC write. The flags of the write tell.
  if (file->flags & (O_SYNC | O_DSYNC)) event.flags = durable_when_done;
  disk.log->append(event, {reinterpret_cast<const std::byte*>(data), size});
  ssize_t n = ::pwrite(disk.of(inode).fd.get(), data, size, offset);
  if (n != static_cast<ssize_t>(size)) return void(fuse_reply_err(request, n < 0 ? errno : ENOSPC));
  disk.bad.written(disk.of(inode).name, event.offset, size);
  event.kind = EventKind::done;
  disk.answers->add(request, event, size);
}

void op_fallocate(fuse_req_t request, fuse_ino_t inode, int mode, off_t offset, off_t length,
                  fuse_file_info*) {
  Disk& disk = disk_of(request);
  int fd = disk.of(inode).fd.get();
  if ((mode & ~FALLOC_FL_KEEP_SIZE) == 0) {
    int error = ::fallocate(fd, mode, offset, length) == 0 ? 0 : errno;
    log_size(disk, inode);
    return void(fuse_reply_err(request, error));
  }
  if (mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) &&
      mode != (FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE))
    return void(fuse_reply_err(request, EOPNOTSUPP));
  if (disk.bad_writes.take(disk.of(inode).name, static_cast<std::uint64_t>(offset),
                           static_cast<std::uint64_t>(length)))
    return void(fuse_reply_err(request, EIO));
  Event event{.kind = EventKind::zeros,
              .file = Disk::number(inode),
              .id = ++disk.last_id,
              .offset = static_cast<std::uint64_t>(offset),
              .length = static_cast<std::uint64_t>(length)};
  disk.log->append(event);
  if (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length) != 0)
    return void(fuse_reply_err(request, errno));
  disk.bad.written(disk.of(inode).name, event.offset, event.length);
  event.kind = EventKind::done;
  disk.answers->add(request, event, 0);
}

void op_fsync(fuse_req_t request, fuse_ino_t inode, int, fuse_file_info*) {
  Disk& disk = disk_of(request);
  Event event{.kind = EventKind::sync_begin, .file = Disk::number(inode), .id = ++disk.last_id};
  disk.log->append(event);
  event.kind = EventKind::sync_done;
  disk.answers->add(request, event, 0);
}

void op_done_at_once(fuse_req_t request, fuse_ino_t, fuse_file_info*) {
  fuse_reply_err(request, 0);
}

void op_statfs(fuse_req_t request, fuse_ino_t) {
  struct statvfs out{};
  if (::fstatvfs(disk_of(request).directory.get(), &out) != 0) return void(fuse_reply_err(request, errno));
  fuse_reply_statfs(request, &out);
}

fuse_lowlevel_ops operations() {
  fuse_lowlevel_ops o{};
  o.init = op_init;
  o.lookup = op_lookup;
  o.getattr = op_getattr;
  o.setattr = op_setattr;
  o.open = op_open;
  o.create = op_create;
  o.read = op_read;
  o.write = op_write;
  o.fallocate = op_fallocate;
  o.fsync = op_fsync;
  o.flush = op_done_at_once;  // a close promises nothing
  o.release = op_done_at_once;
  o.statfs = op_statfs;
  return o;
}

int serve(Disk& disk, const std::string& directory) {
  std::string mount_options = fmt::format("fsname=power_disk,subtype=power_disk,noatime,max_read={}",
                                          request_bytes_max);
  std::string words[] = {"power_disk", "-o", mount_options};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  fuse_args args = FUSE_ARGS_INIT(3, arguments);
  fuse_lowlevel_ops ops = operations();
  fuse_session* session = fuse_session_new(&args, &ops, sizeof ops, &disk);
  fuse_opt_free_args(&args);
  if (session == nullptr || fuse_set_signal_handlers(session) != 0 ||
      fuse_session_mount(session, directory.c_str()) != 0)
    return 1;
  int ended = fuse_session_loop(session);
  fuse_session_unmount(session);
  // The signal handlers stay: a SIGTERM now must not end the process before the log is written.
  return ended < 0 ? 1 : 0;
}

int run(int argc, char** argv) {
  std::string directory, log_path, bad_blocks, bad_writes;
  std::uint64_t delay_us = 100, seed = 1;
  po::options_description options;
  options.add_options()("directory", po::value(&directory)->required())(
      "log", po::value(&log_path)->required())("delay-us", po::value(&delay_us))("seed", po::value(&seed))(
      "bad-blocks", po::value(&bad_blocks))("bad-writes", po::value(&bad_writes));
  po::variables_map found;
  po::store(po::parse_command_line(argc, argv, options), found);
  po::notify(found);

  auto writer = EventWriter::create(log_path);
  if (!writer) return fmt::print(stderr, "power_disk: {}\n", writer.error().message), 1;
  SharedLog log(std::move(*writer));
  Disk disk;
  // before the mount hides it
  disk.directory = Fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!disk.directory) return fmt::print(stderr, "power_disk: {}: {}\n", directory, std::strerror(errno)), 1;
  disk.log = &log;
  disk.bad = BadBlocks(bad_blocks);
  disk.bad_writes = BadWrites(bad_writes);
  int result;
  {
    Answers answers(log, std::chrono::microseconds(delay_us), seed);
    disk.answers = &answers;
    result = serve(disk, directory);
  }
  log.flush();
  return result;
}

}  // namespace
}  // namespace twinloft::power

int main(int argc, char** argv) {
  try {
    return twinloft::power::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "power_disk: {}\n", e.what());
    return 1;
  }
}
