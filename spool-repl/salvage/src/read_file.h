// A file's bytes from its beginning, in pieces.
#pragma once

#include <functional>
#include <string>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"

namespace twinloft::repl::salvage {

// Until `take` says false, or the file ends. Errors: of the read (with errno), and those that `take` returns.
Status read_pieces(int fd, const std::function<Result<bool>(ByteSpan)>& take);

// The first `bytes` of it, or all of a shorter file.
Result<std::string> read_start(int fd, std::size_t bytes);

}  // namespace twinloft::repl::salvage
