// Maildir file names: `sec.M<usec>P<pid>Q<n>.<host>`, unique without asking the file system.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/maildir/message_writer.h"

namespace twinloft::lmtpd {

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

// `unique` with the sizes that let Dovecot answer without a stat: ",S=<bytes>,W=<bytes>".
std::string with_sizes(std::string_view unique, const StoredSize& size);

}  // namespace twinloft::lmtpd
