#include "disk_model.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace twinloft::power {

namespace {

constexpr std::uint64_t sector = 512, undo_bytes = 64 * 1024;

Status write_at(int fd, std::uint64_t offset, ByteSpan bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n <= 0) return fail_errno(n < 0 ? errno : EIO, "an image cannot be written at {}", offset);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

Status punch(int fd, std::uint64_t offset, std::uint64_t length) {
  if (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(length)) != 0)
    return fail_errno(errno, "an image cannot be punched at {}", offset);
  return {};
}

}  // namespace

Result<DiskModel> DiskModel::open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat st{};
  if (!fd || ::fstat(fd.get(), &st) != 0) return fail_errno(errno, "{}", path);
  DiskModel model(std::move(fd));
  model.size_ = static_cast<std::uint64_t>(st.st_size);
  return model;
}

Status DiskModel::apply(const EventReader::Item& item, std::uint64_t number) {
  const Event& e = item.event;
  switch (e.kind) {
    case EventKind::write:
    case EventKind::zeros:
      if (e.offset % sector != 0 || e.length % sector != 0 || e.offset + e.length > size_)
        return fail(Errc::invalid, "a write of {} bytes at {} does not fit a disk of {}", e.length, e.offset,
                    size_);
      volatile_.emplace(e.id, Write{e.offset,
                                    e.length,
                                    e.kind == EventKind::write ? item.bytes.data() : nullptr,
                                    0,
                                    (e.flags & durable_when_done) != 0,
                                    {}});
      return {};
    case EventKind::done: {
      auto it = volatile_.find(e.id);
      if (it == volatile_.end()) return fail(Errc::invalid, "the answer {} has no write", e.id);
      it->second.done_number = number;
      return it->second.dsync ? make_durable(it) : Status{};
    }
    case EventKind::sync_begin:
      sync_began_[e.id] = number;
      return {};
    case EventKind::sync_done:
      return on_sync_done(e.id);
    case EventKind::name:
      return {};
    case EventKind::resize:
      if (e.length != size_) return fail(Errc::invalid, "a disk changes its size to {}", e.length);
      return {};
  }
  return {};
}

Status DiskModel::on_sync_done(std::uint64_t id) {
  std::uint64_t began = sync_began_.at(id);
  sync_began_.erase(id);
  for (auto it = volatile_.begin(); it != volatile_.end();) {
    auto next = std::next(it);
    if (it->second.done_number != 0 && it->second.done_number < began) TL_TRY(make_durable(it));
    it = next;
  }
  return {};
}

// An earlier, still volatile write cannot overwrite the durable write after a cut.
Status DiskModel::make_durable(std::map<std::uint64_t, Write>::iterator it) {
  const Write& w = it->second;
  for (auto earlier = volatile_.begin(); earlier != it; ++earlier) {
    Write& e = earlier->second;
    if (!e.covers(w.offset, w.length)) continue;
    e.overwritten.resize(e.length / sector);
    std::uint64_t from = std::max(e.offset, w.offset),
                  to = std::min(e.offset + e.length, w.offset + w.length);
    for (std::uint64_t at = from; at < to; at += sector) e.overwritten[(at - e.offset) / sector] = true;
  }
  TL_TRY(put(w, {}));
  volatile_.erase(it);
  return {};
}

Status DiskModel::put_range(const Write& w, Range range) {
  if (w.bytes == nullptr) return punch(fd_.get(), range.offset, range.length);
  return write_at(fd_.get(), range.offset, {w.bytes + (range.offset - w.offset), range.length});
}

Status DiskModel::put(const Write& w, const std::vector<bool>& leave_out) {
  if (w.overwritten.empty() && leave_out.empty()) return put_range(w, {w.offset, w.length});
  auto out = [&](std::uint64_t i) {
    return (!w.overwritten.empty() && w.overwritten[i]) || (!leave_out.empty() && leave_out[i]);
  };
  std::uint64_t sectors = w.length / sector;
  for (std::uint64_t i = 0; i < sectors;) {
    std::uint64_t end = i;
    while (end < sectors && !out(end)) ++end;
    if (end > i) TL_TRY(put_range(w, {w.offset + i * sector, (end - i) * sector}));
    i = end + (end < sectors);
  }
  return {};
}

// Half of the torn writes lose their end, the others any of their sectors. true: lost.
std::vector<bool> DiskModel::tear(const Write& w, SeededRandom& random) {
  std::uint64_t sectors = w.length / sector;
  std::vector<bool> lost(sectors);
  if (w.bytes == nullptr || random.below(2) == 0) {
    std::uint64_t kept = random.below(sectors + 1);
    for (std::uint64_t i = kept; i < sectors; ++i) lost[i] = true;
  } else {
    for (std::uint64_t i = 0; i < sectors; ++i) lost[i] = random.below(2) == 0;
  }
  return lost;
}

Status DiskModel::remember(Range range) {
  for (std::uint64_t at = range.offset; at < range.offset + range.length; at += undo_bytes) {
    Old old{at, std::vector<std::byte>(std::min(undo_bytes, range.offset + range.length - at))};
    ssize_t n = ::pread(fd_.get(), old.bytes.data(), old.bytes.size(), static_cast<off_t>(at));
    if (n != static_cast<ssize_t>(old.bytes.size()))
      return fail_errno(n < 0 ? errno : EIO, "an image cannot be read at {}", at);
    undo_.push_back(std::move(old));
  }
  return {};
}

Result<Losses> DiskModel::cut(CutStyle style, SeededRandom& random) {
  Losses losses;
  for (const auto& [id, w] : volatile_) {
    std::uint64_t draw = style == CutStyle::mixed ? random.below(100) : style == CutStyle::keep_all ? 0 : 99;
    if (draw >= 65) {
      losses.dropped++;
      continue;
    }
    bool torn = draw >= 40;
    (torn ? losses.torn : losses.kept)++;
    TL_TRY(remember({w.offset, w.length}));
    TL_TRY(put(w, torn ? tear(w, random) : std::vector<bool>{}));
  }
  return losses;
}

Status DiskModel::undo() {
  for (; !undo_.empty(); undo_.pop_back()) {
    const Old& old = undo_.back();
    bool zero = std::all_of(old.bytes.begin(), old.bytes.end(),
                            [](std::byte b) { return b == std::byte{0}; });
    TL_TRY(zero ? punch(fd_.get(), old.offset, old.bytes.size())
                : write_at(fd_.get(), old.offset, old.bytes));
  }
  return {};
}

}  // namespace twinloft::power
