// What a load run found, for people and as JSON. Fields: docs/mailbench.md.
#pragma once

#include <string>

#include "twinloft/mailbench/load.h"

namespace twinloft::mailbench {

double messages_per_minute(const LoadStats& stats);  // recipients acknowledged in the window
std::string report_text(const LoadOptions& options, const LoadResult& result);
std::string report_json(const LoadOptions& options, const LoadResult& result);

}  // namespace twinloft::mailbench
