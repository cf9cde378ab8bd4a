// The segments of an open log, for the scan.
#pragma once

#include "twinloft/intake_log/scan.h"
#include "twinloft/lmtpd/intake/log_directory.h"

namespace twinloft::lmtpd {

class SegmentsOf final : public intake_log::SegmentReader {
 public:
  explicit SegmentsOf(const LogDirectory& log) : log_(log) {}
  Status read(std::uint32_t segment, std::uint64_t offset, MutableByteSpan out) const override {
    return log_.read(segment, offset, out);
  }

 private:
  const LogDirectory& log_;
};

}  // namespace twinloft::lmtpd
