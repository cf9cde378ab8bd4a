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
  // The state of this process is unknown, so this allocates nothing and takes no lock. A reader of the log
  // that has stopped reading must not keep the process alive.
  log_settle();
  write_within({text, static_cast<std::size_t>(n)}, check_write_ms);
  std::abort();
}

}  // namespace twinloft
