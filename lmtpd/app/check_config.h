// `lmtpd check-config`: what would go wrong at run time, said before.
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

// What [tls] names, read with the privileges of the start. Null: there is no such section. Errors name the
// file.
Result<std::shared_ptr<const TlsContext>> load_tls(const TlsSettings& tls);

// Why the limit of open files, which serve raises to the hard limit, does not do for what the configuration
// allows; nullopt: it does.
std::optional<std::string> compare_open_files(const Config& config);
// The directories in which this process cannot make the files of large messages: "key: directory: why".
std::vector<std::string> try_directories(const Config& config);

// What is opened as lmtpd's user is tried as that user, in a process of its own. One problem a line to `err`,
// "ok" to `out` where there is none. Exit codes: 0, or 78 (EX_CONFIG).
int check_config(const std::string& path, std::ostream& out, std::ostream& err);

// The next hops that the configuration names, with what their TLS needs already read; the targets of the
// connector are in the same order.
Result<RouterConfig> load_routes(const Config& config);

}  // namespace twinloft::lmtpd
