// `lmtpd check-command TEMPLATE [name=value ...]`: shows what a command template becomes, without running it.
#pragma once

#include <iosfwd>
#include <span>
#include <string>

namespace twinloft::lmtpd {

// `args` starts with the template. The array goes to `out` as one line of JSON; everything else to `err`. A
// macro without a value gets a sample. Bytes that are no UTF-8 are shown as \udc80..\udcff, as Python's
// surrogateescape does. Exit codes (sysexits.h):
//   0   the array was printed; there may be warnings
//   64  the template is wrong, or an argument is not name=value with a known name; nothing was printed
//   65  the template is right and the values are refused (NUL, CR, LF, a leading dash, a limit); nothing was
//   printed 78  the array was printed, and its program does not exist or cannot be executed
int check_command(std::span<const std::string> args, std::ostream& out, std::ostream& err);

}  // namespace twinloft::lmtpd
