// What errno(3) means, in words.
#pragma once

#include <string>

namespace twinloft {

std::string errno_text(int error);  // "Input/output error"; strerror_r(3)

}  // namespace twinloft
