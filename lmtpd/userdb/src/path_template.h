// Texts with %user%, %domain%, %name% and %home%: the defaults of users. Expanded in one pass: macros in
// values are not expanded.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

class PathTemplate {
 public:
  struct Values {
    std::string user, domain, name, home;
  };
  enum class Part { literal, user, domain, name, home };
  // key: the setting, for errors. last: the last of the known macros.
  static Result<PathTemplate> parse(const char* key, std::string_view text, Part last);

  std::string expand(const Values& values) const;
  bool empty() const { return parts_.empty(); }
  bool uses_domain() const;
  // Whether each value except the home is a single path component (check.h).
  bool fits(const Values& values) const;

 private:
  Status add_macro(const char* key, std::string_view macro, std::size_t column, Part last);
  static const std::string& value_of(Part part, const std::string& literal, const Values& values);

  std::vector<std::pair<Part, std::string>> parts_;
};

}  // namespace twinloft::lmtpd
