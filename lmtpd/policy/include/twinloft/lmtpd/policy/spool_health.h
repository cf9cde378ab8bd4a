// Whether the spool takes mail now, by what was seen of the file system and by what spool-repl tells. No I/O.
//
// A suspended volume loses nothing: the MTA queues, and deliveries wait. So mail is accepted at first, and
// deferred only after a while. Mail of authenticated senders is never deferred for this reason: their
// programs keep no queue.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/proto/reply.h"

namespace twinloft::lmtpd {

// What a look at the mounted file system has found.
struct SpoolLook {
  std::optional<Error> trouble = {};  // the root, the marker or the file system has an error
  bool read_only = false;
  std::uint64_t bytes = 0, free_bytes = 0;    // free: for users without privilege. bytes == 0: no look yet
  std::uint64_t inodes = 0, free_inodes = 0;  // inodes == 0: made as needed (Btrfs)
  std::optional<Instant> hangs_since = {};    // the look has not returned since; the other members are older
};

// What the state file of the volume says (spool-state/).
struct VolumeTold {
  enum class State { unknown, serving, suspended, stalled, failed };
  State state = State::unknown;
  Instant since{};
};

struct SpoolRules {
  // With less free space, the spool counts as full. nullopt: a hundredth of the file system, at most 64 MiB.
  std::optional<std::uint64_t> reserve_bytes = {};
  // Likewise: a hundredth of the inodes, at most this.
  std::uint64_t reserve_inodes_most = 1000;
  Duration suspended_for = std::chrono::minutes(5);  // how long mail is accepted for a suspended volume
  Duration hangs_for = std::chrono::seconds(10);     // a look that takes longer counts as a suspension
};

struct SpoolHealth {
  enum class State { serving, suspended, not_mounted, failed, read_only, full };
  State state = State::serving;
  Instant since{};  // only of suspended
  bool operator==(const SpoolHealth&) const = default;
};

SpoolHealth health_of(const SpoolLook& look, const VolumeTold& told, const SpoolRules& rules, Instant now);

// nullopt: mail is accepted.
std::optional<Reply> refusal_of_spool(const SpoolHealth& health, const SpoolRules& rules, Instant now,
                                      bool authenticated);

}  // namespace twinloft::lmtpd
