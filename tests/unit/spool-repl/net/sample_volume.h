// The volume that both ends of a link serve in these tests.
#pragma once

#include "twinloft/base/ids.h"

namespace twinloft::repl::net {

inline const Uuid volume = Uuid::parse("2f2e2d2c-4b5a-4978-8695-a4b3c2d1e0ff").value();

}  // namespace twinloft::repl::net
