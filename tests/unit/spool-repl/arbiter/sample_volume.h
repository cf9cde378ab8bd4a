// The volume whose values the tests of arbiters keep.
#pragma once

#include "twinloft/base/ids.h"

namespace twinloft::repl::arbiter {

inline const Uuid volume = Uuid::parse("0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff").value();

}  // namespace twinloft::repl::arbiter
