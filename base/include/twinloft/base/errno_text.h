// The text of an errno(3).
#pragma once

#include <string>

namespace twinloft {

std::string errno_text(int error);  // "Input/output error"; strerror_r(3)

}  // namespace twinloft
