#include "twinloft/base/check.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace twinloft {

void check_failed(const char* expression, const char* file, int line, const char* message) {
  char text[512];
  int n = std::snprintf(text, sizeof text, "twinloft: check failed: %s at %s:%d%s%s\n", expression, file, line,
                        message ? ": " : "", message ? message : "");
  if (n > static_cast<int>(sizeof text)) n = sizeof text;
  // Nothing that allocates or locks: the state of this process is not to be trusted any more.
  [[maybe_unused]] ssize_t ignored = ::write(STDERR_FILENO, text, static_cast<size_t>(n));
  std::abort();
}

}  // namespace twinloft
