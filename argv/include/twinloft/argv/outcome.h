// A value or an error. It needs C++17 alone, so that programs of other projects can use the library. Inside
// this project, result.h converts an Outcome to a twinloft::Result.
#pragma once

#include <utility>
#include <variant>

namespace twinloft::argv {

template <class T, class E>
class [[nodiscard]] Outcome {
 public:
  Outcome(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Outcome(E error) : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state_.index() == 0; }
  bool has_value() const { return state_.index() == 0; }

  // Throws std::bad_variant_access if the outcome is an error.
  T& value() { return std::get<0>(state_); }
  const T& value() const { return std::get<0>(state_); }
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }

  // Throws std::bad_variant_access if the outcome is a value.
  const E& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, E> state_;
};

}  // namespace twinloft::argv
