#include "contents.h"

#include <blkid/blkid.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>

#include "twinloft/base/durable.h"
#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/io/direct_file.h"
#include "twinloft/spool-repl/journal/aligned.h"
#include "twinloft/spool-repl/journal/superblock_store.h"

namespace twinloft::repl::daemon {

namespace {

using Probe = std::unique_ptr<blkid_struct_probe, decltype(&blkid_free_probe)>;

std::string value_of(blkid_probe probe, const char* name) {
  const char* value = nullptr;
  return blkid_probe_lookup_value(probe, name, &value, nullptr) == 0 && value ? value : "";
}

// Searches as wipefs(8) does: also finds damaged signatures, and a GPT without a protective MBR.
Result<Probe> probe_of(int fd, const std::string& path) {
  Probe probe(blkid_new_probe(), &blkid_free_probe);
  if (!probe || blkid_probe_set_device(probe.get(), fd, 0, 0) != 0)
    return fail_errno(errno != 0 ? errno : EIO, "{}: cannot be searched for a file system", path);
  blkid_probe_enable_superblocks(probe.get(), 1);
  blkid_probe_set_superblocks_flags(probe.get(), BLKID_SUBLKS_TYPE | BLKID_SUBLKS_USAGE | BLKID_SUBLKS_LABEL |
                                                     BLKID_SUBLKS_MAGIC | BLKID_SUBLKS_BADCSUM);
  blkid_probe_enable_partitions(probe.get(), 1);
  blkid_probe_set_partitions_flags(probe.get(), BLKID_PARTS_MAGIC | BLKID_PARTS_FORCE_GPT);
  return probe;
}

// The label of an unknown device is printed on a terminal, so unprintable characters are replaced.
std::string printable(std::string text) {
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

std::string named(blkid_probe probe) {
  std::string type = value_of(probe, "TYPE"), usage = value_of(probe, "USAGE"),
              label = printable(value_of(probe, "LABEL"));
  std::string of_label = label.empty() ? "" : fmt::format(", label \"{}\"", label);
  if (type.empty()) return fmt::format("a partition table ({})", value_of(probe, "PTTYPE"));
  if (usage == "filesystem") return fmt::format("a file system ({}{})", type, of_label);
  if (usage == "raid") return fmt::format("a member of a RAID, volume group or DRBD ({}{})", type, of_label);
  if (usage == "crypto") return fmt::format("an encrypted volume ({}{})", type, of_label);
  return fmt::format("{}{}", type, of_label);
}

Status find_signatures(const std::string& path, std::vector<std::string>& found) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd) return fail_errno(errno, "{}", path);
  TL_TRY_ASSIGN(Probe probe, probe_of(fd.get(), path));
  int rc = 1;
  while ((rc = blkid_do_probe(probe.get())) == 0) found.push_back(named(probe.get()));
  if (rc < 0) return fail_errno(errno != 0 ? errno : EIO, "{}: searching for a file system failed", path);
  return {};
}

// Also finds a damaged journal, and a journal of a newer version.
Status find_journal(io::OsBlockFile& file, std::vector<std::string>& found) {
  auto old = journal::read_superblock(file);
  if (old)
    found.push_back(fmt::format("the journal of volume {} replica {}", old->superblock.volume.text(),
                                old->superblock.replica));
  else if (old.error().code == Errc::invalid || old.error().code == Errc::corrupt)
    found.push_back(fmt::format("a journal of spool-repl ({})", old.error().message));
  else if (old.error().code != Errc::not_found)
    return std::unexpected(old.error());
  return {};
}

// The label is at the end of the volume. False: no label. Errors: of the read.
Result<bool> find_label(io::OsBlockFile& file, std::uint64_t at, std::vector<std::string>& found) {
  journal::AlignedBuffer block(block_size);
  TL_TRY(file.read(at, block.span()));
  auto label = decode_data_label(block.span());
  if (!label) return false;
  found.push_back(fmt::format("the data area of volume {} replica {}", label->volume.text(), label->replica));
  return true;
}

Status find_data_area(io::OsBlockFile& file, std::uint64_t volume_bytes, std::vector<std::string>& found) {
  if (file.size_bytes() < block_size) return {};
  std::uint64_t last = file.size_bytes() / block_size * block_size - block_size;
  for (std::uint64_t at : {volume_bytes, last}) {
    if (at > last || at % block_size != 0) continue;
    TL_TRY_ASSIGN(bool there, find_label(file, at, found));
    if (there) return {};
  }
  return {};
}

// For a volume of another size: searches at likely sizes, which are whole MiB at first, and whole GiB later.
Status find_data_area_of_another_size(io::OsBlockFile& file, std::vector<std::string>& found) {
  constexpr std::uint64_t mib = 1u << 20, gib = 1u << 30;
  for (std::uint64_t at = mib; at + block_size <= file.size_bytes(); at += at < gib ? mib : gib) {
    TL_TRY_ASSIGN(bool there, find_label(file, at, found));
    if (there) return {};
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> contents_of(const std::string& path, std::uint64_t volume_bytes) {
  std::vector<std::string> found;
  TL_TRY_ASSIGN(io::DirectFile opened, io::open_direct(path, io::Access::read_only));
  io::OsBlockFile file(opened);
  TL_TRY(find_journal(file, found));
  TL_TRY(find_data_area(file, volume_bytes, found));
  TL_TRY(find_signatures(path, found));
  if (found.empty()) TL_TRY(find_data_area_of_another_size(file, found));
  return found;
}

bool is_ours(const std::vector<std::string>& found) {
  for (const std::string& what : found)
    if (what.starts_with("the data area") || what.starts_with("the journal") || what.starts_with("a journal"))
      return true;
  return false;
}

Status wipe_signatures(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY));
  if (!fd) return fail_errno(errno, "{}", path);
  TL_TRY_ASSIGN(Probe probe, probe_of(fd.get(), path));
  int rc = 1;
  while ((rc = blkid_do_probe(probe.get())) == 0)
    if (blkid_do_wipe(probe.get(), 0) != 0)
      return fail_errno(errno != 0 ? errno : EIO, "{}: {} cannot be erased", path, named(probe.get()));
  Status synced = rc < 0 ? fail_errno(errno != 0 ? errno : EIO, "erasing the signatures")
                         : sync_durably(fd.get());
  if (!synced) return fail(synced.error().code, "{}: {}", path, synced.error().message);
  return {};
}

namespace {

// Compares the inodes, since the name of the backing file may be gone, or name another file in this mount
// namespace.
bool is_attached_to(const std::string& device, const struct stat& file) {
  Fd fd(::open(device.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  loop_info64 info{};
  return fd && ::ioctl(fd.get(), LOOP_GET_STATUS64, &info) == 0 && info.lo_device == file.st_dev &&
         info.lo_inode == file.st_ino;
}

}  // namespace

std::string loop_device_on(const std::string& path) {
  struct stat file{};
  if (::stat(path.c_str(), &file) != 0) return "";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/block", error)) {
    std::string name = entry.path().filename();
    if (!name.starts_with("loop")) continue;
    auto text = read_file(entry.path().string() + "/loop/backing_file", 1 << 16);
    if (!text) continue;
    while (text->ends_with('\n')) text->pop_back();
    struct stat st{};
    bool by_name = ::stat(text->c_str(), &st) == 0 && st.st_dev == file.st_dev && st.st_ino == file.st_ino;
    if (by_name || is_attached_to("/dev/" + name, file)) return "/dev/" + name;
  }
  return "";
}

}  // namespace twinloft::repl::daemon
