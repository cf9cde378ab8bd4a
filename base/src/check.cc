#include "twinloft/base/check.h"

#include <cstdio>
#include <cstdlib>

#include "log_sink.h"
#include "twinloft/base/log.h"

namespace twinloft {

namespace {
constexpr int check_write_ms = 1000;
}

void check_failed(const char* expression, const char* file, int line, const char* message) {
  char text[512];
  int n = std::snprintf(text, sizeof text, "twinloft: check failed: %s at %s:%d%s%s\n", expression, file,
                        line, message ? ": " : "", message ? message : "");
  if (n > static_cast<int>(sizeof text)) n = sizeof text;
  // Nothing that allocates or locks: the state of this process is not to be trusted any more. Nor may a
  // reader of the log that has stopped reading keep it alive.
  log_settle();
  write_within({text, static_cast<std::size_t>(n)}, check_write_ms);
  std::abort();
}

}  // namespace twinloft
