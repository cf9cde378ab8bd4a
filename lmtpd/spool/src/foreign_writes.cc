#include "twinloft/lmtpd/spool/foreign_writes.h"

namespace twinloft::lmtpd {

namespace {

// Each of these programs takes milliseconds of a processor, so that deliveries end one by one, and hardly
// ever at once. A short wait lets them share a syncfs, unless only few are in flight: their clients would
// notice.
constexpr std::uint64_t gathered_from = 5;
constexpr std::chrono::milliseconds gather_longest{2};

}  // namespace

Status ForeignWrites::make_durable(const SpoolHandle& handle) {
  const std::uint64_t in_flight = in_flight_;
  TL_TRY(
      syncs_.sync(handle, in_flight < gathered_from ? SyncGather{} : SyncGather{in_flight, gather_longest}));
  return check(handle);
}

Status ForeignWrites::check(const SpoolHandle& handle) {
  TL_TRY(spool_.check_not_failed(handle));
  TL_TRY_ASSIGN(SpoolHandle again, spool_.open());
  if (again.device != handle.device)
    return fail(Errc::unavailable, "{} was mounted again while another program wrote to it", spool_.root());
  return {};
}

}  // namespace twinloft::lmtpd
