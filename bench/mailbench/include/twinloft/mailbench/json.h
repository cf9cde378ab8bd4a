// Writes JSON (RFC 8259), indented. Keys are in the order of the calls; the caller closes what it opens.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace twinloft::mailbench {

class JsonWriter {
 public:
  // `key` is empty within arrays and at the top.
  void open_object(std::string_view key = {}) { open(key, '{'); }
  void open_array(std::string_view key = {}) { open(key, '['); }
  void close();  // the innermost object or array
  void text(std::string_view key, std::string_view value);
  void number(std::string_view key, double value);  // not finite: null
  void number(std::string_view key, std::integral auto value) { raw(key, std::to_string(value)); }
  void boolean(std::string_view key, bool value) { raw(key, value ? "true" : "false"); }
  // The document with a line feed at its end; everything must be closed.
  std::string take();

 private:
  void open(std::string_view key, char bracket);
  void raw(std::string_view key, std::string_view value);
  void lead(std::string_view key);
  std::string out_;
  std::string closers_;
  bool first_ = true;
};

}  // namespace twinloft::mailbench
