#include "twinloft/spool-repl/salvage/printable.h"

#include <fmt/format.h>

namespace twinloft::repl::salvage {

std::string printable(std::string_view bytes) {
  std::string out;
  for (unsigned char c : bytes) {
    if (c >= 0x20 && c < 0x7f && c != '\\')
      out += static_cast<char>(c);
    else
      out += fmt::format("\\x{:02x}", c);
  }
  return out;
}

}  // namespace twinloft::repl::salvage
