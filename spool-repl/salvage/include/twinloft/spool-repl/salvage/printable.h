// Text of mail users, such as names of files and folders, in a form that is safe for terminals.
#pragma once

#include <string>
#include <string_view>

namespace twinloft::repl::salvage {

// Replaces bytes that are not printable ASCII, and backslashes, by \xNN.
std::string printable(std::string_view bytes);

}  // namespace twinloft::repl::salvage
