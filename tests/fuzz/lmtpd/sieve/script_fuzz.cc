// The output of doveconf, and the name of a user: the first line is the name, the rest is the output. A path
// of the rule never leaves the directory in which it begins, whatever the name is.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "twinloft/lmtpd/sieve/script_rule.h"

using namespace twinloft::lmtpd;

namespace {

void check_path(const ScriptPath& path, const User& user) {
  auto text = path.expand(user);
  if (!text) return;
  if ((*text + "/").find("/../") != std::string::npos) std::abort();
  if (text->empty() || text->front() != '/') std::abort();
  if (path.base(user).empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  std::size_t line = std::min(input.find('\n'), input.size());
  User user;
  user.name = input.substr(0, line);
  user.home = "/srv/mail/home";
  input.remove_prefix(std::min(line + 1, input.size()));
  auto output = parse_doveconf(input);
  if (!output) return 0;
  ScriptRule rule = decide_scripts(read_sieve_settings(*output));
  if (describe_rule(rule).empty()) std::abort();
  if (const auto* files = std::get_if<ByFile>(&rule)) {
    if (files->any_of.empty() || files->any_of.size() != files->texts.size()) std::abort();
    for (const ScriptPath& path : files->any_of) check_path(path, user);
  }
  return 0;
}
