#include "ending.h"

#include <sysexits.h>

namespace twinloft::spool_milter {

std::optional<int> Ending::exit_code(const UnderWay& work, Instant now) const {
  const int in_order = work.questions == 0 ? 0 : EX_TEMPFAIL;
  if (aborted_) return in_order;
  if (stop_ && (work.questions == 0 || now - *stop_ >= patience_)) return in_order;
  if (lost_ && !stop_ && now - *lost_ >= lost_time) return EX_SOFTWARE;
  if (!drain_ || work.questions > 0) return std::nullopt;
  const Duration drained = now - *drain_;
  bool over = (work.connections == 0 && drained >= settle_time) || hurried_ || drained >= drain_time;
  return over ? std::optional(0) : std::nullopt;
}

}  // namespace twinloft::spool_milter
