// The seconds of a run, for plots and for the live line. The workers add a second when it has passed.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/mailbench/histogram.h"

namespace twinloft::mailbench {

struct Second {
  std::uint64_t acknowledged = 0;                    // recipients
  std::uint64_t failed = 0;                          // attempts for a recipient that were not acknowledged
  std::uint64_t messages = 0;                        // with every recipient acknowledged
  std::uint64_t p50_ns = 0, p99_ns = 0, max_ns = 0;  // of these messages
};

class Series {
 public:
  // What one worker saw within a second since the start. Within a run, a worker adds a second once.
  struct Part {
    std::uint64_t acknowledged = 0, failed = 0;
    Histogram latency_ns;

    bool empty() const { return acknowledged == 0 && failed == 0 && latency_ns.count() == 0; }
  };
  void add(std::size_t second, const Part& part);
  // Empty: nothing is known of this second.
  Second at(std::size_t second) const;
  std::vector<Second> all() const;

 private:
  struct Entry {
    std::uint64_t acknowledged = 0, failed = 0, max_ns = 0;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> latency_ns;  // by value: the value, and how often
  };
  static Second figures(const Entry& entry);

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

// What one thread counts, second by second.
class SeriesFeed {
 public:
  SeriesFeed(Series& series, Instant start) : series_(series), start_(start) {}
  void count(Instant now, bool acknowledged);  // an attempt for a recipient
  void record(Duration latency) {
    part_.latency_ns.record(static_cast<std::uint64_t>(latency.count()));
  }  // after count()
  void flush();  // the last second

 private:
  Series& series_;
  Instant start_;
  std::size_t second_ = 0;
  Series::Part part_;
};

}  // namespace twinloft::mailbench
