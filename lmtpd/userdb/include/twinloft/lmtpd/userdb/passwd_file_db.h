// Users `passwd-file`: a text file in Dovecot's format, read again when it has changed.
//
//   user:password:uid:gid:gecos:home:shell:extra fields
//
// Fields may be empty, and the last ones missing: then UserDefaults are used. The extra fields, which blanks
// separate, are Dovecot's and Twinloft's: what counts, and what is refused, is in dovecot_fields.h. Names are
// compared in one form: lower case, domains as A-labels.
// "#" begins a comment at the start of a line. A line that is wrong, without an end, or not the only one of
// its user is an error for that user alone.
//
// A file without any user, and one that is missing, is an error, never "no such user"; and so is a user who
// is not there for a moment after each change, since somebody may be writing it. To be safe from that, write
// another file and rename it.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

struct PasswdFileConfig {
  std::string path;
  std::string key = "%user%@%domain%";  // what the first field is of an address; "%user%" where it has no
                                        // domain
  UserDefaults defaults;
};

// Reads the file. Errors name it.
Result<std::unique_ptr<UserSource>> open_passwd_file(PasswdFileConfig config, const Clock& clock);

}  // namespace twinloft::lmtpd
