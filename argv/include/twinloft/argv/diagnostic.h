// Something to say about one place of a template: an error of parse(), or a warning.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace twinloft::argv {

struct Diagnostic {
  std::string message;     // one sentence, without the position
  std::size_t offset = 0;  // bytes from the start of the template, 0-based
  std::size_t line = 1;    // 1-based
  std::size_t column = 1;  // 1-based, in characters of that line (UTF-8; a stray byte counts as one)
  std::string excerpt;     // the line, a long one cut to a window; control bytes and stray bytes are '?'
  std::size_t caret = 0;   // characters of `excerpt` before the place

  // "column 14: message", or "line 2, column 14: message" where the place is not in the first line.
  std::string summary() const;
  // The summary, the excerpt, and a caret below the place; each of the three lines ends in '\n'.
  std::string rendered() const;
};

// `offset` may be text.size(): the place after the last byte.
Diagnostic make_diagnostic(std::string_view text, std::size_t offset, std::string message);

}  // namespace twinloft::argv
