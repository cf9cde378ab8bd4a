#include "twinloft/lmtpd/intake/open_log.h"

#include <utility>
#include <vector>

#include "segments_of.h"
#include "twinloft/base/log.h"
#include "twinloft/intake_log/group.h"

namespace twinloft::lmtpd {

using intake_log::Mark;
using intake_log::Scan;

namespace {

Status check_usable(LogDirectory& directory) {
  TL_TRY_ASSIGN(bool mine, directory.lock());
  if (!mine) return fail(Errc::unavailable, "another process uses {}", log_directory_name);
  TL_TRY_ASSIGN(std::optional<std::string> failure, directory.failure());
  if (failure)
    return fail(Errc::unavailable, "it has failed ({}): mount the spool again and run \"lmtpd replay\"",
                *failure);
  return {};
}

// Whether no group follows the newest one of this process. The next one begins at its end or, if it does not
// fit there, in the next segment. A later group that lies over the first place comes after one at the second.
Result<bool> ends_there(const LogDirectory& directory, const Scan& ending) {
  const intake_log::Position next{(ending.end.segment + 1) % directory.shape().segments, 0};
  LogBuffer block(log_block_bytes);
  for (intake_log::Position at : {ending.end, next}) {
    TL_TRY(directory.read(at.segment, at.offset, block.bytes()));
    const auto found = intake_log::look_at_block(block.bytes(), directory.incarnation(), at);
    if (found.kind == intake_log::BlockKind::version) return false;
    if (found.kind == intake_log::BlockKind::group && found.header.number >= ending.next_group) return false;
  }
  return true;
}

// Whether no other process has used the log meanwhile.
Result<bool> is_as_left(const LogDirectory& directory, const MountInstance& mount,
                        const std::vector<std::byte>& mark, const ClosedLog* closed) {
  if (!closed || closed->place != directory.place() || closed->mount != mount || closed->ending.mark != mark)
    return false;
  return ends_there(directory, closed->ending.scan);
}

Result<Scan> scan_of(const LogDirectory& directory) {
  TL_TRY_ASSIGN(Scan scan,
                intake_log::scan(directory.shape(), directory.incarnation(), SegmentsOf(directory)));
  if (scan.damage.empty()) return scan;
  return fail(Errc::corrupt, "{} is damaged ({}): run \"lmtpd replay\"", log_directory_name,
              scan.damage.front().why);
}

// The entries that the mark does not call settled. On the mount that the writer had they were not
// acknowledged. On another mount they may be missing in their Maildirs.
Result<std::uint64_t> count_unsettled(const Scan& scan, const Mark& mark, const MountInstance& mount) {
  std::uint64_t out = 0;
  for (std::uint64_t entry = mark.prefix(); entry < scan.next_entry; ++entry) out += !mark.is_settled(entry);
  if (out > 0 && scan.groups.back().mount != mount)
    return fail(Errc::unavailable, "{} has {} entries of a mount before this one: run \"lmtpd replay\"",
                log_directory_name, out);
  return out;
}

}  // namespace

Result<std::unique_ptr<OpenLog>> OpenLog::open(int root, const MountInstance& mount, const WrapLogFiles& wrap,
                                               const ClosedLog* closed) {
  TL_TRY_ASSIGN(LogDirectory opened, LogDirectory::open(root));
  std::unique_ptr<OpenLog> out(new OpenLog(std::move(opened), mount));
  LogDirectory& directory = out->directory_;
  TL_TRY(check_usable(directory));
  if (wrap) out->wrapped_ = wrap(directory);
  LogFiles& files = out->wrapped_ ? *out->wrapped_ : directory;
  TL_TRY_ASSIGN(std::vector<std::byte> bytes, directory.read_mark());
  TL_TRY_ASSIGN(Mark mark, Mark::decode(bytes, directory.incarnation()));
  TL_TRY_ASSIGN(bool as_left, is_as_left(directory, mount, bytes, closed));
  out->was_scanned_ = !as_left;
  TL_TRY_ASSIGN(Scan scan, as_left ? Result<Scan>(closed->ending.scan) : scan_of(directory));
  TL_TRY(intake_log::check_mark(mark, scan));
  TL_TRY_ASSIGN(std::uint64_t unsettled, count_unsettled(scan, mark, mount));
  if (unsettled > 0) {
    log_info(
        "intake log: {} entries of a process that ended on this mount are dropped: they were not "
        "acknowledged",
        unsettled);
    mark.settle_below(scan.next_entry);
    TL_TRY(files.set_mark(mark.encode()));
    // The sender of a dropped entry sends again. A replay must not deliver both.
    TL_TRY(files.sync());
  }
  out->log_ = std::make_unique<IntakeLog>(
      files, LogCore::Config{directory.shape(), directory.incarnation(), mount}, scan, std::move(mark));
  return out;
}

}  // namespace twinloft::lmtpd
