#include "twinloft/intake_log/place.h"

namespace twinloft::intake_log {

Status check_shape(const LogShape& shape) {
  if (shape.segments == 0 || shape.segments > segments_max)
    return fail(Errc::invalid, "a log has 1 to {} segments, not {}", segments_max, shape.segments);
  if (shape.segment_bytes == 0 || shape.segment_bytes % block_bytes != 0 ||
      shape.segment_bytes > segment_bytes_max)
    return fail(Errc::invalid, "a segment of a log has whole blocks of {} bytes, at most {}, not {}",
                block_bytes, segment_bytes_max, shape.segment_bytes);
  return {};
}

std::string to_text(Position at) {
  return fmt::format("segment-{:02} at {}", at.segment, at.offset);
}

}  // namespace twinloft::intake_log
