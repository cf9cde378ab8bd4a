// Texts with %user%, %domain% and %name% in them: the defaults of users. One pass; a value is never looked at again.
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
    std::string user, domain, name;
  };
  // `key` names the setting in errors.
  static Result<PathTemplate> parse(const char* key, std::string_view text, bool may_use_name);

  std::string expand(const Values& values) const;
  bool empty() const { return parts_.empty(); }
  bool uses_domain() const;
  // Whether what it takes from the values is one path component each (check.h).
  bool fits(const Values& values) const;

 private:
  enum class Part { literal, user, domain, name };
  Status add_macro(const char* key, std::string_view macro, std::size_t column, bool may_use_name);
  static const std::string& value_of(Part part, const std::string& literal, const Values& values);

  std::vector<std::pair<Part, std::string>> parts_;
};

}  // namespace twinloft::lmtpd
