#include <algorithm>

#include "twinloft/argv/argv.h"

namespace twinloft::argv {

const std::vector<MacroName>& mail_macros() {
  static const std::vector<MacroName> names = {
      {"from", false},       {"to", true},    {"user", true}, {"detail", true}, {"domain", true},
      {"original_to", true}, {"home", true},  {"uid", true},  {"gid", true},    {"maildir", true},
      {"client", false},     {"lhlo", false}, {"id", false},  {"size", false},  {"ret", false},
      {"envid", false},      {"notify", true}};
  return names;
}

bool Word::is_literal() const {
  return std::all_of(parts.begin(), parts.end(), [](const Part& p) { return p.kind == Part::Kind::literal; });
}

bool Word::is_literal(std::string_view bytes) const {
  if (parts.empty()) return bytes.empty();
  return is_literal() && parts.front().text == bytes;
}

bool Word::per_recipient() const {
  return std::any_of(parts.begin(), parts.end(), [](const Part& p) { return p.per_recipient; });
}

bool Template::uses(std::string_view macro) const {
  return std::find(macros_.begin(), macros_.end(), macro) != macros_.end();
}

}  // namespace twinloft::argv
