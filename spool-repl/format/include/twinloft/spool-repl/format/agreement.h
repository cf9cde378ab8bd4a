// The settings that must be equal on two replicas, so that both give the same guarantees and only one of them
// continues alone. They are sent as text in the handshake, so that each side can name the settings that
// differ and both values. docs/formats/wire.md describes the text.
#pragma once

#include <string>
#include <string_view>

namespace twinloft::repl {

inline constexpr std::size_t agreement_bytes_max = 2048;

class Agreement {
 public:
  // Adds a key of the configuration, and its value as in the configuration file. A long value is cut, and a
  // hash of it is appended.
  void add(std::string_view key, std::string_view value);
  const std::string& text() const { return text_; }  // lines of key=value

 private:
  std::string text_;
};

// Each setting that differs, with both values. Empty: all are equal. `there` is the peer's text; bytes that
// cannot be printed are replaced.
std::string disagreement(std::string_view here, std::string_view there);

// The lines whose keys begin with `arbiter.`: the kind and the address of the arbiter.
std::string arbiter_lines(std::string_view agreement);

}  // namespace twinloft::repl
