// Maildir file names: `sec.M<usec>P<pid>Q<n>.<host>`, unique without asking the file system; then sizes, as
// Dovecot has them, and in cur/ `:2,` and flags.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "twinloft/base/clock.h"

namespace twinloft::mail {

// "/" ":" "," blanks and control bytes become octal escapes, as the Maildir specification has it for / and :
// ("\057").
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

// `unique` with the sizes that let Dovecot answer without a stat: ",S=<bytes>,W=<bytes>". `crlf_bytes`: when
// all its line ends are CR LF.
std::string with_sizes(std::string_view unique, std::uint64_t bytes, std::uint64_t crlf_bytes);

// A name without its flags: what a file keeps for as long as it exists.
std::string base_name(std::string_view name);

// The flags of a name, sorted, each once: D F P R S T. Dovecot's lower-case letters stand for keywords, by a
// table that each folder has of its own, and are left out.
std::string standard_flags(std::string_view name);
std::string with_flags(std::string_view base, std::string_view flags);  // "1.host:2,FS"

}  // namespace twinloft::mail
