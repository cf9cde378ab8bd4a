// `spool-repl create`: the files of a replica.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "twinloft/base/fd.h"
#include "twinloft/base/random.h"
#include "twinloft/spool-repl/daemon/volume_runner.h"
#include "twinloft/spool-repl/io/direct_file.h"
#include "twinloft/spool-repl/journal/aligned.h"
#include "twinloft/spool-repl/journal/create.h"
#include "twinloft/spool-repl/journal/superblock_store.h"

namespace twinloft::repl::daemon {

namespace {

struct Opened {
  io::DirectFile file;
  bool fresh = false;  // made here: reads as zeros
};

// A block device is used as it is; a file is made, and never taken over.
Result<Opened> open_or_make(const std::string& path, std::uint64_t bytes, const char* what) {
  struct stat st{};
  bool exists = ::stat(path.c_str(), &st) == 0;
  if (exists && !S_ISBLK(st.st_mode) && st.st_size > 0)
    return fail(Errc::conflict, "{}: there is a file already. `create` never overwrites one: move it away if this "
                "volume's {} is to be made anew", path, what);
  Opened out;
  if (!exists || !S_ISBLK(st.st_mode)) {
    Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd) return fail_errno(errno, "cannot make the {} {}", what, path);
    if (int rc = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)); rc != 0) {
      ::unlink(path.c_str());
      return fail_errno(rc, "cannot reserve {} MiB for the {} {}", bytes >> 20, what, path);
    }
    if (::fsync(fd.get()) < 0) return fail_errno(errno, "{}", path);
    out.fresh = true;
  }
  TL_TRY_ASSIGN(out.file, io::open_direct(path, io::Access::read_write));
  return out;
}

// A device is used with the size that it has; a file is made with the one that is configured.
Result<std::uint64_t> journal_bytes_of(const VolumeSettings& s) {
  struct stat st{};
  if (::stat(s.journal.c_str(), &st) != 0 || !S_ISBLK(st.st_mode)) return s.journal_size;
  TL_TRY_ASSIGN(io::DirectFile device, io::open_direct(s.journal, io::Access::read_only));
  return device.size_bytes;
}

// The names of new files must survive a crash too.
Status sync_parent(const std::string& path) {
  std::string parent = path.substr(0, path.rfind('/') + 1);
  Fd fd(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) < 0) return fail_errno(errno, "{}", parent);
  return {};
}

// A device whose journal was lost still holds a volume: creating it anew would zero it.
Status check_not_a_data_area(io::OsBlockFile& data, const VolumeSettings& s) {
  std::uint64_t last = data.size_bytes() / block_size * block_size;
  for (std::uint64_t at : {s.size, last - block_size}) {
    if (at + block_size > data.size_bytes()) continue;
    journal::AlignedBuffer block(block_size);
    TL_TRY(data.read(at, block.span()));
    auto label = decode_data_label(block.span());
    if (label)
      return fail(Errc::conflict, "{}: is the data area of volume {} replica {}, and `create` would zero it. If that is meant, "
                  "wipe its label first: dd if=/dev/zero of={} bs=4096 seek={} count=1", s.data, label->volume.text(),
                  label->replica, s.data, at / block_size);
  }
  return {};
}

Status check_no_journal(io::OsBlockFile& journal, const VolumeSettings& s) {
  auto old = journal::load_superblock(journal);
  if (!old && old.error().code == Errc::invalid)
    return fail(Errc::conflict, "{}: {}. `create` never overwrites one", s.journal, old.error().message);
  if (!old) return {};
  return fail(Errc::conflict, "{}: holds the journal of volume {} replica {}. `create` never overwrites one: wipe it "
              "first (dd if=/dev/zero of={} bs=1M count=1) if that is meant", s.journal, old->superblock.volume.text(),
              old->superblock.replica, s.journal);
}

// Name of the loop device that this file is attached to; empty: none.
Result<std::string> loop_device_of(const struct stat& file) {
  for (int n = 0; n < 256; ++n) {
    auto text = read_file(fmt::format("/sys/block/loop{}/loop/backing_file", n), 4096);
    if (!text) continue;
    while (!text->empty() && text->back() == '\n') text->pop_back();
    struct stat st{};
    if (::stat(text->c_str(), &st) == 0 && st.st_dev == file.st_dev && st.st_ino == file.st_ino)
      return fmt::format("/dev/loop{}", n);
  }
  return std::string();
}

