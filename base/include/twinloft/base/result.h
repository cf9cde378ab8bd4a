// Errors are values: every fallible function returns Result<T> or Status.
//
// An Error says what was wrong, where, and what to do, in one sentence that is
// fit to be shown to the administrator. `sys` keeps the errno where one exists,
// so that callers can tell ENOSPC from EIO without parsing text.
#pragma once

#include <fmt/format.h>

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace twinloft {

enum class Errc {
  invalid,      // the caller's or the user's input is wrong
  not_found,    // it does not exist
  io,           // the operating system failed an operation (see Error::sys)
  corrupt,      // stored or received bytes fail their checks
  unavailable,  // it exists and cannot be used now; trying later can succeed
  timeout,      // a bound on time ran out
  denied,       // the peer or caller is not allowed to
  exhausted,    // a configured limit is reached
  conflict,     // the state on both sides does not fit together
  internal,     // a defect of this program, survived
};

std::string_view to_string(Errc code);

struct Error {
  Errc code = Errc::internal;
  std::string message;
  int sys = 0;  // errno, 0 where there is none
};

template <class T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

template <class... Args>
[[nodiscard]] std::unexpected<Error> fail(Errc code, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...), 0});
}

// The message gets ": <strerror>" appended. The code is derived from `sys`.
[[nodiscard]] std::unexpected<Error> fail_errno_text(int sys, std::string message);

template <class... Args>
[[nodiscard]] std::unexpected<Error> fail_errno(int sys, fmt::format_string<Args...> format, Args&&... args) {
  return fail_errno_text(sys, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace twinloft

#define TL_CONCAT_IMPL(a, b) a##b
#define TL_CONCAT(a, b) TL_CONCAT_IMPL(a, b)

// TL_TRY(expr): returns the error of `expr` from this function, if it has one.
#define TL_TRY(expr)                                            \
  do {                                                          \
    if (auto tl_try_result = (expr); !tl_try_result)            \
      return std::unexpected(std::move(tl_try_result).error()); \
  } while (0)

// TL_TRY_ASSIGN(auto x, expr): declares or assigns x, or returns the error.
#define TL_TRY_ASSIGN(target, expr) TL_TRY_ASSIGN_IMPL(TL_CONCAT(tl_try_, __LINE__), target, expr)
#define TL_TRY_ASSIGN_IMPL(tmp, target, expr)               \
  auto tmp = (expr);                                        \
  if (!tmp) return std::unexpected(std::move(tmp).error()); \
  target = std::move(*tmp)
