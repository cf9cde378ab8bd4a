// File names in a Maildir: the unique part `sec.M<usec>P<pid>Q<n>.<host>`, then the sizes as of Dovecot, and
// in cur/ `:2,` and the flags.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "twinloft/base/clock.h"

namespace twinloft::mail {

// Replaces "/", ":", ",", blanks and control bytes by octal escapes, as the Maildir specification does for /
// and : ("\057").
std::string clean_host(std::string_view host);

class MaildirNames {
 public:
  MaildirNames(std::string_view host, pid_t pid) : host_(clean_host(host)), pid_(pid) {}
  std::string next(WallTime now);

 private:
  std::string host_;
  pid_t pid_;
  std::atomic<std::uint64_t> sequence_{0};
};

// Appends the sizes that Dovecot uses in place of stat(2): ",S=<bytes>,W=<bytes>". crlf_bytes: the size with
// CR LF line ends.
std::string with_sizes(std::string_view unique, std::uint64_t bytes, std::uint64_t crlf_bytes);

// The name without its flags, which does not change while the file exists.
std::string base_name(std::string_view name);

// The standard flags of a name, sorted, each once: D F P R S T. Dovecot's lower-case letters are keywords of
// a table in each folder, and are omitted.
std::string standard_flags(std::string_view name);
std::string with_flags(std::string_view base, std::string_view flags);  // "1.host:2,FS"

}  // namespace twinloft::mail
