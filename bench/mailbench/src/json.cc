#include "twinloft/mailbench/json.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "twinloft/base/check.h"

namespace twinloft::mailbench {

namespace {
void append_quoted(std::string_view text, std::string& out) {
  out += '"';
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (byte < 0x20)
      out += fmt::format("\\u{:04x}", byte);
    else if (byte >= 0x80)
      out += fmt::format("\\u{:04x}", byte);  // file names need not be UTF-8: as Latin-1
    else
      out += c;
  }
  out += '"';
}
}  // namespace

void JsonWriter::lead(std::string_view key) {
  if (!first_) out_ += ',';
  if (!closers_.empty()) out_.append("\n").append(closers_.size() * 2, ' ');
  first_ = false;
  if (key.empty()) return;
  append_quoted(key, out_);
  out_ += ": ";
}

void JsonWriter::open(std::string_view key, char bracket) {
  lead(key);
  out_ += bracket;
  closers_ += bracket == '{' ? '}' : ']';
  first_ = true;
}

void JsonWriter::close() {
  TL_CHECK(!closers_.empty());
  char closer = closers_.back();
  closers_.pop_back();
  if (!first_) out_.append("\n").append(closers_.size() * 2, ' ');
  out_ += closer;
  first_ = false;
}

void JsonWriter::raw(std::string_view key, std::string_view value) {
  lead(key);
  out_ += value;
}

void JsonWriter::text(std::string_view key, std::string_view value) {
  lead(key);
  append_quoted(value, out_);
}

void JsonWriter::number(std::string_view key, double value) {
  raw(key, std::isfinite(value) ? fmt::format("{:.10g}", value) : "null");
}

std::string JsonWriter::take() {
  TL_CHECK(closers_.empty());
  first_ = true;
  return std::exchange(out_, {}) + "\n";
}

}  // namespace twinloft::mailbench
