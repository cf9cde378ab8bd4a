#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "twinloft/mailbench/histogram.h"

namespace twinloft::mailbench {

namespace {

constexpr unsigned kStepsPerHalf = 5;

double ms(std::uint64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

}  // namespace

std::string hgrm_text(const Histogram& h) {
  std::string out = fmt::format("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount",
                                "1/(1-Percentile)");
  auto at = std::back_inserter(out);
  auto filled = h.filled();
  std::size_t next = 0;
  std::uint64_t seen = 0;
  for (unsigned step = 0; h.count() > 0 && seen < h.count(); ++step) {
    double rest = std::pow(0.5, step / kStepsPerHalf);
    double level = 1 - rest + rest / 2 * (step % kStepsPerHalf) / kStepsPerHalf;
    while (seen == 0 || static_cast<double>(seen) < level * static_cast<double>(h.count()))
      seen += filled[next++].second;
    fmt::format_to(at, "{:12.3f} {:2.12f} {:10} {:14.2f}\n", ms(std::min(filled[next - 1].first, h.max())),
                   level, seen, 1 / (1 - level));
  }
  fmt::format_to(at, "{:12.3f} {:2.12f} {:10}\n", ms(h.max()), 1.0, h.count());
  fmt::format_to(at, "#[Mean    = {:12.3f}, StdDeviation   = {:12.3f}]\n", h.mean() / 1e6,
                 h.deviation() / 1e6);
  fmt::format_to(at, "#[Max     = {:12.3f}, Total count    = {:12}]\n", ms(h.max()), h.count());
  fmt::format_to(at, "#[Buckets = {:12}, SubBuckets     = {:12}]\n", Histogram::kBuckets / Histogram::kSub,
                 Histogram::kSub);
  return out;
}

}  // namespace twinloft::mailbench
