// The implementation with the kernel's ublk driver.
#include <fcntl.h>
#include <liburing.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "driver.h"
#include "twinloft/base/check.h"
#include "twinloft/spool-repl/export/ublk_export.h"

namespace twinloft::repl::ublk {

namespace {

constexpr unsigned control_entries = 4;
constexpr std::size_t command_offset = 48;  // of the command in an entry of 128 bytes (io_uring's UAPI)
constexpr std::uint64_t cancel_mark = 1ull << 63;
constexpr std::size_t page = 4096;

std::unexpected<Error> unavailable_errno(int sys, std::string text) {
  auto error = fail_errno_text(sys, std::move(text));
  error.error().code = Errc::unavailable;
  return error;
}

class Ring {
 public:
  ~Ring() {
    if (open_) io_uring_queue_exit(&ring_);
  }
  Status open(unsigned entries, unsigned flags) {
    int rc = io_uring_queue_init(entries, &ring_, flags | IORING_SETUP_SQE128);
    if (rc < 0)
      return unavailable_errno(
          -rc, "ublk: io_uring with large entries (Linux 5.19; sysctl kernel.io_uring_disabled must be 0)");
    open_ = true;
    return {};
  }
  explicit operator bool() const { return open_; }
  io_uring* get() { return &ring_; }

  // The ring has an entry for each command that can be in flight.
  template <class Command>
  void push(int fd, std::uint32_t op, const Command& command, std::uint64_t user_data) {
    io_uring_sqe* e = entry();
    std::memset(e, 0, 128);
    e->opcode = IORING_OP_URING_CMD;
    e->fd = fd;
    e->cmd_op = op;
    e->user_data = user_data;
    std::memcpy(reinterpret_cast<std::byte*>(e) + command_offset, &command, sizeof command);
  }
  io_uring_sqe* entry() {
    io_uring_sqe* e = io_uring_get_sqe(&ring_);
    TL_CHECK_MSG(e != nullptr, "ublk: a ring has no entry left");
    return e;
  }

 private:
  io_uring ring_{};
  bool open_ = false;
};

class KernelQueue final : public Queue {
 public:
  ~KernelQueue() override {
    if (descriptors_ != nullptr) ::munmap(descriptors_, descriptor_bytes_);
  }
  Status open(Fd device, unsigned depth) {
    device_ = std::move(device);
    event_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event_) return fail_errno(errno, "ublk: eventfd");
    descriptor_bytes_ = (depth * sizeof(uapi::IoDescriptor) + page - 1) / page * page;
    void* mapped = ::mmap(nullptr, descriptor_bytes_, PROT_READ, MAP_SHARED | MAP_POPULATE, device_.get(), 0);
    if (mapped == MAP_FAILED) return fail_errno(errno, "ublk: the request descriptors cannot be mapped");
    descriptors_ = mapped;
    // The loop enters the kernel in each turn, so requests need no interrupt.
    TL_TRY(ring_.open(depth, IORING_SETUP_COOP_TASKRUN));
    if (int rc = io_uring_register_eventfd(ring_.get(), event_.get()); rc < 0)
      return fail_errno(-rc, "ublk: eventfd of a ring");
    return {};
  }

  int event_fd() const override { return event_.get(); }
  uapi::IoDescriptor descriptor(unsigned tag) const override {
    uapi::IoDescriptor d;
    std::memcpy(&d, static_cast<const std::byte*>(descriptors_) + tag * sizeof d, sizeof d);
    return d;
  }
  void push(std::uint32_t op, const uapi::IoCommand& command) override {
    ring_.push(device_.get(), op, command, command.tag);
  }
  int submit() override {
    int rc = io_uring_submit(ring_.get());
    if (rc < 0) return rc;
    return io_uring_sq_ready(ring_.get()) == 0 ? 0 : -EAGAIN;
  }
  std::size_t reap(std::span<Completion> out) override {
    std::array<io_uring_cqe*, 64> found;
    unsigned n = io_uring_peek_batch_cqe(ring_.get(), found.data(),
                                         static_cast<unsigned>(std::min(found.size(), out.size())));
    for (unsigned i = 0; i < n; ++i) out[i] = {found[i]->user_data, found[i]->res};
    io_uring_cq_advance(ring_.get(), n);
    return n;
  }

 private:
  Fd device_, event_;
  void* descriptors_ = nullptr;
  std::size_t descriptor_bytes_ = 0;
  Ring ring_;  // destroyed first
};

// "fio (812)" if the process has `node` open.
std::string user_of(const std::filesystem::path& process, const std::string& node) {
  std::error_code error;
  for (const auto& open : std::filesystem::directory_iterator(process / "fd", error)) {
    // Only the text of the link is read: accessing the file could wait for a file system without a server.
    std::error_code unread;
    if (std::filesystem::read_symlink(open.path(), unread) != node) continue;
    auto name = read_file(process / "comm", 64);
    while (name && name->ends_with('\n')) name->pop_back();
    return fmt::format("{} ({})", name ? *name : "?", process.filename().string());
  }
  return "";
}

class KernelDriver final : public Driver {
 public:
  explicit KernelDriver(std::string control) : control_path_(std::move(control)) {}

