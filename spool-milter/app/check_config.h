// `spool-milter check-config`: reports errors of the configuration before spool-milter runs with it.
#pragma once

#include <iosfwd>
#include <string>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/config/config.h"

namespace twinloft::spool_milter {

// lmtpd.toml as spool-milter runs with it: Config::listen is the address of [spool_milter]. Errors: also a
// missing section.
Result<lmtpd::Config> load_config(const std::string& path);

// Writes one problem a line to `err`, or "ok" and a summary to `out`. Exit codes: 0, or 78 (EX_CONFIG).
int check_config(const std::string& path, std::ostream& out, std::ostream& err);

}  // namespace twinloft::spool_milter
