// The text of an answer and its last line. docs/formats/control.md describes it.
#pragma once

#include <string>

#include "twinloft/base/result.h"

namespace twinloft::repl::control {

std::string encode_answer(const Result<std::string>& reply);

// Errors: Errc::io if the last line is missing or malformed, since the connection ended early.
Result<std::string> decode_answer(std::string text);

}  // namespace twinloft::repl::control
