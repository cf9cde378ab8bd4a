// What a load run found, for people and as JSON. Fields: docs/mailbench.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/json.h"
#include "twinloft/mailbench/load.h"

namespace twinloft::mailbench {

double messages_per_minute(const LoadStats& stats);  // recipients acknowledged in the window
// What a reader must know before the figures are believed.
std::vector<std::string> warnings(const LoadOptions& options, const LoadResult& result);
// Parts of the reports.
std::string latency_line(std::string_view what, const Histogram& latency_ns);
std::string loop_line(const LoadOptions& options, const LoadResult& result);
json::object latency_json(const Histogram& latency_ns);      // milliseconds
json::array distribution_json(const Histogram& latency_ns);  // pairs of milliseconds and the count up to
                                                             // there
json::array seconds_json(const LoadResult& result);
json::object settings_json(const LoadOptions& options);
std::string report_text(const LoadOptions& options, const LoadResult& result);
std::string report_json(const LoadOptions& options, const LoadResult& result);

}  // namespace twinloft::mailbench
