// Errors are values: every fallible function returns Result<T> or Status.
//
// The message of an Error is for the administrator: what was wrong, where, and what to do. `sys` keeps the
// errno, if there is one, so that callers can tell ENOSPC from EIO without parsing text.
#pragma once

#include <fmt/format.h>

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace twinloft {

enum class Errc {
  invalid,      // an argument or a setting is wrong
  not_found,    // the named object does not exist
  io,           // the operating system failed an operation (see Error::sys)
  corrupt,      // stored or received bytes fail their checks
  unavailable,  // the named object exists and cannot be used now; trying later can succeed
  timeout,      // a time limit has passed
  denied,       // the peer or the caller lacks a permission
  exhausted,    // a configured limit is reached
  conflict,     // the states of two sides contradict each other
  internal,     // a defect of this program, which continues
};

std::string_view to_string(Errc code);

struct Error {
  Errc code = Errc::internal;
  std::string message;
  int sys = 0;  // errno(3), or 0
};

template <class T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

template <class... Args>
[[nodiscard]] std::unexpected<Error> fail(Errc code, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...), 0});
}

// Appends ": " and the text of the errno to the message. The code is derived from `sys`.
[[nodiscard]] std::unexpected<Error> fail_errno_text(int sys, std::string message);

template <class... Args>
[[nodiscard]] std::unexpected<Error> fail_errno(int sys, fmt::format_string<Args...> format, Args&&... args) {
  return fail_errno_text(sys, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace twinloft

#define TL_CONCAT_IMPL(a, b) a##b
#define TL_CONCAT(a, b) TL_CONCAT_IMPL(a, b)

// TL_TRY(expr): returns the error of `expr`, if there is one, from the calling function.
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
