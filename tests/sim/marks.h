// Situations that a long run must have been in.
#pragma once

#include <string>

#include "cluster.h"

namespace twinloft::repl::sim {

// What is missing and what is not in the list, a line each; empty where all is as expected.
std::string unexpected_marks(const Coverage& coverage);

}  // namespace twinloft::repl::sim
