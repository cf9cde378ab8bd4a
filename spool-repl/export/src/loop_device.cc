#include "twinloft/spool-repl/export/loop_device.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "twinloft/base/fd.h"

namespace twinloft::repl::exports {

namespace {

constexpr int detach_polls = 500;    // of 10 ms
constexpr int attach_attempts = 64;  // another program may take the free device first

std::string sysfs_of(const std::string& device) {
  return "/sys/block/" + device.substr(device.rfind('/') + 1);
}

std::string read_line(const std::string& path) {
  auto text = read_file(path, 1 << 16);
  if (!text) return {};
  while (text->ends_with('\n')) text->pop_back();
  return *text;
}

std::uint64_t number_in(const std::string& path) {
  std::string text = read_line(path);
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// If another program has the device open (udev reads each device that changes), the kernel detaches it at
// that program's close, without a notification.
Status await_detached(const LoopIdentity& loop) {
  constexpr timespec pause{0, 10'000'000};
  for (int i = 0; i < detach_polls; ++i) {
    if (!is_attached(loop)) return {};
    ::nanosleep(&pause, nullptr);
  }
  return fail(Errc::unavailable,
              "{}: another program keeps it open; it is detached when that program closes it", loop.device);
}

// LOOP_CONFIGURE uses buffered I/O, without an error, if the file does not allow direct I/O.
Status require_direct_io(const LoopIdentity& loop, Fd& held) {
  if (read_line(sysfs_of(loop.device) + "/loop/dio") == "1") return {};
  held.reset();
  (void)detach_loop(loop);
  return fail(Errc::unavailable, "{}: the kernel refuses direct I/O on {}; every write would be cached twice",
              loop.device, loop.backing_path);
}

// The kernel keeps this setting when it attaches another file to the same number. With "write through" it
// answers flushes by itself, and the file's server never learns of them.
Status require_flushes(const LoopIdentity& loop, Fd& held) {
  constexpr std::string_view wanted = "write back";
  const std::string setting = sysfs_of(loop.device) + "/queue/write_cache";
  if (read_line(setting) == wanted) return {};
  if (Fd file{::open(setting.c_str(), O_WRONLY | O_CLOEXEC)}; file)
    (void)!::write(file.get(), wanted.data(), wanted.size());
  const std::string now = read_line(setting);
  if (now == wanted) return {};
  held.reset();
  (void)detach_loop(loop);
  return fail(Errc::unavailable,
              "{}: the kernel would not pass on flushes: {} is \"{}\" and cannot be set to \"{}\"",
              loop.device, setting, now, wanted);
}

// While `fd` is open, no program can detach the device, so the answer stays valid.
std::uint64_t sequence_of(int fd) {
  std::uint64_t sequence = 0;
#ifdef BLKGETDISKSEQ
  if (::ioctl(fd, BLKGETDISKSEQ, &sequence) != 0) return 0;
#endif
  return sequence;
}

Result<Fd> open_backing(const std::string& path, const LoopOptions& options) {
  Fd backing(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT));
  if (!backing) return fail_errno(errno, "{}: backing file of a loop device", path);
  struct stat st{};
  if (options.backing_device == 0) return backing;
  if (::fstat(backing.get(), &st) != 0) return fail_errno(errno, "{}: backing file of a loop device", path);
  if (st.st_dev != options.backing_device)
    return fail(Errc::conflict, "{}: another file system is mounted over the volume's file: unmount it",
                path);
  return backing;
}

bool is_device_of_ours(const std::string& target) {
  for (std::string_view name : {"/dev/loop", "/dev/ublkb"})
    if (target.starts_with(name) && target.size() > name.size() &&
        target.find_first_not_of("0123456789", name.size()) == std::string::npos)
      return true;
  return false;
}

Result<Fd> open_device(const std::string& device, int flags) {
  Fd fd(::open(device.c_str(), flags | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "{}", device);
  return fd;
}

}  // namespace

Result<AttachedLoop> attach_loop(const std::string& backing_path, const LoopOptions& options) {
  Fd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
  if (!control) {
    auto error = fail_errno(
        errno, "/dev/loop-control: no loop devices here (is the kernel module \"loop\" loaded?)");
    error.error().code = Errc::unavailable;
    return error;
  }
  TL_TRY_ASSIGN(Fd backing, open_backing(backing_path, options));

  loop_config config{};
  config.fd = static_cast<__u32>(backing.get());
  config.block_size = options.block_bytes;
  // All in one call, since a kill between two calls would leave the device attached.
  if (options.direct_io) config.info.lo_flags |= LO_FLAGS_DIRECT_IO;
  if (options.autoclear) config.info.lo_flags |= LO_FLAGS_AUTOCLEAR;
  std::size_t name_bytes = std::min(backing_path.size(), sizeof config.info.lo_file_name - 1);
  std::memcpy(config.info.lo_file_name, backing_path.data(), name_bytes);

  for (int i = 0; i < attach_attempts; ++i) {
    int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) return fail_errno(errno, "no free loop device");
    std::string device = fmt::format("/dev/loop{}", number);
    TL_TRY_ASSIGN(Fd fd, open_device(device, O_RDWR));
    if (::ioctl(fd.get(), LOOP_CONFIGURE, &config) == 0) {
      AttachedLoop loop{{std::move(device), sequence_of(fd.get()), backing_path}, Fd()};
      if (options.direct_io) TL_TRY(require_direct_io(loop, fd));
      TL_TRY(require_flushes(loop, fd));
      if (options.autoclear) loop.held = std::move(fd);
      return loop;
    }
    if (errno != EBUSY) return fail_errno(errno, "{}: cannot be attached to {}", device, backing_path);
  }
  return fail(Errc::unavailable, "no free loop device in {} attempts", attach_attempts);
}

bool is_attached(const LoopIdentity& loop) {
  std::string file = read_line(sysfs_of(loop.device) + "/loop/backing_file");
  if (file.empty()) return false;
  return loop.sequence != 0 ? number_in(sysfs_of(loop.device) + "/diskseq") == loop.sequence
                            : file == loop.backing_path;
}

Status detach_loop(const LoopIdentity& loop) {
  if (!is_attached(loop)) return {};
  // Opened exclusively, since detaching a mounted device would take effect at its last close, unnoticed.
  auto fd = open_device(loop.device, O_RDONLY | O_EXCL);
  if (!is_attached(loop)) return {};
  if (!fd && fd.error().sys == EBUSY)
    return fail(Errc::unavailable, "{}: still in use (mounted?); it stays attached", loop.device);
  if (!fd) return std::unexpected(fd.error());
  if (::ioctl(fd->get(), LOOP_CLR_FD) != 0 && errno != ENXIO)
    return fail_errno(errno, "{}: detaching", loop.device);
  fd->reset();
  return await_detached(loop);
}

Status await_cleared(const LoopIdentity& loop) {
  return await_detached(loop);
}

void abandon_loop(const LoopIdentity& loop) {
  // If the device is in use, the kernel detaches it at the last close.
  if (auto fd = open_device(loop.device, O_RDONLY); fd && is_attached(loop))
    (void)::ioctl(fd->get(), LOOP_CLR_FD);
}

std::vector<LoopIdentity> loops_of(const std::string& backing_path) {
  std::vector<LoopIdentity> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/block", error)) {
    std::string name = entry.path().filename();
    if (!name.starts_with("loop")) continue;
    LoopIdentity loop{"/dev/" + name, number_in(entry.path().string() + "/diskseq"), backing_path};
    // In this order, so that a device that was attached to another file in between is not included.
    if (read_line(entry.path().string() + "/loop/backing_file") == backing_path && is_attached(loop))
      found.push_back(loop);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.device < b.device; });
  return found;
}

