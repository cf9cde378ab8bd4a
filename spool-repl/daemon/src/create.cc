// `spool-repl create`: the files of a replica.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/ranges.h>

#include <cerrno>
#include <initializer_list>
#include <utility>

#include "contents.h"
#include "twinloft/base/durable.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/log.h"
#include "twinloft/base/random.h"
#include "twinloft/spool-repl/daemon/volume_runner.h"
#include "twinloft/spool-repl/io/direct_file.h"
#include "twinloft/spool-repl/journal/aligned.h"
#include "twinloft/spool-repl/journal/create.h"

namespace twinloft::repl::daemon {

namespace {

// A file or device that becomes a part of a replica. A new file is removed again, unless it is kept.
struct Opened {
  io::DirectFile file;
  bool fresh = false;   // made or filled here, so that it reads as zeros
  bool made = false;    // did not exist
  bool filled = false;  // existed, and was empty

  Opened() = default;
  Opened(Opened&& o) noexcept
      : file(std::move(o.file)),
        fresh(o.fresh),
        made(std::exchange(o.made, false)),
        filled(std::exchange(o.filled, false)) {}
  Opened& operator=(Opened&& o) noexcept {
    std::swap(file, o.file), std::swap(fresh, o.fresh), std::swap(made, o.made), std::swap(filled, o.filled);
    return *this;
  }
  ~Opened() {
    if (made)
      ::unlink(file.path.c_str());
    else if (filled && ::truncate(file.path.c_str(), 0) != 0)
      log_warning("{}: cannot be made empty again", file.path);
  }
  void keep() { made = filled = false; }
};

Status make_file(const std::string& path, std::uint64_t bytes, const char* what) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return fail_errno(errno, "cannot make the {} {}", what, path);
  if (int rc = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)); rc != 0) {
    if (::ftruncate(fd.get(), 0) != 0) return fail_errno(errno, "{}: cannot be made empty again", path);
    return fail_errno(rc, "cannot reserve {} MiB for the {} {}", bytes >> 20, what, path);
  }
  if (Status synced = sync_durably(fd.get()); !synced)
    return fail(synced.error().code, "{}: {}", path, synced.error().message);
  return {};
}

// A block device is used if no other program uses it. A file is made, and an existing file with content is
// refused.
Result<Opened> open_or_make(const std::string& path, std::uint64_t bytes, const char* what) {
  struct stat st{};
  bool exists = ::stat(path.c_str(), &st) == 0;
  if (exists && !S_ISBLK(st.st_mode) && st.st_size > 0)
    return fail(Errc::conflict,
                "{}: the file exists, and `create` never overwrites a file. Move it away first to make this "
                "volume's {} again",
                path, what);
  Opened out;
  out.file.path = path;
  out.made = !exists;
  out.fresh = !exists || !S_ISBLK(st.st_mode);
  if (out.fresh) TL_TRY(make_file(path, bytes, what));
  out.filled = out.fresh && !out.made;
  TL_TRY_ASSIGN(out.file, io::open_direct(path, io::Access::read_write));
  return out;
}

// A device is used with its size. A file is made with the configured size.
Result<std::uint64_t> journal_bytes_of(const VolumeSettings& s) {
  struct stat st{};
  if (::stat(s.journal.c_str(), &st) != 0 || !S_ISBLK(st.st_mode)) return s.journal_size;
  TL_TRY_ASSIGN(io::DirectFile device, io::open_direct(s.journal, io::Access::read_only));
  return device.size_bytes;
}

// The content that `create` would overwrite: "/dev/sdb holds a file system (ext4), a partition table (dos)".
// Empty: none.
struct Losses {
  std::string text;
  bool ours = false;  // is_ours()
};
Result<Losses> losses_at(const Opened& place, const VolumeSettings& s) {
  if (place.fresh) return Losses{};
  TL_TRY_ASSIGN(std::vector<std::string> found, contents_of(place.file.path, s.size));
  if (found.empty()) return Losses{};
  return Losses{fmt::format("{} holds {}", place.file.path, fmt::join(found, ", ")), is_ours(found)};
}

// Both places are checked before either is written to.
Status permit(std::initializer_list<const Opened*> places, const VolumeSettings& s, const CreateOptions& o) {
  std::string all, keep;
  for (const Opened* place : places) {
    TL_TRY_ASSIGN(Losses losses, losses_at(*place, s));
    if (losses.text.empty()) continue;
    all += (all.empty() ? "" : "; ") + losses.text;
    if (place->file.path == s.data && !losses.ours)
      keep = ". To keep the data area's content as the volume's: spool-repl create " + s.name + " --adopt";
  }
  if (all.empty()) return {};
  if (!o.overwrite)
    return fail(Errc::conflict,
                "{}. Nothing was changed. To destroy that: spool-repl create {}{} --overwrite{}", all, s.name,
                o.adopt ? " --adopt" : "", keep);
  for (const Opened* place : places)
    if (!place->fresh) TL_TRY(wipe_signatures(place->file.path));
  return {};
}

