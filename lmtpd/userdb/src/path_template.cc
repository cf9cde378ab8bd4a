#include "path_template.h"

#include <algorithm>

#include "twinloft/lmtpd/userdb/check.h"

namespace twinloft::lmtpd {

Result<PathTemplate> PathTemplate::parse(const char* key, std::string_view text, bool may_use_name) {
  PathTemplate out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t percent = std::min(text.find('%', at), text.size());
    if (percent > at) out.parts_.push_back({Part::literal, std::string(text.substr(at, percent - at))});
    if (percent == text.size()) break;
    std::size_t end = text.find('%', percent + 1);
    if (end == std::string_view::npos)
      return fail(Errc::invalid, "{}: column {}: a lone \"%\"; write \"%%\" for a percent sign", key, percent + 1);
    TL_TRY(out.add_macro(key, text.substr(percent + 1, end - percent - 1), percent + 1, may_use_name));
    at = end + 1;
  }
  return out;
}

Status PathTemplate::add_macro(const char* key, std::string_view macro, std::size_t column, bool may_use_name) {
  if (macro.empty()) parts_.push_back({Part::literal, "%"});
  else if (macro == "user") parts_.push_back({Part::user, {}});
  else if (macro == "domain") parts_.push_back({Part::domain, {}});
  else if (macro == "name" && may_use_name) parts_.push_back({Part::name, {}});
  else
    return fail(Errc::invalid, "{}: column {}: unknown macro %{}%; known are %user%, %domain%{}", key, column, macro,
                may_use_name ? " and %name%" : "");
  return {};
}

const std::string& PathTemplate::value_of(Part part, const std::string& literal, const Values& values) {
  return part == Part::user ? values.user : part == Part::domain ? values.domain : part == Part::name ? values.name : literal;
}

std::string PathTemplate::expand(const Values& values) const {
  std::string out;
  for (const auto& [part, text] : parts_) out += value_of(part, text, values);
  return out;
}

bool PathTemplate::uses_domain() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const auto& p) { return p.first == Part::domain; });
}

bool PathTemplate::fits(const Values& values) const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [&](const auto& p) { return p.first == Part::literal || fits_path(value_of(p.first, p.second, values)); });
}

}  // namespace twinloft::lmtpd
