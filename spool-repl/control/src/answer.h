// The text of an answer with the line that ends it. docs/formats/control.md describes it.
#pragma once

#include <string>

#include "twinloft/base/result.h"

namespace twinloft::repl::control {

std::string encode_answer(const Result<std::string>& reply);

// Errc::io where the last line is missing or none of ours: the connection ended before the answer did.
Result<std::string> decode_answer(std::string text);

}  // namespace twinloft::repl::control