// An adopted device or file: it must exist, and no program may write to it.
Result<Opened> open_to_adopt(const VolumeSettings& s) {
  struct stat st{};
  if (::stat(s.data.c_str(), &st) != 0) return fail_errno(errno, "{}: there is nothing to adopt", s.data);
  // O_EXCL fails on a block device that is mounted or otherwise in use. The descriptor is closed before the
  // device is opened for its use.
  if (Fd alone(::open(s.data.c_str(), O_RDWR | O_CLOEXEC | (S_ISBLK(st.st_mode) ? O_EXCL : 0))); !alone)
    return fail_errno(errno, "{}: in use: unmount it first", s.data);
  if (!S_ISBLK(st.st_mode)) {
    if (std::string loop = loop_device_on(s.data); !loop.empty())
      return fail(Errc::conflict, "{}: in use as {}: unmount it and detach the loop device first", s.data,
                  loop);
  }
  Opened out;
  TL_TRY_ASSIGN(out.file, io::open_direct(s.data, io::Access::read_write));
  if (out.file.size_bytes % block_size != 0)
    return fail(Errc::invalid, "{}: {} bytes, which is not a multiple of 4096", s.data, out.file.size_bytes);
  if (s.size != 0 && s.size != out.file.size_bytes)
    return fail(Errc::conflict,
                "{}: {} bytes, and volume.{}.size says {}: an adopted device or file becomes the volume as a "
                "whole. Remove `size`, or correct it",
                s.data, out.file.size_bytes, s.name, s.size);
  return out;
}

// Parts of spool-repl are not adopted as a volume's content.
Status check_adoptable(const Opened& data, const VolumeSettings& s) {
  TL_TRY_ASSIGN(std::vector<std::string> found, contents_of(s.data, data.file.size_bytes));
  if (!is_ours(found)) return {};
  return fail(Errc::conflict, "{}: holds {} already", s.data, fmt::join(found, ", "));
}

Result<std::string> adopt_volume(const VolumeSettings& s, const CreateOptions& o) {
  TL_TRY_ASSIGN(Opened data, open_to_adopt(s));
  OsRandom random;
  Hash128 beginning;
  beginning.bytes = Uuid::generate(random).bytes;
  journal::CreateOptions options{Uuid::parse(s.uuid).value(), s.replica, data.file.size_bytes / block_size,
                                 false, journal::Adoption{{1, Uuid::generate(random)}, beginning}};
  TL_TRY_ASSIGN(std::uint64_t journal_bytes, journal_bytes_of(s));
  TL_TRY(journal::plan_layout(options, journal_bytes));
  TL_TRY(check_adoptable(data, s));
  TL_TRY_ASSIGN(Opened journal, open_or_make(s.journal, s.journal_size, "journal"));
  TL_TRY(permit({&journal}, s, o));
  io::OsBlockFile journal_file(journal.file), data_file(data.file);
  TL_TRY_ASSIGN(Superblock sb, journal::create_replica(options, journal_file, data_file, false));
  journal.keep();
  TL_TRY(sync_parent_durably(s.journal));
  return fmt::format(
      "volume {} replica {}: {} with its content, {} MiB, and a journal of {} MiB in {}\n"
      "Mount the volume's device from now on, never {} itself. Create the other replicas without --adopt: "
      "they get their content from this replica, so promote this replica first\n",
      s.name, s.replica, s.data, data.file.size_bytes >> 20, sb.ring_bytes >> 20, s.journal, s.data);
}

}  // namespace

Result<std::string> create_volume(const VolumeSettings& s, const CreateOptions& o) {
  if (s.uuid.empty()) {
    OsRandom random;
    return fail(Errc::invalid,
                "volume.{}.uuid is missing. Put this line into the configuration of every replica of "
                "the volume: uuid = \"{}\"",
                s.name, Uuid::generate(random).text());
  }
  if (Uuid::parse(s.uuid).value().is_nil())
    return fail(Errc::invalid, "volume.{}.uuid: the nil UUID is not allowed: uuidgen prints a new one",
                s.name);
  if (o.adopt) return adopt_volume(s, o);
  if (s.size == 0) return fail(Errc::invalid, "volume.{}.size is missing", s.name);
  journal::CreateOptions options{Uuid::parse(s.uuid).value(), s.replica, s.size / block_size, false,
                                 std::nullopt};
  TL_TRY_ASSIGN(std::uint64_t journal_bytes, journal_bytes_of(s));
  TL_TRY(journal::plan_layout(options, journal_bytes));  // before a file is made
  TL_TRY_ASSIGN(Opened data, open_or_make(s.data, s.size + block_size, "data area"));
  TL_TRY_ASSIGN(Opened journal, open_or_make(s.journal, s.journal_size, "journal"));
  if (data.file.size_bytes < s.size)
    return fail(Errc::invalid, "{}: {} bytes, and volume.{}.size says {}. Nothing was changed", s.data,
                data.file.size_bytes, s.name, s.size);
  TL_TRY(permit({&data, &journal}, s, o));
  io::OsBlockFile journal_file(journal.file), data_file(data.file);
  // A label needs a block after the volume. A device without such a block has no label.
  options.data_label = data.file.size_bytes >= s.size + block_size;
  TL_TRY_ASSIGN(Superblock sb, journal::create_replica(options, journal_file, data_file, !data.fresh));
  data.keep(), journal.keep();
  TL_TRY(sync_parent_durably(s.data));
  TL_TRY(sync_parent_durably(s.journal));
  return fmt::format("volume {} replica {}: {} MiB of data in {}, a journal of {} MiB in {}\n", s.name,
                     s.replica, s.size >> 20, s.data, sb.ring_bytes >> 20, s.journal);
}

}  // namespace twinloft::repl::daemon
