#include "spill_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "twinloft/base/durable.h"
#include "twinloft/base/fd.h"

namespace twinloft::repl::daemon {

namespace {

constexpr std::string_view suffix = ".spill", fresh_suffix = ".spill.new";
constexpr unsigned device_layers_max = 16;

bool is_device_of(dev_t device, const VolumeSettings& s) {
  struct stat st{};
  if (!s.ublk_device.empty() && ::stat(s.ublk_device.c_str(), &st) == 0 && st.st_rdev == device) return true;
  if (s.fuse_file.empty()) return false;
  auto backing = read_file(
      fmt::format("/sys/dev/block/{}:{}/loop/backing_file", major(device), minor(device)), 4096);
  return backing && backing->substr(0, backing->find('\n')) == s.fuse_file;
}

// Some file systems (btrfs, for example) have a device number of their own: the mount's source names the
// device.
std::optional<dev_t> device_below(dev_t number) {
  if (major(number) != 0) return number;
  std::ifstream mounts("/proc/self/mountinfo");
  std::string wanted = fmt::format(" {}:{} ", major(number), minor(number));
  for (std::string line; std::getline(mounts, line);) {
    std::size_t options = line.find(" - ");
    if (options == std::string::npos || line.find(wanted) > options) continue;
    std::istringstream rest(line.substr(options + 3));
    std::string type, source;
    rest >> type >> source;
    struct stat st{};
    if (source.starts_with('/') && ::stat(source.c_str(), &st) == 0 && S_ISBLK(st.st_mode)) return st.st_rdev;
  }
  return std::nullopt;
}

}  // namespace

// ---- files

bool stacks_on(const std::filesystem::path& block, const std::function<bool(dev_t)>& is_own,
               unsigned layers) {
  auto number = read_file((block / "dev").string(), 64);
  unsigned high = 0, low = 0;
  if (number && std::sscanf(number->c_str(), "%u:%u", &high, &low) == 2 && is_own(makedev(high, low)))
    return true;
  if (layers == 0) return false;
  std::error_code failed;
  auto disk = std::filesystem::canonical(block, failed).parent_path();
  if (!failed && std::filesystem::exists(block / "partition", failed) && stacks_on(disk, is_own, layers - 1))
    return true;
  std::filesystem::directory_iterator below(block / "slaves", failed), end;
  for (; !failed && below != end; below.increment(failed))
    if (stacks_on(below->path(), is_own, layers - 1)) return true;
  return false;
}

Status check_spill_device(const std::string& directory, const VolumeSettings& s) {
  struct stat st{};
  if (::stat(directory.c_str(), &st) < 0) return fail_errno(errno, "spill: {}", directory);
  auto device = device_below(st.st_dev);
  if (!device) return {};
  std::string block = fmt::format("/sys/dev/block/{}:{}", major(*device), minor(*device));
  if (stacks_on(block, [&](dev_t each) { return is_device_of(each, s); }, device_layers_max))
    return fail(Errc::invalid, "spill: {} lies on the device that this volume serves: choose another disk",
                directory);
  return {};
}

Result<SpillDirectory> SpillDirectory::open(const VolumeSettings& s) {
  if (::mkdir(s.spill.c_str(), 0700) < 0 && errno != EEXIST) return fail_errno(errno, "spill: {}", s.spill);
  SpillDirectory d{Fd(::open(s.spill.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), s.spill,
                   fmt::format("{}-{}-", s.name, s.replica)};
  if (!d.fd) return fail_errno(errno, "spill: {}", s.spill);
  TL_TRY(check_spill_device(fmt::format("/proc/self/fd/{}/.", d.fd.get()), s));
  return d;
}

std::string SpillDirectory::name_of(std::uint64_t number) const {
  return fmt::format("{}{}{}", prefix, number, suffix);
}

std::vector<std::string> SpillDirectory::names() const {
  std::vector<std::string> out;
  std::error_code failed;
  std::filesystem::directory_iterator at(fmt::format("/proc/self/fd/{}", fd.get()), failed), end;
  for (; !failed && at != end; at.increment(failed))
    if (std::string name = at->path().filename().string(); name.starts_with(prefix))
      out.push_back(std::move(name));
  return out;
}

std::vector<std::uint64_t> SpillDirectory::numbers() const {
  std::vector<std::uint64_t> out;
  for (const std::string& name : names()) {
    if (!name.ends_with(suffix)) continue;
    std::string_view digits = std::string_view(name).substr(prefix.size());
    digits.remove_suffix(suffix.size());
    std::uint64_t number = 0;
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error == std::errc{} && end == digits.data() + digits.size()) out.push_back(number);
  }
  std::sort(out.begin(), out.end());
  return out;
}

void SpillDirectory::drop_others(const std::vector<SpillChunk>& used) const {
  for (std::uint64_t n : numbers())
    if (std::none_of(used.begin(), used.end(), [&](const SpillChunk& c) { return c.number == n; }))
      (void)::unlinkat(fd.get(), name_of(n).c_str(), 0);
  for (const std::string& name : names())
    if (name.ends_with(fresh_suffix)) (void)::unlinkat(fd.get(), name.c_str(), 0);
}

std::vector<SpillChunk> SpillDirectory::find(const Uuid& volume_uuid, ReplicaId replica) const {
  return usable_spill(
      numbers(),
      [&](std::uint64_t number, bool whole) { return read(number, whole ? SIZE_MAX : spill_header_bytes); },
      volume_uuid, replica);
}

Status SpillDirectory::write(std::uint64_t number, ByteSpan bytes) const {
  std::string name = name_of(number), fresh = name + ".new";
  Fd out(::openat(fd.get(), fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!out) return fail_errno(errno, "{}/{}", path, fresh);
  Status written = write_all(out.get(), bytes);
  if (written) written = sync_durably(out.get());
  // The content is not read again soon, and would take the page cache from others.
  if (written) (void)::posix_fadvise(out.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (written && ::renameat(fd.get(), fresh.c_str(), fd.get(), name.c_str()) < 0)
    written = fail_errno(errno, "{}/{}", path, name);
  if (written) written = sync_durably(fd.get());
  if (!written) (void)::unlinkat(fd.get(), fresh.c_str(), 0);
  return written;
}

Result<std::vector<std::byte>> SpillDirectory::read(std::uint64_t number, std::size_t bytes_max) const {
  std::string name = name_of(number);
  Fd in(::openat(fd.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!in) return fail_errno(errno, "{}/{}", path, name);
  struct stat st{};
  if (::fstat(in.get(), &st) < 0) return fail_errno(errno, "{}/{}", path, name);
  std::size_t wanted = std::min({bytes_max, static_cast<std::size_t>(st.st_size),
                                 std::size_t{spill_header_bytes} + spill_chunk_bytes_max});
  std::vector<std::byte> out(wanted);
  for (std::size_t have = 0; have < out.size();) {
    ssize_t n = ::pread(in.get(), out.data() + have, out.size() - have, static_cast<off_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail_errno(n < 0 ? errno : EIO, "{}/{}", path, name);
    have += static_cast<std::size_t>(n);
  }
  return out;
}

Status SpillDirectory::drop_before(std::uint64_t number) const {
  Status first;
  for (std::uint64_t n : numbers()) {
    if (n >= number) break;
    if (::unlinkat(fd.get(), name_of(n).c_str(), 0) < 0 && errno != ENOENT && first)
      first = fail_errno(errno, "{}/{}", path, name_of(n));
  }
  return first;
}

// ---- the thread

SpillStore::SpillStore(ports::Loop& loop, SpillDirectory directory)
    : loop_(loop), directory_(std::move(directory)), thread_([this] { run(); }) {}

SpillStore::~SpillStore() {
  *alive_ = false;
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void SpillStore::add(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  wake_.notify_one();
}

// What has not begun at the end is left out: the spill is a cache.
void SpillStore::run() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return ends_ || !queue_.empty(); });
      if (ends_) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

void SpillStore::finish(std::function<void()> done) {
  loop_.post([alive = alive_, done = std::move(done)] {
    if (*alive) done();
  });
}

void SpillStore::write(core::SpillWrite w, std::function<void(int, const std::string&)> done) {
  add([this, w = std::move(w), done = std::move(done)] {
    Status written = directory_.write(w.number, w.bytes);
    int error = written ? 0 : written.error().sys != 0 ? written.error().sys : EIO;
    finish([done, error, trouble = written ? "" : written.error().message] { done(error, trouble); });
  });
}

void SpillStore::read(const core::SpillRead& r, std::function<void(int, std::vector<std::byte>)> done) {
  add([this, r, done = std::move(done)] {
    auto bytes = directory_.read(r.number);
    int error = bytes ? 0 : bytes.error().sys != 0 ? bytes.error().sys : EIO;
    auto content = std::make_shared<std::vector<std::byte>>(bytes ? std::move(*bytes)
                                                                  : std::vector<std::byte>());
    finish([done, error, content] { done(error, std::move(*content)); });
  });
}

void SpillStore::drop(const core::SpillDrop& d, std::function<void(const std::string&)> failed) {
  add([this, d, failed = std::move(failed)] {
    if (Status dropped = directory_.drop_before(d.before); !dropped)
      finish([failed, trouble = dropped.error().message] { failed(trouble); });
  });
}

}  // namespace twinloft::repl::daemon
