// Reads a file from its start, in pieces.
#pragma once

#include <functional>
#include <string>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"

namespace twinloft::repl::salvage {

// Reads until `take` returns false, or the file ends. Errors: of the read, with the errno, and those of
// `take`.
Status read_pieces(int fd, const std::function<Result<bool>(ByteSpan)>& take);

// The first `bytes` bytes of the file, or a whole shorter file.
Result<std::string> read_start(int fd, std::size_t bytes);

}  // namespace twinloft::repl::salvage
