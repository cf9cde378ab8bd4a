#include "twinloft/lmtpd/intake/open_log.h"

#include <utility>
#include <vector>

#include "segments_of.h"
#include "twinloft/base/log.h"

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

Result<std::unique_ptr<OpenLog>> OpenLog::open(int root, const MountInstance& mount,
                                               const WrapLogFiles& wrap) {
  TL_TRY_ASSIGN(LogDirectory opened, LogDirectory::open(root));
  std::unique_ptr<OpenLog> out(new OpenLog(std::move(opened)));
  LogDirectory& directory = out->directory_;
  TL_TRY(check_usable(directory));
  TL_TRY_ASSIGN(std::vector<std::byte> bytes, directory.read_mark());
  TL_TRY_ASSIGN(Mark mark, Mark::decode(bytes, directory.incarnation()));
  TL_TRY_ASSIGN(Scan scan, scan_of(directory));
  TL_TRY(intake_log::check_mark(mark, scan));
  TL_TRY_ASSIGN(std::uint64_t unsettled, count_unsettled(scan, mark, mount));
  if (unsettled > 0) {
    log_info(
        "intake log: {} entries of a process that ended on this mount are dropped: they were not "
        "acknowledged",
        unsettled);
    mark.settle_below(scan.next_entry);
    TL_TRY(directory.set_mark(mark.encode()));
    // The sender of a dropped entry sends again. A replay must not deliver both.
    TL_TRY(directory.sync());
  }
  if (wrap) out->wrapped_ = wrap(directory);
  LogFiles& files = out->wrapped_ ? *out->wrapped_ : directory;
  out->log_ = std::make_unique<IntakeLog>(
      files, LogCore::Config{directory.shape(), directory.incarnation(), mount}, scan, std::move(mark));
  return out;
}

}  // namespace twinloft::lmtpd
