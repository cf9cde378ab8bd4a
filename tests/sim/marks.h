// Situations that a long run must reach.
#pragma once

#include <string>

#include "cluster.h"

namespace twinloft::repl::sim {

// One line for each missing or unlisted mark. Empty: all is as expected.
std::string unexpected_marks(const Coverage& coverage);

}  // namespace twinloft::repl::sim
