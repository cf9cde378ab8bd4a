// `lmtpd check-command TEMPLATE [name=value ...]`: shows the arguments of a command template without running
// the command.
#pragma once

#include <iosfwd>
#include <span>
#include <string>

namespace twinloft::lmtpd {

// args: the template, then the values. Prints the array to `out` as one line of JSON, and all messages to
// `err`. A macro without a value gets a sample. Bytes that are not UTF-8 are shown as \udc80..\udcff, as by
// Python's surrogateescape. Returns an exit code (sysexits.h):
//   0   the array was printed, possibly with warnings
//   64  the template is wrong, or an argument is not name=value with a known name
//   65  a value is refused (NUL, CR, LF, a leading dash, a limit)
//   78  the array was printed, but its program does not exist or cannot be executed
int check_command(std::span<const std::string> args, std::ostream& out, std::ostream& err);

}  // namespace twinloft::lmtpd
