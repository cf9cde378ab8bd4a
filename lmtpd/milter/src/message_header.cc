#include "twinloft/lmtpd/milter/message_header.h"

#include <algorithm>
#include <utility>

namespace twinloft::lmtpd::milter {

namespace {

constexpr std::string_view line_end = "\r\n";

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

// The line at the front of `text`, with its line end.
std::string_view first_line(std::string_view text) {
  std::size_t end = text.find('\n');
  return text.substr(0, end == std::string_view::npos ? end : end + 1);
}

// The name of the field that begins with this line. Blanks before the colon are obsolete syntax (RFC 5322
// section 4.5.8) and belong to no name. Empty: the line begins no field.
std::string_view field_name(std::string_view line) {
  std::size_t end = 0;
  while (end < line.size() && line[end] > 32 && line[end] < 127 && line[end] != ':') ++end;
  std::size_t colon = end;
  while (colon < line.size() && is_blank(line[colon])) ++colon;
  return colon < line.size() && line[colon] == ':' ? line.substr(0, end) : std::string_view();
}

bool is_empty_line(std::string_view line) {
  return line == line_end || line == "\n";
}

std::string_view without_line_end(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

}  // namespace

MessageHeader MessageHeader::parse(std::string_view message) {
  MessageHeader header;
  std::string_view rest = message;
  while (!rest.empty()) {
    std::string_view line = first_line(rest);
    if (is_empty_line(line)) {
      header.empty_line_ = line;
      rest.remove_prefix(line.size());
      break;
    }
    std::string_view name = field_name(line);
    if (!header.fields_.empty() && is_blank(line[0]))
      header.fields_.back().bytes += line;
    else if (!name.empty())
      header.fields_.push_back({std::string(name), std::string(line)});
    else
      break;
    rest.remove_prefix(line.size());
  }
  header.bytes_in_message_ = message.size() - rest.size();
  for (const Field& field : header.fields_) header.bytes_ += field.bytes.size();
  return header;
}

std::string MessageHeader::Field::value(bool with_leading_space) const {
  std::string_view rest = std::string_view(bytes).substr(bytes.find(':') + 1);
  rest = without_line_end(rest);
  if (!with_leading_space && rest.starts_with(' ')) rest.remove_prefix(1);
  std::string value;
  value.reserve(rest.size());
  for (std::size_t i = 0; i < rest.size(); ++i)
    if (rest[i] != '\r' || i + 1 == rest.size() || rest[i + 1] != '\n') value += rest[i];
  return value;
}

MessageHeader::Field MessageHeader::make_field(std::string_view name, std::string_view value,
                                               bool with_leading_space) {
  Field field{std::string(name), std::string(name)};
  field.bytes += ':';
  if (!with_leading_space && !value.empty()) field.bytes += ' ';
  value = without_line_end(value);
  while (true) {
    std::string_view line = first_line(value);
    const std::size_t begin = field.bytes.size();
    field.bytes += without_line_end(line);
    // Some readers take a bare CR as a line end.
    std::replace(field.bytes.begin() + static_cast<std::ptrdiff_t>(begin), field.bytes.end(), '\r', ' ');
    field.bytes += line_end;
    value.remove_prefix(line.size());
    if (value.empty()) break;
    if (!is_blank(value[0])) field.bytes += '\t';
  }
  return field;
}

void MessageHeader::insert(std::size_t at, Field&& field) {
  bytes_ += field.bytes.size();
  fields_.insert(fields_.begin() + static_cast<std::ptrdiff_t>(at), std::move(field));
  changed_ = true;
}

void MessageHeader::apply(const AddHeader& change, bool with_leading_space) {
  insert(fields_.size(), make_field(change.name, change.value, with_leading_space));
}

void MessageHeader::apply(const InsertHeader& change, bool with_leading_space) {
  insert(std::min<std::size_t>(change.at, fields_.size()),
         make_field(change.name, change.value, with_leading_space));
}

void MessageHeader::apply(const ChangeHeader& change, bool with_leading_space) {
  std::uint32_t seen = 0;
  auto found = std::find_if(fields_.begin(), fields_.end(), [&](const Field& field) {
    return same_name(field.name, change.name) && ++seen == std::max(change.which, 1u);
  });
  if (change.value.empty() && found == fields_.end()) return;
  auto at = static_cast<std::size_t>(found - fields_.begin());
  std::string name = found == fields_.end() ? change.name : found->name;
  if (found != fields_.end()) {
    bytes_ -= found->bytes.size();
    fields_.erase(found);
    changed_ = true;
  }
  if (!change.value.empty()) insert(at, make_field(name, change.value, with_leading_space));
}

std::string MessageHeader::text(NewBody body) const {
  const bool changed = changed_ || body == NewBody::yes;
  std::string text;
  for (const Field& field : fields_) {
    text += field.bytes;
    if (changed && !text.ends_with('\n')) text += line_end;  // the message ended within the field
  }
  text += empty_line_.empty() && changed ? line_end : empty_line_;
  return text;
}

}  // namespace twinloft::lmtpd::milter
