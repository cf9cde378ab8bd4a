// The highest rate at which a server keeps a promise, such as p99<50ms.
//
// Trials in an open loop, each at one rate. The first trial is a closed loop: its rate is near the server's
// limit. Bisection then narrows the limit. The rate found must hold in further trials, or gives way to a
// lower one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/mailbench/load.h"

namespace twinloft::mailbench {

// "p99<50ms", "p50<5ms,p99.9<200ms", "max<1s", "mean<3ms", "failed<0.1%". Latency is that of
// LoadStats::latency, good. Without `failed`, no recipient may fail. At most a thousandth of the due messages
// may wait at the end of the window.
class Promise {
 public:
  static Result<Promise> parse(std::string_view text);
  // Empty: kept. Otherwise what was broken.
  std::string broken_by(const LoadResult& result) const;
  const std::string& text() const { return text_; }

 private:
  struct Latency {
    std::string name;
    enum class Kind { percentile, mean, max } kind;
    double percent;
    std::uint64_t limit_ns;
  };
  Status add(std::string_view item);

  std::string text_;
  std::vector<Latency> latencies_;
  double failed_max_ = 0;  // share of the recipients, in the whole trial
};

struct Trial {
  std::optional<double> rate;  // messages a second; nothing: closed loop
  LoadResult result;
  std::string broken;  // empty: the promise was kept
};

// Decides about the rates. Pure.
class RateSearch {
 public:
  // precision: the search ends when the limit is known to this share, such as 0.03. confirmations: further
  // trials that the found rate must pass.
  RateSearch(double closed_loop_rate, double precision, unsigned confirmations);
  // Nothing: the search has ended.
  std::optional<double> next() const;
  void take(bool kept);
  // The highest rate that was kept in all trials. Nothing: none.
  std::optional<double> found() const { return confirmed_; }

 private:
  static constexpr unsigned kTrialsMax = 100;
  static constexpr double kLeastShare = 1.0 / 1024;  // of the first rate: below it the search gives up
  double start_, precision_;
  unsigned confirmations_, passed_ = 0, trials_ = 0;
  double low_ = 0, high_ = 0;  // the highest kept rate, the lowest broken one; 0: none
  double rate_;
  bool confirming_ = false, ended_ = false;
  std::optional<double> confirmed_;
};

struct SearchResult {
  std::vector<Trial> trials;
  std::optional<double> rate;  // messages a second
};

// on_trial: after each of them. Errors: those of run_load().
Result<SearchResult> run_search(const LoadOptions& options, const Promise& promise, double precision,
                                unsigned confirmations, const std::function<void(const Trial&)>& on_trial);

std::string search_text(const LoadOptions& options, const Promise& promise, const SearchResult& result);
std::string search_json(const LoadOptions& options, const Promise& promise, const SearchResult& result);

}  // namespace twinloft::mailbench
