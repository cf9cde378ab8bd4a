// Mail that another program writes to the spool: an external agent, or Dovecot's LMTP. The program syncs
// little or nothing itself. The spool is opened before the program begins, and made durable after its
// success.
#pragma once

#include <atomic>
#include <cstdint>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/spool/spool.h"
#include "twinloft/lmtpd/spool/sync_group.h"

namespace twinloft::lmtpd {

// Thread-safe. Blocks.
class ForeignWrites {
 public:
  // The references outlive this object.
  ForeignWrites(Spool& spool, SyncGroup& syncs) : spool_(spool), syncs_(syncs) {}

  // A delivery by another program, from before the program begins until the delivery has ended.
  class InFlight {
   public:
    explicit InFlight(ForeignWrites& all) : all_(all) { ++all_.in_flight_; }
    ~InFlight() { --all_.in_flight_; }
    InFlight(const InFlight&) = delete;
    InFlight& operator=(const InFlight&) = delete;

   private:
    ForeignWrites& all_;
  };

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
  std::atomic<std::uint64_t> in_flight_{0};
};

}  // namespace twinloft::lmtpd
