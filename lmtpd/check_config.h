// `lmtpd check-config`: what would go wrong at run time, said before.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/route/router.h"

namespace twinloft::lmtpd {

// What [tls] names, read by whoever may: before privileges are dropped. Null: there is no such section. Errors name the file.
Result<std::shared_ptr<const TlsContext>> load_tls(const TlsSettings& tls);

// What is opened as lmtpd's user is tried as that user, in a process of its own. One problem a line to `err`, "ok" to
// `out` where there is none. Exit codes: 0, or 78 (EX_CONFIG).
int check_config(const std::string& path, std::ostream& out, std::ostream& err);

// The next hops that the configuration names, with what their TLS needs already read; the targets of the connector are in the same order.
Result<RouterConfig> load_routes(const Config& config);

}  // namespace twinloft::lmtpd