  Status open() override {
    if (control_) return {};
    Fd fd(::open(control_path_.c_str(), O_RDWR | O_CLOEXEC));
    if (!fd && (errno == ENOENT || errno == ENXIO || errno == ENODEV))
      return unavailable_errno(
          errno,
          control_path_ +
              ": no ublk here (is the kernel module \"ublk_drv\" loaded? Linux 6.0 and later have it)");
    if (!fd) return fail_errno(errno, "{}", control_path_);
    if (!ring_) TL_TRY(ring_.open(control_entries, 0));
    control_ = std::move(fd);
    return {};
  }

  int control(std::uint32_t op, const uapi::ControlCommand& command,
              const std::atomic<bool>& give_up) override {
    std::uint64_t id = ++last_;
    ring_.push(control_.get(), op, command, id);
    if (int rc = io_uring_submit(ring_.get()); rc < 0) return rc;
    bool cancelled = false;
    for (;;) {
      __kernel_timespec slice{0, 100'000'000};
      io_uring_cqe* done = nullptr;
      int rc = io_uring_wait_cqe_timeout(ring_.get(), &done, &slice);
      if (rc == 0) {
        std::uint64_t whose = done->user_data;
        int outcome = done->res;
        io_uring_cqe_seen(ring_.get(), done);
        if (whose == id) return outcome;
      } else if (rc != -ETIME && rc != -EINTR && rc != -EAGAIN) {
        return rc;
      }
      if (give_up && !std::exchange(cancelled, true)) {
        io_uring_sqe* e = ring_.entry();
        std::memset(e, 0, 128);
        io_uring_prep_cancel64(e, id, 0);
        io_uring_sqe_set_data64(e, cancel_mark);
        (void)io_uring_submit(ring_.get());
      }
    }
  }

  std::vector<unsigned> devices() override {
    std::vector<unsigned> found;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/sys/class/ublk-char", error)) {
      std::string name = entry.path().filename();
      unsigned id = 0;
      if (!name.starts_with("ublkc")) continue;
      auto [end, ec] = std::from_chars(name.data() + 5, name.data() + name.size(), id);
      if (ec == std::errc() && end == name.data() + name.size()) found.push_back(id);
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  Result<Fd> open_char(unsigned id) override {
    std::string path = fmt::format("/dev/ublkc{}", id);
    Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (fd) return fd;
    int sys = errno;
    auto error = fail_errno(sys, "{}: the queue of a ublk device", path);
    if (sys == ENOENT || sys == ENXIO || sys == ENODEV) error.error().code = Errc::not_found;
    if (sys == EBUSY) error.error().code = Errc::unavailable;
    return error;
  }

  bool has_node(const std::string& block_device) override {
    struct stat st{};
    return ::stat(block_device.c_str(), &st) == 0 && S_ISBLK(st.st_mode);
  }

  Result<Fd> claim(const std::string& block_device) override {
    Fd fd(::open(block_device.c_str(), O_RDONLY | O_EXCL | O_CLOEXEC));
    if (fd) return fd;
    if (errno == EBUSY) return fail(Errc::unavailable, "{}: still in use (mounted?); it stays", block_device);
    int sys = errno;
    auto error = fail_errno(sys, "{}", block_device);
    if (sys == ENOENT || sys == ENXIO || sys == ENODEV) error.error().code = Errc::not_found;
    return error;
  }

  std::string users(const std::string& block_device) override {
    std::string found, own = std::to_string(::getpid());
    std::error_code error;
    for (const auto& process : std::filesystem::directory_iterator("/proc", error)) {
      std::string name = process.path().filename();
      if (name.empty() || name[0] < '0' || name[0] > '9' || name == own) continue;
      if (std::string user = user_of(process.path(), block_device); !user.empty())
        found += (found.empty() ? "" : ", ") + user;
    }
    return found;
  }

  void pause() override {
    constexpr timespec time{0, 1'000'000'000 / pauses_a_second};
    ::nanosleep(&time, nullptr);
  }

  Result<std::unique_ptr<Queue>> open_queue(Fd char_device, unsigned depth) override {
    auto queue = std::make_unique<KernelQueue>();
    TL_TRY(queue->open(std::move(char_device), depth));
    return queue;
  }

 private:
  std::string control_path_;
  Fd control_;
  Ring ring_;
  std::uint64_t last_ = 0;
};

}  // namespace

std::shared_ptr<Driver> kernel_driver(std::string control) {
  return std::make_shared<KernelDriver>(std::move(control));
}

}  // namespace twinloft::repl::ublk
