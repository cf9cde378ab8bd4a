#include "twinloft/lmtpd/agents/agent_spec.h"

#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "twinloft/argv/advice.h"
#include "twinloft/argv/result.h"

namespace twinloft::lmtpd {

namespace {

constexpr int exit_not_executable = 126;  // POSIX sh: found, and cannot be run
constexpr int exit_not_found = 127;       // POSIX sh: not found

bool is_word(std::string_view text) {
  auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), fits);
}

bool is_environment_name(std::string_view name) {
  return !name.empty() && name.find('=') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

// "5.1.1": a class digit, then two numbers of up to three digits (RFC 3463 section 2).
bool is_enhanced(std::string_view text) {
  if (text.size() < 5 || (text[0] != '2' && text[0] != '4' && text[0] != '5') || text[1] != '.') return false;
  std::string_view rest = text.substr(2);
  std::size_t dot = rest.find('.');
  if (dot == std::string_view::npos) return false;
  auto number = [](std::string_view part) {
    return !part.empty() && part.size() <= 3 &&
           std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  return number(rest.substr(0, dot)) && number(rest.substr(dot + 1));
}

}  // namespace

ExitMap::ExitMap() {
  replies_[EX_OK] = {250, "2.0.0"};
  for (int code : {EX_USAGE, EX_CONFIG, exit_not_executable, exit_not_found}) replies_[code] = {451, "4.3.5"};
  replies_[EX_DATAERR] = {554, "5.6.0"};
  replies_[EX_NOUSER] = {451, "4.3.0"};  // lmtpd has found the user: the agent looked for another name
  for (int code : {EX_UNAVAILABLE, EX_SOFTWARE}) replies_[code] = {554, "5.3.0"};
  for (int code : {EX_OSERR, EX_IOERR, EX_TEMPFAIL}) replies_[code] = {451, "4.3.0"};
  replies_[EX_CANTCREAT] = {451, "4.2.0"};
  replies_[EX_NOPERM] = {550, "5.7.1"};
}

ExitReply ExitMap::of(int exit_code) const {
  auto found = replies_.find(exit_code);
  return found == replies_.end() ? ExitReply{} : found->second;
}

Status ExitMap::set(int exit_code, std::string_view text) {
  if (exit_code < 0 || exit_code > 255)
    return fail(Errc::invalid, "exit code {} is not within 0 to 255", exit_code);
  ExitReply reply;
  std::size_t blank = text.find(' ');
  std::string_view digits = text.substr(0, blank);
  auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), reply.code);
  bool fits = parsed.ec == std::errc{} && parsed.ptr == digits.data() + digits.size() && digits.size() == 3 &&
              (reply.code == 250 || (reply.code >= 400 && reply.code <= 599)) &&
              blank != std::string_view::npos && is_enhanced(text.substr(blank + 1)) &&
              text[blank + 1] == text[0];
  if (!fits)
    return fail(Errc::invalid,
                "exit code {}: \"{}\" is not a reply; write \"250 2.0.0\", \"4xx 4.x.x\" or \"5xx 5.x.x\", "
                "such as \"451 4.3.0\"",
                exit_code, text);
  reply.enhanced = text.substr(blank + 1);
  replies_[exit_code] = std::move(reply);
  return {};
}

namespace {

Status check_template(const AgentSpec& spec, std::vector<std::string>* warnings) {
  TL_TRY_ASSIGN(argv::Template command,
                argv::parse_template("agent." + spec.name + ".command", spec.command));
  const argv::Word& program = command.words().front();
  if (!program.is_literal() || program.parts.empty() || program.parts.front().text.front() != '/')
    return fail(Errc::invalid, "agent.{}.command: the program must be an absolute path without macros",
                spec.name);
  if (!warnings) return {};
  for (const argv::Diagnostic& d : command.warnings())
    warnings->push_back("agent." + spec.name + ".command: " + d.rendered());
  for (const argv::Diagnostic& d : argv::check_agent_options(command))
    warnings->push_back("agent." + spec.name + ".command: " + d.rendered());
  const std::string& path = program.parts.front().text;
  if (::access(path.c_str(), X_OK) != 0)
    warnings->push_back("agent." + spec.name + ".command: " + path +
                        " is missing or not executable; until this is corrected, its mail gets 451 4.3.5");
  return {};
}

}  // namespace

Status check_agent_spec(const AgentSpec& spec, std::vector<std::string>* warnings) {
  if (!is_word(spec.name) || spec.name == "maildir")
    return fail(Errc::invalid,
                "agent name \"{}\": use letters, digits, \"-\" and \"_\"; \"maildir\" is the built-in agent",
                spec.name);
  TL_TRY(check_template(spec, warnings));
  if (spec.time_limit.count() <= 0 || spec.kill_grace.count() < 0)
    return fail(Errc::invalid, "agent.{}: time_limit must be above 0 and kill_grace not below", spec.name);
  if (spec.output_bytes_max > 65536)
    return fail(Errc::invalid, "agent.{}: output_bytes_max is {}; at most 65536", spec.name,
                spec.output_bytes_max);
  for (const std::string& name : spec.pass_environment)
    if (!is_environment_name(name))
      return fail(Errc::invalid, "agent.{}: \"{}\" is not a name of an environment variable", spec.name,
                  name);
  for (const auto& [name, value] : spec.set_environment)
    if (!is_environment_name(name) || value.find('\0') != std::string::npos)
      return fail(Errc::invalid, "agent.{}: \"{}\" cannot be set in the environment", spec.name, name);
  return {};
}

}  // namespace twinloft::lmtpd
