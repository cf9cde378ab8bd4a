#include "twinloft/lmtpd/check/checker.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ostream>
#include <string_view>

#include "twinloft/base/fd.h"
#include "twinloft/base/process.h"

namespace twinloft::lmtpd {

namespace {

using Checks = std::function<void(Checker&)>;

constexpr char problem_mark = 'p', warning_mark = 'w';

[[noreturn]] void check_in_child(const Identity& identity, const Checks& checks, int report) {
  Checker check;
  if (Status dropped = drop_privileges(identity); !dropped)
    check.problem("user: " + dropped.error().message);
  else
    checks(check);
  std::string text;
  for (const std::string& problem : check.problems()) ((text += problem_mark) += problem) += '\0';
  for (const std::string& warning : check.warnings()) ((text += warning_mark) += warning) += '\0';
  ::_exit(write_all(report, as_bytes(text)) ? 0 : EX_OSERR);
}

// The child reports by the pipe. An early end of the child is an error, even if it has reported no problem.
Status check_in_process_of(const Identity& identity, const Checks& checks, Checker& check) {
  constexpr std::size_t report_bytes_max = 64u << 20;
  TL_TRY_ASSIGN(PipeEnds report, make_pipe());
  pid_t child = ::fork();
  if (child < 0) return fail_errno(errno, "fork");
  if (child == 0) check_in_child(identity, checks, report.write.get());
  report.write.reset();
  auto read = read_to_end(report.read.get(), report_bytes_max);
  report.read.reset();  // a child with a longer report ends by SIGPIPE
  int status = wait_for_child(child);
  TL_TRY_ASSIGN(std::string text, std::move(read));
  for (std::size_t at = 0, end; (end = text.find('\0', at)) != std::string::npos; at = end + 1)
    if (text[at] == warning_mark)
      check.warning(text.substr(at + 1, end - at - 1));
    else
      check.problem(text.substr(at + 1, end - at - 1));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return fail(Errc::internal, "the check as uid {} ended early, status {}", identity.uid, status);
  return {};
}

// A template's message has a caret below it, and its own line end.
void write_line(std::ostream& err, std::string_view mark, std::string_view text) {
  err << mark << text << (text.ends_with('\n') ? "" : "\n");
}

}  // namespace

bool GoodSections::operator()(std::initializer_list<const char*> sections) const {
  return std::ranges::none_of(sections, [this](const char* section) { return bad.contains(section); });
}

void check_as(const Identity& identity, const std::string& user, const Checks& checks, Checker& check,
              std::ostream& err) {
  if (::geteuid() == 0) {
    if (Status checked = check_in_process_of(identity, checks, check); !checked)
      check.problem(checked.error().message);
    return;
  }
  if (::geteuid() != identity.uid)
    err << "warning: files are checked as uid " << ::geteuid() << ", not as " << user
        << ": only root can become this user\n";
  checks(check);
}

int check_config_file(const std::string& path, const ConfigCheck& program, std::ostream& out,
                      std::ostream& err) {
  auto read = read_config(path);
  if (!read) {
    err << read.error().message << "\n";
    return EX_CONFIG;
  }
  const Config& config = read->config;
  for (const std::string& error : read->errors) write_line(err, "", error);
  for (const std::string& warning : config.warnings) write_line(err, "warning: ", warning);
  Checker check;
  program.machine(*read, check, err);
  for (const std::string& warning : check.warnings()) err << "warning: " << warning << "\n";
  for (const std::string& problem : check.problems()) err << config.file << ": " << problem << "\n";
  if (!read->errors.empty() || !check.problems().empty()) return EX_CONFIG;
  out << "ok\n" << program.summary(config);
  return 0;
}

}  // namespace twinloft::lmtpd
