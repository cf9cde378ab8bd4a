// Assertions, which stay on in production. A failed check stops the process with a message. Stopping is safe:
// spool-repl has its journal, and the MTA keeps every message that lmtpd has not acknowledged.
#pragma once

namespace twinloft {
[[noreturn]] void check_failed(const char* expression, const char* file, int line, const char* message);
}  // namespace twinloft

#define TL_CHECK(expr) \
  (__builtin_expect(!!(expr), 1) ? void(0) : ::twinloft::check_failed(#expr, __FILE__, __LINE__, nullptr))
#define TL_CHECK_MSG(expr, message) \
  (__builtin_expect(!!(expr), 1) ? void(0) : ::twinloft::check_failed(#expr, __FILE__, __LINE__, message))
