#include "fields.h"

#include <fmt/format.h>

namespace twinloft::repl::salvage {

namespace {

std::string encode(std::string_view field) {
  if (field.empty()) return "-";
  if (field == "-") return "%2D";
  std::string out;
  for (unsigned char c : field) {
    if (c > 0x20 && c < 0x7f && c != '%')
      out += static_cast<char>(c);
    else
      out += fmt::format("%{:02X}", c);
  }
  return out;
}

int digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::optional<std::string> decode(std::string_view field) {
  if (field == "-") return "";
  std::string out;
  for (std::size_t i = 0; i < field.size(); ++i) {
    if (field[i] != '%') {
      out += field[i];
      continue;
    }
    int high = i + 2 < field.size() ? digit(field[i + 1]) : -1,
        low = i + 2 < field.size() ? digit(field[i + 2]) : -1;
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high << 4 | low);
    i += 2;
  }
  if (encode(out) != field) return std::nullopt;
  return out;
}

}  // namespace

std::string encode_fields(const std::vector<std::string>& fields) {
  std::string out;
  for (const std::string& field : fields) {
    if (!out.empty()) out += ' ';
    out += encode(field);
  }
  return out;
}

std::optional<std::vector<std::string>> decode_fields(std::string_view line) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= line.size();) {
    std::size_t end = std::min(line.find(' ', at), line.size());
    auto field = decode(line.substr(at, end - at));
    if (!field) return std::nullopt;
    out.push_back(std::move(*field));
    at = end + 1;
  }
  return out;
}

}  // namespace twinloft::repl::salvage
