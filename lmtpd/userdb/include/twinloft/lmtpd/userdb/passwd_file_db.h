// Users `passwd-file`: a text file in Dovecot's format, which is read again after each change.
//
//   user:password:uid:gid:gecos:home:shell:extra fields
//
// UserDefaults replace empty and missing fields. The extra fields are those of Dovecot and Twinloft,
// separated by blanks: see dovecot_fields.h. Names are compared in lower case, with domains as A-labels. "#"
// at the start of a line begins a comment. A malformed line, a line without an end, and several lines of a
// user are an error for that user alone.
//
// A missing file and a file without users are errors. For 2 s after a change, an unknown user is an error too
// (Errc::conflict, 451), because the file may be half-written. A new file that is renamed into place avoids
// this.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

struct PasswdFileConfig {
  std::string path;
  std::string key = "%user%@%domain%";  // the first field. "%user%" for an address without a domain
  UserDefaults defaults;
};

// Reads the file. Errors contain its name.
Result<std::unique_ptr<UserSource>> open_passwd_file(PasswdFileConfig config, const Clock& clock);

}  // namespace twinloft::lmtpd
