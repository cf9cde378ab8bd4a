// The header of a message as filters see and change it (RFC 5322 section 2.2). Unchanged fields keep their
// bytes.
//
// The header is everything before the first line that is neither a field nor the continuation of one. The
// line that ends it is the empty line, which belongs to neither header nor body. If it is another line, the
// body begins with it.
//
// Positions count the fields of the message itself. The trace fields of this server come later, and filters
// do not see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/lmtpd/milter/answers.h"

namespace twinloft::lmtpd::milter {

class MessageHeader {
 public:
  // message: with CR LF line ends, at least up to the line that ends the header.
  static MessageHeader parse(std::string_view message);

  struct Field {
    std::string name;
    std::string bytes;  // with its name and its line ends
    // What is behind the colon: without the last line end, and with one LF between two lines. The blank
    // behind the colon is part of the value only if the filter asks for it (wish::leading_space).
    std::string value(bool with_leading_space) const;
  };
  const std::vector<Field>& fields() const { return fields_; }

  // The bytes of the message before its body: those of the header, and of the empty line.
  std::size_t bytes_in_message() const { return bytes_in_message_; }

  // A line end of a value is LF or CR LF. A line that does not begin with a blank gets one, since it would be
  // another field or end the header. with_leading_space: as above, for the filter that makes the change.
  void apply(const AddHeader& change, bool with_leading_space);     // as the last field
  void apply(const InsertHeader& change, bool with_leading_space);  // beyond the last field: as the last one
  // There is no such field: a change that removes it does nothing, and any other change adds the field.
  void apply(const ChangeHeader& change, bool with_leading_space);

  bool is_changed() const { return changed_; }
  std::uint64_t bytes() const { return bytes_; }  // of all fields
  // The header, and the empty line behind it. A message that had no empty line gets one only if the header
  // has changed, or another body follows.
  enum class NewBody { no, yes };
  std::string text(NewBody body = NewBody::no) const;

 private:
  static Field make_field(std::string_view name, std::string_view value, bool with_leading_space);
  void insert(std::size_t at, Field&& field);

  std::vector<Field> fields_;
  std::uint64_t bytes_ = 0;
  std::size_t bytes_in_message_ = 0;
  std::string empty_line_;  // with its line end; empty: there is none
  bool changed_ = false;
};

}  // namespace twinloft::lmtpd::milter
