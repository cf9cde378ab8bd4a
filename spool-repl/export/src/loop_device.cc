#include "twinloft/spool-repl/export/loop_device.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "twinloft/base/fd.h"

namespace twinloft::repl::exports {

namespace {

constexpr int detach_polls = 500;  // of 10 ms
constexpr int attach_attempts = 64;  // others may take the free device between asking for it and using it

std::string sysfs_of(const std::string& device) { return "/sys/block/" + device.substr(device.rfind('/') + 1); }

std::string read_line(const std::string& path) {
  auto text = read_file(path, 1 << 16);
  if (!text) return {};
  while (text->ends_with('\n')) text->pop_back();
  return *text;
}

// While somebody else has the device open (udev looks at each that changes) the kernel detaches it only at their close,
// and tells nobody.
Status await_detached(const std::string& device, auto attached) {
  constexpr timespec pause{0, 10'000'000};
  for (int i = 0; i < detach_polls; ++i) {
    if (!attached(sysfs_of(device) + "/loop/backing_file")) return {};
    ::nanosleep(&pause, nullptr);
  }
  return fail(Errc::unavailable, "{}: another program keeps it open; it will detach when that closes it", device);
}

// LOOP_CONFIGURE falls back to buffered I/O without a word where the file does not allow direct I/O.
Status require_direct_io(const std::string& device, Fd& held, const std::string& backing_path) {
  if (read_line(sysfs_of(device) + "/loop/dio") == "1") return {};
  held.reset();
  (void)detach_loop(device);
  return fail(Errc::unavailable, "{}: the kernel refuses direct I/O on {}; every write would be cached twice", device,
              backing_path);
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
    auto error = fail_errno(errno, "/dev/loop-control: no loop devices here (is the kernel module \"loop\" loaded?)");
    error.error().code = Errc::unavailable;
    return error;
  }
  Fd backing(::open(backing_path.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT));
  if (!backing) return fail_errno(errno, "{}: backing file of a loop device", backing_path);

  loop_config config{};
  config.fd = static_cast<__u32>(backing.get());
  config.block_size = options.block_bytes;
  // All at once: set later, a kill in between would leave the device attached.
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
      if (options.direct_io) TL_TRY(require_direct_io(device, fd, backing_path));
      if (!options.autoclear) fd.reset();
      return AttachedLoop{std::move(device), std::move(fd)};
    }
    if (errno != EBUSY) return fail_errno(errno, "{}: cannot be attached to {}", device, backing_path);
  }
  return fail(Errc::unavailable, "no loop device could be had in {} attempts", attach_attempts);
}

Status detach_loop(const std::string& device) {
  // Exclusively: clearing a device that is mounted would only be put off to its last close, behind our back.
  auto fd = open_device(device, O_RDONLY | O_EXCL);
  if (!fd) {
    if (fd.error().sys == ENXIO || fd.error().sys == ENOENT) return {};
    if (fd.error().sys == EBUSY) return fail(Errc::unavailable, "{}: still in use (mounted?); it stays attached", device);
    return std::unexpected(fd.error());
  }
  if (::ioctl(fd->get(), LOOP_CLR_FD) != 0 && errno != ENXIO) return fail_errno(errno, "{}: detaching", device);
  fd->reset();
  return await_detached(device, [](const std::string& attribute) { return ::access(attribute.c_str(), F_OK) == 0; });
}

Status await_cleared(const std::string& device, const std::string& backing_path) {
  return await_detached(device, [&](const std::string& attribute) { return read_line(attribute) == backing_path; });
}

void abandon_loop(const std::string& device) {
  // In use elsewhere, the kernel remembers the wish until the last close.
  if (auto fd = open_device(device, O_RDONLY)) (void)::ioctl(fd->get(), LOOP_CLR_FD);
}

std::vector<std::string> loops_of(const std::string& backing_path) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/block", error)) {
    std::string name = entry.path().filename();
    if (name.starts_with("loop") && read_line(entry.path().string() + "/loop/backing_file") == backing_path)
      found.push_back("/dev/" + name);
  }
  std::sort(found.begin(), found.end());
  return found;
}

Status publish_symlink(const std::string& target, const std::string& link) {
  struct stat st {};
  if (::lstat(link.c_str(), &st) == 0 && !S_ISLNK(st.st_mode))
    return fail(Errc::conflict, "{}: exists and is not a symbolic link; nothing was changed", link);
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

}  // namespace twinloft::repl::exports
