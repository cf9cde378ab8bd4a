// Charts of mailbench's JSON reports.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/json.h"
#include "twinloft/base/result.h"

namespace twinloft::mailbench {

enum class PlotKind {
  latency,  // latency over percentiles
  seconds,  // messages a minute, second by second
  ticks,    // the same by tenths of a second
  clients,  // messages a minute over the number of clients
  rate,     // p50 and p99 over the offered rate
  bars,     // messages a minute
};

// Reports with one label belong to one line or bar. At one place of it, the median is drawn, with the least
// and the largest value as a whisker.
struct PlotInput {
  std::string label;
  json::object report;  // of mailbench load or lda; PlotKind::rate: also of a search
};

struct PlotOptions {
  PlotKind kind = PlotKind::latency;
  std::string title{};                                  // empty: by the kind
  std::vector<std::pair<double, std::string>> marks{};  // PlotKind::seconds and ticks: at these seconds
};

struct Plot {
  std::string svg;
  std::string text;  // PlotKind::bars: for a terminal; otherwise empty
};

// Errors: Errc::invalid, a report lacks what the kind needs, with its label.
Result<Plot> plot(const PlotOptions& options, const std::vector<PlotInput>& inputs);

// A file of a report. label: empty, then it is the file's name without directory and ".json".
Result<PlotInput> read_plot_input(std::string_view label, const std::string& path);

}  // namespace twinloft::mailbench
