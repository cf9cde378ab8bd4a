#include "twinloft/lmtpd/config/check_command.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ostream>
#include <string_view>

#include "twinloft/argv/advice.h"
#include "twinloft/argv/argv.h"
#include "twinloft/base/utf8.h"

namespace twinloft::lmtpd {
namespace {

constexpr int kOk = 0;
constexpr int kUsage = 64;      // EX_USAGE
constexpr int kDataError = 65;  // EX_DATAERR
constexpr int kConfig = 78;     // EX_CONFIG

constexpr std::string_view kUsageText =
    "usage: lmtpd check-command TEMPLATE [name=value ...]\n"
    "Prints the argument vector that TEMPLATE becomes, as JSON. Quote the template for your shell:\n"
    "  lmtpd check-command '/usr/lib/dovecot/dovecot-lda -e -f %from% -a %to% -d %user%' \\\n"
    "    to=user+folder@example.org user=user@example.org\n";

// Names and addresses reserved for documentation (RFC 2606, RFC 5737).
const argv::Values& samples() {
  static const argv::Values values = {{"from", "sender@example.net"},
                                      {"to", "user+folder@example.org"},
                                      {"user", "user@example.org"},
                                      {"detail", "folder"},
                                      {"domain", "example.org"},
                                      {"original_to", "alias@example.org"},
                                      {"home", "/srv/mail/user"},
                                      {"uid", "1000"},
                                      {"gid", "1000"},
                                      {"maildir", "/srv/mail/user/Maildir"},
                                      {"client", "192.0.2.1"},
                                      {"lhlo", "mx.example.net"},
                                      {"id", "3f1c9a6e"},
                                      {"size", "71680"},
                                      {"ret", "HDRS"},
                                      {"envid", "envelope-1"},
                                      {"notify", "FAILURE"}};
  return values;
}

// RFC 8259, section 7.
std::string json_string(std::string_view text, bool& has_stray_bytes) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0) {
      has_stray_bytes = true;
      out += fmt::format("\\udc{:02x}", byte);
    } else if (byte == '"' || byte == '\\') {
      out += {'\\', text[at]};
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += text.substr(at, length);
    }
    at += std::max<std::size_t>(length, 1);
  }
  return out + '"';
}

std::string json_array(const std::vector<std::string>& arguments, std::ostream& err) {
  std::string out = "[";
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    bool stray = false;
    out += (i == 0 ? "" : ", ") + json_string(arguments[i], stray);
    if (stray)
      err << fmt::format("note: argument {} is not UTF-8; its stray bytes are shown as \\udc80..\\udcff\n",
                         i);
  }
  return out + "]\n";
}

bool is_macro(std::string_view name) {
  const auto& known = argv::mail_macros();
  return std::any_of(known.begin(), known.end(), [&](const argv::MacroName& m) { return m.name == name; });
}

// False after an error message.
bool read_values(std::span<const std::string> args, argv::Values& values, std::ostream& err) {
  for (const std::string& arg : args) {
    const std::size_t equals = arg.find('=');
    const std::string name = arg.substr(0, equals);
    bool ignored = false;
    if (equals == std::string::npos) {
      err << "error: " << json_string(arg, ignored)
          << " is not name=value; is the template quoted for your shell?\n";
      return false;
    }
    if (!is_macro(name)) {
      err << "error: there is no macro " << json_string(name, ignored) << "; known are";
      for (const argv::MacroName& m : argv::mail_macros()) err << ' ' << m.name;
      err << '\n';
      return false;
    }
    values.insert_or_assign(name, arg.substr(equals + 1));
  }
  return true;
}

void add_samples(const argv::Template& command, argv::Values& values, std::ostream& err) {
  std::string added;
  for (const std::string& name : command.macros())
    if (values.insert(*samples().find(name)).second) added += ' ' + name;
  if (!added.empty()) err << "note: sample values are used for:" << added << '\n';
}

// The errno with which execv() would fail, as far as that can be found without running the program. 0: none.
int why_not_executable(const std::string& path) {
  struct stat st{};
  if (stat(path.c_str(), &st) != 0) return errno;
  if (!S_ISREG(st.st_mode)) return S_ISDIR(st.st_mode) ? EISDIR : EACCES;
  return access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

// As execvp(3): the first entry of PATH that can be executed, or the first error other than "no such file".
int search_path(const std::string& program) {
  const char* variable = std::getenv("PATH");
  std::string_view path = variable != nullptr ? variable : "/usr/bin:/bin";
  int result = ENOENT;
  for (;;) {
    const std::size_t colon = path.find(':');
    const std::string folder(path.substr(0, colon));
    const int why = why_not_executable((folder.empty() ? "." : folder) + "/" + program);
    if (why == 0) return 0;
    if (why == EACCES) result = EACCES;
    if (colon == std::string_view::npos) return result;
    path.remove_prefix(colon + 1);
  }
}

int check_program(const std::string& program, std::ostream& err) {
  bool ignored = false;
  const std::string shown = json_string(program, ignored);
  const bool has_slash = program.find('/') != std::string::npos;
  if (!program.starts_with('/'))
    err << "warning: " << shown << " is not an absolute path: what it names depends on "
        << (has_slash ? "the working directory" : "PATH") << '\n';
  const int why = has_slash ? why_not_executable(program) : search_path(program);
  if (why == 0) return kOk;
  err << "error: the program " << shown << " cannot be run: " << std::strerror(why)
      << "; every delivery with this template would be answered 451 4.3.5\n";
  return kConfig;
}

}  // namespace

int check_command(std::span<const std::string> args, std::ostream& out, std::ostream& err) {
  if (args.empty() || args.front() == "--help" || args.front() == "-h") {
    (args.empty() ? err : out) << kUsageText;
    return args.empty() ? kUsage : kOk;
  }
  const auto command = argv::Template::parse(args.front());
  if (!command) {
    err << "error: " << command.error().rendered();
    return kUsage;
  }
  argv::Values values;
  if (!read_values(args.subspan(1), values, err)) return kUsage;
  for (const auto& warning : command->warnings()) err << "warning: " << warning.rendered();
  for (const auto& warning : argv::check_agent_options(*command)) err << "warning: " << warning.rendered();
  add_samples(*command, values, err);

  const auto arguments = command->expand(values);
  if (!arguments) {
    err << "error: " << arguments.error().message << '\n';
    return kDataError;
  }
  out << json_array(*arguments, err);
  out.flush();
  return check_program(arguments->front(), err);
}

}  // namespace twinloft::lmtpd