bool is_on(const LoopIdentity& loop, dev_t device) {
  auto fd = open_device(loop.device, O_RDONLY);
  loop_info64 info{};
  if (!fd || !is_attached(loop)) return false;
  if (::ioctl(fd->get(), LOOP_GET_STATUS64, &info) != 0) return errno == ENOTCONN || errno == ECONNABORTED;
  return info.lo_device == device;
}

Status check_symlink(const std::string& link) {
  struct stat st{};
  if (::lstat(link.c_str(), &st) != 0) return {};
  if (!S_ISLNK(st.st_mode))
    return fail(Errc::conflict, "{}: exists and is not a symbolic link; nothing was changed", link);
  std::error_code error;
  std::string before = std::filesystem::read_symlink(link, error);
  if (is_device_of_ours(before)) return {};
  return fail(Errc::conflict, "{}: is a link to {}, which cannot be a volume's device; nothing was changed",
              link, before);
}

Status publish_symlink(const std::string& target, const std::string& link) {
  TL_TRY(check_symlink(link));
  std::string fresh = link + ".new";
  ::unlink(fresh.c_str());
  if (::symlink(target.c_str(), fresh.c_str()) != 0) return fail_errno(errno, "{}: symbolic link", fresh);
  if (::rename(fresh.c_str(), link.c_str()) != 0) {
    int sys = errno;
    ::unlink(fresh.c_str());
    return fail_errno(sys, "{}: symbolic link", link);
  }
  return {};
}

void withdraw_symlink(const std::string& target, const std::string& link) {
  std::error_code error;
  if (std::filesystem::read_symlink(link, error) == target && !error) ::unlink(link.c_str());
}

bool remove_stale_symlink(const std::string& link) {
  std::error_code error;
  std::string target = std::filesystem::read_symlink(link, error);
  return !error && is_device_of_ours(target) && ::unlink(link.c_str()) == 0;
}

}  // namespace twinloft::repl::exports
