#include "twinloft/lmtpd/spool/foreign_writes.h"

namespace twinloft::lmtpd {

Status ForeignWrites::make_durable(const SpoolHandle& handle) {
  TL_TRY(syncs_.sync(handle));
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
