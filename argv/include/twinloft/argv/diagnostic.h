// An error or a warning about one position of a template.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace twinloft::argv {

struct Diagnostic {
  std::string message;     // one sentence, without the position
  std::size_t offset = 0;  // bytes from the start of the template
  std::size_t line = 1;    // from 1
  std::size_t column = 1;  // from 1, in characters of the line. A byte that is not UTF-8 counts as a
                           // character
  std::string excerpt;     // the line, or a part of a long line. Control bytes and bytes that are not UTF-8
                           // become '?'
  std::size_t caret = 0;   // characters of `excerpt` before the position

  // "column 14: message", or "line 2, column 14: message" after the first line.
  std::string summary() const;
  // The summary, the excerpt, and a caret below the position. Each of the three lines ends in '\n'.
  std::string rendered() const;
};

// offset: in `text`. text.size() is the position after the last byte.
Diagnostic make_diagnostic(std::string_view text, std::size_t offset, std::string message);

}  // namespace twinloft::argv
