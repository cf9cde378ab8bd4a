// What a load run found, for people and as JSON. Fields: docs/mailbench.md.
#pragma once

#include <string>
#include <vector>

#include "twinloft/base/json.h"
#include "twinloft/mailbench/load.h"

namespace twinloft::mailbench {

double messages_per_minute(const LoadStats& stats);  // recipients acknowledged in the window
// What a reader must know before the figures are believed.
std::vector<std::string> warnings(const LoadOptions& options, const LoadResult& result);
json::object settings_json(const LoadOptions& options);
std::string report_text(const LoadOptions& options, const LoadResult& result);
std::string report_json(const LoadOptions& options, const LoadResult& result);

}  // namespace twinloft::mailbench
