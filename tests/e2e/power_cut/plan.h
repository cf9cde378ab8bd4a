// Where to cut the power: moments of the log, drawn from a seed, with more of them where it matters.
#pragma once

#include <string_view>
#include <vector>

#include "event_log.h"
#include "twinloft/base/random.h"

namespace twinloft::power {

// The event right before a cut.
enum class Moment {
  record,       // an answered write of a record: a flush point
  under_way,    // a write to a journal that has just arrived
  overlapping,  // the same while an earlier write is unanswered: it may leave a hole before this record
  superblock,   // an answered write of a copy of the superblock
  reply,        // the load recorded its 250s
  sync,         // a sync of a data area arrived, or was answered
  home,         // a write to a data area arrived, or was answered
  any,          // anything
};
inline constexpr std::size_t moments = 8;
std::string_view to_string(Moment moment);

struct Step {
  std::uint64_t event = 0;  // cut after this event; events count from 1
  Moment moment = Moment::any;
  bool at_lsn = false;  // no power cut, but an image at an LSN that was durable by then
};

struct PlanOptions {
  std::size_t steps = 0;
  unsigned lsn_percent = 0;
  std::uint64_t reply_bytes_min = 4096;  // no cut before the account has this size
  std::uint64_t ring_offset = 0;
};

// Names of files: *.data, *.journal, account. Errc::not_found where the load has not started.
Result<std::vector<Step>> make_plan(EventReader& log, const PlanOptions& options, SeededRandom& random);

}  // namespace twinloft::power
