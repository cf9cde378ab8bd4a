// Mail that another program writes to the spool: an external agent, or Dovecot's LMTP. The program syncs
// little or nothing itself. The spool is opened before the program begins, and made durable after its
// success.
#pragma once

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/spool/spool.h"
#include "twinloft/lmtpd/spool/sync_group.h"

namespace twinloft::lmtpd {

// Thread-safe. Blocks.
class ForeignWrites {
 public:
  // The references outlive this object.
  ForeignWrites(Spool& spool, SyncGroup& syncs) : spool_(spool), syncs_(syncs) {}

  // Before the program begins. Errors: those of Spool::open().
  Result<SpoolHandle> begin() { return spool_.open(); }
  // After the program's success: a syncfs that several deliveries share, then check().
  Status make_durable(const SpoolHandle& handle);
  // The file system has not failed, and the same one is still mounted. XFS reports success for the sync of a
  // directory after a shutdown.
  Status check(const SpoolHandle& handle);

 private:
  Spool& spool_;
  SyncGroup& syncs_;
};

}  // namespace twinloft::lmtpd