// Taken over in place: it must be there, and nobody may be writing to it.
Result<Opened> open_to_adopt(const VolumeSettings& s) {
  struct stat st{};
  if (::stat(s.data.c_str(), &st) != 0) return fail_errno(errno, "{}: there is nothing to adopt", s.data);
  // On a block device O_EXCL fails while it is mounted or otherwise in use: let go of before it is opened for good.
  if (Fd alone(::open(s.data.c_str(), O_RDWR | O_CLOEXEC | (S_ISBLK(st.st_mode) ? O_EXCL : 0))); !alone)
    return fail_errno(errno, "{}: cannot be had alone: unmount it first", s.data);
  if (!S_ISBLK(st.st_mode)) {
    TL_TRY_ASSIGN(std::string loop, loop_device_of(st));
    if (!loop.empty())
      return fail(Errc::conflict, "{}: in use as {}: unmount it and detach the loop device first", s.data, loop);
  }
  Opened out;
  TL_TRY_ASSIGN(out.file, io::open_direct(s.data, io::Access::read_write));
  if (out.file.size_bytes % block_size != 0)
    return fail(Errc::invalid, "{}: {} bytes, which is no multiple of 4096", s.data, out.file.size_bytes);
  if (s.size != 0 && s.size != out.file.size_bytes)
    return fail(Errc::conflict, "{}: {} bytes, and volume.{}.size says {}: the volume is all of what is adopted. Leave `size` out, or "
                "correct it", s.data, out.file.size_bytes, s.name, s.size);
  return out;
}

Result<std::string> adopt_volume(const VolumeSettings& s) {
  TL_TRY_ASSIGN(Opened data, open_to_adopt(s));
  OsRandom random;
  Hash128 beginning;
  beginning.bytes = Uuid::generate(random).bytes;
  journal::CreateOptions options{Uuid::parse(s.uuid).value(), s.replica, data.file.size_bytes / block_size, false,
                                 journal::Adoption{{1, Uuid::generate(random)}, beginning}};
  TL_TRY_ASSIGN(std::uint64_t journal_bytes, journal_bytes_of(s));
  TL_TRY(journal::plan_layout(options, journal_bytes));
  io::OsBlockFile data_file(data.file);
  if (data.file.size_bytes >= block_size) {
    journal::AlignedBuffer last(block_size);
    TL_TRY(data_file.read(data.file.size_bytes - block_size, last.span()));
    if (auto label = decode_data_label(last.span()); label)
      return fail(Errc::conflict, "{}: is the data area of volume {} replica {} already", s.data, label->volume.text(), label->replica);
  }
  TL_TRY_ASSIGN(Opened journal, open_or_make(s.journal, s.journal_size, "journal"));
  io::OsBlockFile journal_file(journal.file);
  TL_TRY(check_no_journal(journal_file, s));
  TL_TRY_ASSIGN(Superblock sb, journal::create_replica(options, journal_file, data_file, false));
  TL_TRY(sync_parent(s.journal));
  return fmt::format("volume {} replica {}: {} with its content, {} MiB, and a journal of {} MiB in {}\n"
                     "Mount the volume's device from now on, never {} itself. Create the other replicas without --adopt: they are filled "
                     "from this one, so promote this one first\n",
                     s.name, s.replica, s.data, data.file.size_bytes >> 20, sb.ring_bytes >> 20, s.journal, s.data);
}

}  // namespace

Result<std::string> create_volume(const VolumeSettings& s, bool adopt) {
  if (s.uuid.empty()) {
    OsRandom random;
    return fail(Errc::invalid, "volume.{}.uuid is missing. Put this line into the configuration of every replica of "
                "the volume: uuid = \"{}\"", s.name, Uuid::generate(random).text());
  }
  if (Uuid::parse(s.uuid).value().is_nil())
    return fail(Errc::invalid, "volume.{}.uuid: zeros are no identity: uuidgen prints one", s.name);
  if (adopt) return adopt_volume(s);
  if (s.size == 0) return fail(Errc::invalid, "volume.{}.size is missing", s.name);
  journal::CreateOptions options{Uuid::parse(s.uuid).value(), s.replica, s.size / block_size, false, std::nullopt};
  TL_TRY_ASSIGN(std::uint64_t journal_bytes, journal_bytes_of(s));
  TL_TRY(journal::plan_layout(options, journal_bytes));  // before anything is made
  TL_TRY_ASSIGN(Opened data, open_or_make(s.data, s.size + block_size, "data area"));
  auto journal = open_or_make(s.journal, s.journal_size, "journal");
  if (!journal) {
    if (data.fresh) ::unlink(s.data.c_str());
    return std::unexpected(journal.error());
  }
  io::OsBlockFile journal_file(journal->file), data_file(data.file);
  TL_TRY(check_no_journal(journal_file, s));
  if (!data.fresh) {
    if (Status free = check_not_a_data_area(data_file, s); !free) {
      if (journal->fresh) ::unlink(s.journal.c_str());
      return std::unexpected(free.error());
    }
  }
  // A label needs a block beyond the volume; a device that is exactly full goes without.
  options.data_label = data.file.size_bytes >= s.size + block_size;
  TL_TRY_ASSIGN(Superblock sb, journal::create_replica(options, journal_file, data_file, !data.fresh));
  TL_TRY(sync_parent(s.data));
  TL_TRY(sync_parent(s.journal));
  return fmt::format("volume {} replica {}: {} MiB of data in {}, a journal of {} MiB in {}\n", s.name, s.replica,
                     s.size >> 20, s.data, sb.ring_bytes >> 20, s.journal);
}

}  // namespace twinloft::repl::daemon
