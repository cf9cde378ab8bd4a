#include "twinloft/lmtpd/spool/data_first.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t proc_bytes_max = 4u << 20;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    std::size_t end = text.find(separator);
    if (end != 0) out.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return out;
}

bool has(std::string_view options, char separator, std::string_view option) {
  for (std::string_view each : split(options, separator))
    if (each == option) return true;
  return false;
}

bool has_key(std::string_view options, std::string_view key) {
  for (std::string_view each : split(options, ','))
    if (each.starts_with(key) && each.substr(key.size()).starts_with('=')) return true;
  return false;
}

DataFirstVerdict judge_ext4(const MountFacts& facts) {
  const std::string& options = facts.ext4_options;
  if (options.empty()) return {false, "ext4, whose options cannot be read in /proc/fs/ext4"};
  if (!facts.internal_journal) return {false, "ext4 without a journal of its own on this device"};
  if (!has(options, '\n', "barrier")) return {false, "ext4 without barriers"};
  for (const char* mode : {"data=ordered", "data=journal"})
    if (has(options, '\n', mode)) return {true, fmt::format("ext4, {}", mode)};
  return {false, "ext4 without data=ordered or data=journal"};
}

DataFirstVerdict judge_xfs(const MountFacts& facts) {
  for (const char* key : {"logdev", "rtdev"})
    if (has_key(facts.super_options, key)) return {false, fmt::format("XFS with {}", key)};
  if (has(facts.super_options, ',', "nobarrier")) return {false, "XFS without barriers"};
  return {true, "XFS"};
}

// "98:0" as st_dev; nullopt: malformed.
std::optional<std::uint64_t> device_number(std::string_view text) {
  unsigned major = 0, minor = 0;
  if (std::sscanf(std::string(text).c_str(), "%u:%u", &major, &minor) != 2) return std::nullopt;
  return ::makedev(major, minor);
}

// Empty: there is no such file, or it could not be read. In the second case `unread` is set.
std::string text_of(const std::string& path, bool& unread) {
  auto text = read_file(path, proc_bytes_max);
  if (!text && text.error().sys != ENOENT) unread = true;
  return text ? *text : std::string();
}

// The kernel's name of a block device, such as "loop0" or "dm-1". Empty: it has none.
std::string device_name(std::uint64_t device) {
  char target[PATH_MAX];
  std::string link = fmt::format("/sys/dev/block/{}:{}", ::gnu_dev_major(device), ::gnu_dev_minor(device));
  ssize_t n = ::readlink(link.c_str(), target, sizeof target);
  std::string_view path(target, n > 0 ? static_cast<std::size_t>(n) : 0);
  std::string name(path.substr(path.rfind('/') + 1));
  for (char& c : name)
    if (c == '!') c = '/';
  return name;
}

// The kernel replaces "/" in the names of these directories by "!".
std::string as_file_name(std::string name) {
  for (char& c : name)
    if (c == '/') c = '!';
  return name;
}

// The journal's inode is 8 (EXT4_JOURNAL_INO).
void find_ext4_facts(std::uint64_t device, MountFacts& facts, bool& unread) {
  const std::string name = as_file_name(device_name(device));
  if (name.empty()) return;
  facts.ext4_options = text_of("/proc/fs/ext4/" + name + "/options", unread);
  facts.internal_journal = ::access(("/proc/fs/jbd2/" + name + "-8").c_str(), F_OK) == 0;
}

DataFirstVerdict ask_kernel(std::uint64_t device, bool& unread) {
  MountFacts facts = find_mount(text_of("/proc/self/mountinfo", unread), device);
  if (facts.type == "ext4") find_ext4_facts(device, facts, unread);
  return judge_data_first(facts);
}

class ByKernel {
 public:
  bool allowed(const SpoolHandle& handle) {
    std::lock_guard lock(mutex_);
    if (mounts_have_changed()) known_.clear();
    auto found = known_.find(handle.device);
    if (found == known_.end()) {
      bool unread = false;
      DataFirstVerdict verdict = ask_kernel(handle.device, unread);
      // Without a descriptor, for example. The next message asks again.
      if (unread) return false;
      found = known_.emplace(handle.device, std::move(verdict)).first;
    }
    if (told_ != found->second) tell(found->second);
    return found->second.allowed;
  }

 private:
  // proc(5): poll reports POLLERR and POLLPRI once for each change of the mounts. The file is opened by the
  // process that delivers, at its first delivery, and not inherited.
  bool mounts_have_changed() {
    if (!mounts_) {
      mounts_ = Fd(::open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC));
      return true;
    }
    pollfd look{mounts_.get(), POLLPRI, 0};
    // A failed poll says nothing of the mounts.
    return ::poll(&look, 1, 0) < 0 || (look.revents & (POLLERR | POLLPRI)) != 0;
  }

  void tell(const DataFirstVerdict& verdict) {
    told_ = verdict;
    if (verdict.allowed)
      log_info("durability: the data of a message first, then one commit for data and name ({})",
               verdict.why);
    else
      log_warning("durability: the file of each message is synced by itself: the spool is on {}",
                  verdict.why);
  }

  std::mutex mutex_;  // for the members below
  Fd mounts_;
  std::map<std::uint64_t, DataFirstVerdict> known_;  // by device
  std::optional<DataFirstVerdict> told_;
};

}  // namespace

DataFirstVerdict judge_data_first(const MountFacts& facts) {
  if (facts.type == "ext4") return judge_ext4(facts);
  if (facts.type == "xfs") return judge_xfs(facts);
  if (facts.type.empty()) return {false, "a file system that /proc/self/mountinfo does not show"};
  return {false, facts.type};
}

// Fields: id, parent, device, root, mount point, options, any number of tags, "-", type, source, super
// options.
MountFacts find_mount(std::string_view mountinfo, std::uint64_t device) {
  for (std::string_view line : split(mountinfo, '\n')) {
    const auto fields = split(line, ' ');
    if (fields.size() < 3 || device_number(fields[2]) != device) continue;
    for (std::size_t i = 6; i + 3 < fields.size(); ++i)
      if (fields[i] == "-") return {std::string(fields[i + 1]), std::string(fields[i + 3]), {}, false};
  }
  return {};
}

DataFirstVerdict find_data_first(std::uint64_t device) {
  bool unread = false;
  return ask_kernel(device, unread);
}

DataFirstRule data_first_by_kernel() {
  return
      [kernel = std::make_shared<ByKernel>()](const SpoolHandle& handle) { return kernel->allowed(handle); };
}

}  // namespace twinloft::lmtpd
