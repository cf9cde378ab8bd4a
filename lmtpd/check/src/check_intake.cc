#include <sys/statvfs.h>

#include <fmt/format.h>

#include "twinloft/lmtpd/check/checks.h"
#include "twinloft/lmtpd/intake/log_directory.h"
#include "twinloft/lmtpd/intake/mount_instance.h"
#include "twinloft/lmtpd/intake/replay.h"
#include "twinloft/lmtpd/spool/data_first.h"
#include "twinloft/lmtpd/spool/spool.h"

namespace twinloft::lmtpd {

namespace {

constexpr const char* key = "maildir.durability: ";
// A log that takes more of the file system than this leaves too little for mail.
constexpr std::uint64_t log_share = 4;

// Why the file system cannot have a log. Its reason is also lmtpd's, when it starts.
Result<MountInstance> check_suitable(const SpoolHandle& spool) {
  TL_TRY_ASSIGN(MountInstance here, find_mount_instance(spool.device));
  DataFirstVerdict verdict = find_data_first(spool.device);
  if (!verdict.allowed)
    return fail(Errc::unavailable, "the spool is on {}, and cannot have an intake log", verdict.why);
  return here;
}

void check_room(const SpoolHandle& spool, std::uint64_t log_bytes, Checker& check) {
  struct statvfs room{};
  if (::fstatvfs(spool.root.get(), &room) != 0) return;
  const std::uint64_t all = std::uint64_t{room.f_blocks} * room.f_frsize;
  const std::uint64_t free = std::uint64_t{room.f_bavail} * room.f_frsize;
  if (log_bytes > free)
    check.problem(fmt::format("maildir.intake_log_size: the log needs {} bytes, and the spool has {} left",
                              log_bytes, free));
  else if (log_bytes > all / log_share)
    check.warning(
        fmt::format("maildir.intake_log_size: the log takes {} of the spool's {} bytes", log_bytes, all));
}

void check_content(const LogDirectory& log, const MountInstance& here, std::uint64_t log_bytes,
                   Checker& check) {
  auto content = look_into_log(log, here);
  if (!content)
    return check.problem(
        fmt::format("{}the intake log is refused, and each message is synced by itself: {}; "
                    "see docs/operations.md, \"The intake log\"",
                    key, content.error().message));
  if (content->failure)
    check.warning(
        fmt::format("{}the intake log failed ({}), and is not used until the spool was mounted again and "
                    "\"lmtpd replay\" has run",
                    key, *content->failure));
  else if (!content->of_this_mount && content->entries > 0)
    check.warning(
        fmt::format("{}the intake log has {} messages of an earlier mount, {} of them not proven to be in "
                    "their Maildirs: run \"lmtpd replay\" before Dovecot and lmtpd start",
                    key, content->entries, content->unsettled));
  if (const std::uint64_t bytes = log.shape().bytes(); bytes != log_shape_of(log_bytes).bytes())
    check.warning(
        fmt::format("maildir.intake_log_size: the log has {} bytes, which stay until \"lmtpd replay "
                    "--retire\"",
                    bytes));
}

}  // namespace

void check_intake_log(const Config& config, Checker& check) {
  static OsFileOps ops;
  auto spool = Spool::create(config.delivery.spool, ops);
  auto opened = spool ? (*spool)->open() : Result<SpoolHandle>(std::unexpected(spool.error()));
  if (!opened) return;  // check_spool() says why
  const bool wanted = config.delivery.maildir.durability == DurabilityWay::intake_log;
  auto here = check_suitable(*opened);
  if (!here && wanted) check.problem(key + here.error().message);
  auto log = LogDirectory::open(opened->root.get());
  if (!log && log.error().code == Errc::not_found) {
    if (here && wanted) check_room(*opened, config.delivery.intake.log_bytes, check);
    return;
  }
  if (!log) return check.problem(key + log.error().message);
  if (here) check_content(*log, *here, config.delivery.intake.log_bytes, check);
}

}  // namespace twinloft::lmtpd
