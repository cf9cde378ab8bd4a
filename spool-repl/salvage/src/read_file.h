// A file's bytes from its beginning, in pieces.
#pragma once

#include <functional>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"

namespace twinloft::repl::salvage {

// Until `take` says false, or the file ends. Errors: of the read (with errno), and those that `take` returns.
Status read_pieces(int fd, const std::function<Result<bool>(ByteSpan)>& take);

}  // namespace twinloft::repl::salvage
