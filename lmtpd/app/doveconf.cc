#include "doveconf.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "twinloft/base/program.h"

namespace twinloft::lmtpd {

namespace {

// The line with the error. doveconf prints comments before it.
std::string_view complaint_in(std::string_view text) {
  std::string_view first;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.find("Fatal: ") != std::string_view::npos || line.find("Error: ") != std::string_view::npos)
      return line;
    if (first.empty() && !line.starts_with('#')) first = line;
  }
  return first.empty() ? "nothing" : first;
}

constexpr const char* doveconf_paths[] = {"/usr/bin/doveconf", "/usr/local/bin/doveconf"};
Result<std::string> find_doveconf() {
  for (const char* path : doveconf_paths)
    if (::access(path, X_OK) == 0) return std::string(path);
  return fail(Errc::not_found, "{} is missing: it is needed to read Dovecot's configuration",
              doveconf_paths[0]);
}

// doveconf takes milliseconds, unless a file that it reads is blocked.
constexpr std::chrono::seconds answer_time{15};

// Returns standard output. If the program fails, the error has a line of its output.
Result<std::string> run(const std::vector<std::string>& words) {
  OsClock clock;
  auto ran = ProgramRunner(clock).run(words, "", clock.now() + answer_time);
  if (!ran && ran.error().code == Errc::timeout)
    return fail(Errc::timeout,
                "{} has not ended within {} s: it may wait for a file that Dovecot's configuration names",
                words[0], answer_time / std::chrono::seconds(1));
  if (!ran) return std::unexpected(std::move(ran).error());
  if (ran->exit_code == 0) return std::move(ran->out);
  return fail(Errc::invalid, "{} says: {}", words[0], complaint_in(ran->err + ran->out));
}

}  // namespace

Result<Doveconf> Doveconf::find(std::string config_path) {
  TL_TRY_ASSIGN(std::string program, find_doveconf());
  return Doveconf(std::move(program), std::move(config_path));
}

Result<std::string> Doveconf::ask(const std::vector<std::string>& words) const {
  std::vector<std::string> command = {program_, "-c", config_};
  command.insert(command.end(), words.begin(), words.end());
  return run(command);
}

Result<std::string> Doveconf::value(const std::string& name, const std::string& protocol) const {
  std::vector<std::string> words = {"-h", name};
  if (!protocol.empty()) words.insert(words.begin(), {"-f", "protocol=" + protocol});
  TL_TRY_ASSIGN(std::string text, ask(words));
  text.resize(std::min(text.find('\n'), text.size()));
  return text;
}

Result<bool> Doveconf::is_2_4() const {
  TL_TRY_ASSIGN(std::string text, ask({"-n"}));
  int major = 0, minor = 0;
  if (std::sscanf(text.c_str(), "# %d.%d", &major, &minor) != 2)
    return fail(Errc::invalid, "{} does not print its version", program_);
  return major > 2 || (major == 2 && minor >= 4);
}

}  // namespace twinloft::lmtpd
