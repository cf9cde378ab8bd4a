// Mail users name files, folders and more, and terminals obey some bytes.
#pragma once

#include <string>
#include <string_view>

namespace twinloft::repl::salvage {

// Any bytes as text that can be shown: what is not printable ASCII, and a backslash, becomes \xNN.
std::string printable(std::string_view bytes);

}  // namespace twinloft::repl::salvage
