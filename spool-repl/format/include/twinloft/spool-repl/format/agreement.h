// What two replicas must be configured alike in, so that both promise the same and only one of them goes on
// alone. It travels as text in the handshake: a side that does not agree can name the setting and both
// values. docs/formats/wire.md describes it.
#pragma once

#include <string>
#include <string_view>

namespace twinloft::repl {

inline constexpr std::size_t agreement_bytes_max = 2048;

class Agreement {
 public:
  // A key of the configuration and its value, as it is written there. A long value is cut, and told from
  // others by a hash.
  void add(std::string_view key, std::string_view value);
  const std::string& text() const { return text_; }  // a line for each: key=value

 private:
  std::string text_;
};

// Names each setting that differs, with both values; empty where all agree. `there` comes from outside: what
// cannot be printed is replaced.
std::string disagreement(std::string_view here, std::string_view there);

// The lines whose keys begin with `arbiter.`: its kind and its place.
std::string arbiter_lines(std::string_view agreement);

}  // namespace twinloft::repl
