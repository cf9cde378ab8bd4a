// `lmtpd check-config`: reports errors of the configuration before lmtpd runs with it.
#pragma once

#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/route/router.h"

namespace twinloft::lmtpd {

// Reads the files of [tls]. Call it before privileges are dropped. Null: no certificate is configured. Errors
// name the file.
Result<std::shared_ptr<const TlsContext>> load_tls(const TlsSettings& tls);

// Why the hard limit of open files is too low for the configured limits; nullopt: it suffices. serve raises
// the soft limit to the hard limit.
std::optional<std::string> compare_open_files(const Config& config);
// The directories in which this process cannot make the files of large messages: "key: directory: why".
std::vector<std::string> try_directories(const Config& config);

// Files of lmtpd's own user are checked as this user, in a separate process. Writes one problem a line to
// `err`, or "ok" to `out`. Exit codes: 0, or 78 (EX_CONFIG).
int check_config(const std::string& path, std::ostream& out, std::ostream& err);

// The configured next hops, with their TLS files read. The targets of the connector are in the same order.
Result<RouterConfig> load_routes(const Config& config);

}  // namespace twinloft::lmtpd
