// The input is a template and values, separated by NUL: template, from, to, detail, second recipient's to.
#include <cstdint>
#include <string>
#include <string_view>

#include "twinloft/argv/advice.h"
#include "twinloft/argv/argv.h"
#include "twinloft/base/check.h"

using namespace twinloft::argv;

namespace {

std::string_view next_field(std::string_view& rest) {
  const std::size_t end = rest.find('\0');
  const std::string_view field = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return field;
}

void check_diagnostic(const Diagnostic& d, std::string_view text) {
  TL_CHECK(d.offset <= text.size());
  TL_CHECK(d.line >= 1 && d.column >= 1);
  TL_CHECK(d.caret <= d.excerpt.size());
  TL_CHECK(d.excerpt.size() < 500);
  TL_CHECK(!d.rendered().empty());
}

void check_arguments(const Template& t, const Template::Arguments& arguments, std::size_t recipients) {
  TL_CHECK(!arguments.empty());
  TL_CHECK(arguments.size() <= t.words().size() * recipients);
  for (const std::string& a : arguments) TL_CHECK(a.find('\0') == std::string::npos);
  bool groups = false;
  for (const Word& w : t.words()) groups = groups || w.group != 0;
  if (!groups && recipients == 1) TL_CHECK(arguments.size() == t.words().size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string_view text = next_field(rest);
  const auto parsed = Template::parse(text);
  if (!parsed) {
    check_diagnostic(parsed.error(), text);
    return 0;
  }
  TL_CHECK(parsed->text() == text);
  for (const Diagnostic& d : parsed->warnings()) check_diagnostic(d, text);
  for (const Diagnostic& d : check_agent_options(*parsed)) check_diagnostic(d, text);

  Values values;
  for (const MacroName& m : mail_macros()) values[m.name] = m.name;
  for (const char* name : {"from", "to", "detail"}) values[name] = next_field(rest);
  if (const auto arguments = parsed->expand(values)) check_arguments(*parsed, *arguments, 1);
  Values second = values;
  second["to"] = next_field(rest);
  if (const auto arguments = parsed->expand_all(values, {values, second}))
    check_arguments(*parsed, *arguments, 2);
  return 0;
}
