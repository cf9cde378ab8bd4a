// The implementation with the kernel's FUSE.
#include "ring_kernel.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "mount.h"
#include "ring_codec.h"
#include "twinloft/base/check.h"
#include "twinloft/base/fd.h"

namespace twinloft::repl::fuse {

namespace {

constexpr std::size_t command_offset = 48;  // of the command in an entry of 128 bytes (io_uring's UAPI)

std::unexpected<Error> unavailable_errno(int sys, std::string text) {
  auto error = fail_errno_text(sys, std::move(text));
  error.error().code = Errc::unavailable;
  return error;
}

class OsRingKernel final : public RingKernel {
 public:
  OsRingKernel() = default;
  OsRingKernel(Fd connection, std::function<Status()> mounted)
      : connection_(std::move(connection)), mounted_elsewhere_(std::move(mounted)) {}
  ~OsRingKernel() override {
    if (open_) io_uring_queue_exit(&ring_);
  }

  Result<unsigned> queues() const override {
    TL_TRY_ASSIGN(std::string list, read_file("/sys/devices/system/cpu/possible", 4096));
    return numbers_in_list(list);
  }

  Status mount(const std::string& path, std::uint32_t max_read, struct stat& underlying) override {
    if (mounted_elsewhere_) return mounted_elsewhere_();
    TL_TRY(prepare_mount_point(path));
    if (::stat(path.c_str(), &underlying) != 0) return fail_errno(errno, "fuse: mount point {}", path);
    connection_ = Fd(::open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (!connection_) return unavailable_errno(errno, "fuse: /dev/fuse");
    // As libfuse mounts it for operations.cc. noatime avoids an attribute change for each read.
    std::string options = fmt::format("fd={},rootmode={:o},user_id=0,group_id=0,max_read={}",
                                      connection_.get(), underlying.st_mode & S_IFMT, max_read);
    if (::mount("twinloft", path.c_str(), "fuse.twinloft", MS_NOATIME | MS_NOSUID | MS_NODEV,
                options.c_str()) != 0)
      return unavailable_errno(errno, fmt::format("fuse: {}: mounting", path));
    auto top = topmost_mount(path);
    if (top && *top) {
      device_ = (*top)->device;
      return {};
    }
    ::umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
    return fail(Errc::unavailable, "fuse: {}: unmounted by another program", path);
  }
  dev_t device() const override { return device_; }

  Status unmount(const std::string& path) override { return unmount_own(path, device_); }
  void abort(const std::string& path, bool connected) override {
    if (device_ != 0) abort_mount(path, device_, connected);
  }

  int connection_fd() const override { return connection_.get(); }
  ssize_t read(std::span<std::byte> request) override {
    ssize_t got = ::read(connection_.get(), request.data(), request.size());
    return got < 0 ? -errno : got;
  }
  int write(std::span<const iovec> reply) override {
    return ::writev(connection_.get(), reply.data(), static_cast<int>(reply.size())) < 0 ? -errno : 0;
  }

  Status open_ring(unsigned entries) override {
    // The loop enters the kernel in each turn, so requests need no interrupt. One refused command must not
    // hold the next commands back.
    int rc = io_uring_queue_init(entries, &ring_,
                                 IORING_SETUP_SQE128 | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN);
    if (rc < 0)
      return unavailable_errno(
          -rc, "fuse: io_uring with large entries (sysctl kernel.io_uring_disabled must be 0)");
    open_ = true;
    return {};
  }
  int ring_fd() const override { return ring_.ring_fd; }
  void push(uapi::RingCommand command, std::uint64_t tag, const uapi::CommandArea& area,
            std::span<const iovec, 2> buffers) override {
    io_uring_sqe* e = io_uring_get_sqe(&ring_);
    TL_CHECK_MSG(e != nullptr, "fuse: the ring has no entry left");
    std::memset(e, 0, 128);
    e->opcode = IORING_OP_URING_CMD;
    e->fd = connection_.get();
    e->cmd_op = command;
    e->user_data = tag;
    if (command == uapi::command_register) {
      e->addr = reinterpret_cast<std::uint64_t>(buffers.data());
      e->len = static_cast<std::uint32_t>(buffers.size());
    }
    std::memcpy(reinterpret_cast<std::byte*>(e) + command_offset, &area, sizeof area);
  }
  int submit() override {
    int rc = io_uring_submit(&ring_);
    if (rc < 0) return rc;
    return io_uring_sq_ready(&ring_) == 0 ? 0 : -EAGAIN;
  }
  std::size_t reap(std::span<RingCompletion> out) override {
    std::array<io_uring_cqe*, 64> found;
    unsigned n = io_uring_peek_batch_cqe(&ring_, found.data(),
                                         static_cast<unsigned>(std::min(found.size(), out.size())));
    for (unsigned i = 0; i < n; ++i) out[i] = {found[i]->user_data, found[i]->res};
    io_uring_cq_advance(&ring_, n);
    return n;
  }
  void wait(Duration at_most) override {
    __kernel_timespec time{at_most.count() / 1'000'000'000, at_most.count() % 1'000'000'000};
    io_uring_cqe* done = nullptr;
    (void)io_uring_wait_cqe_timeout(&ring_, &done, &time);
  }

 private:
  Fd connection_;
  std::function<Status()> mounted_elsewhere_;
  dev_t device_ = 0;
  io_uring ring_{};
  bool open_ = false;  // the ring is closed before the connection
};

}  // namespace

std::unique_ptr<RingKernel> os_ring_kernel() {
  return std::make_unique<OsRingKernel>();
}

std::unique_ptr<RingKernel> os_ring_kernel(Fd connection, std::function<Status()> mounted) {
  return std::make_unique<OsRingKernel>(std::move(connection), std::move(mounted));
}

}  // namespace twinloft::repl::fuse
