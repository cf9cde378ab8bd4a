// Reads what protects the links of a volume, and its NBD export: certificates and keys, or a shared secret.
#pragma once

#include <string>

#include "twinloft/spool-repl/daemon/config.h"
#include "twinloft/spool-repl/net/security.h"

namespace twinloft::repl::daemon {

// The shared secret, without the newline at its end. Empty: none is configured. Errors: Errc::denied (other
// users may read the file), Errc::invalid (too short), or the file cannot be read.
Result<std::string> read_secret(const std::string& path);

// Certificates count, if both are configured. With neither, there is no TLS. Errors: as above, and
// Errc::invalid (not certificate and key in PEM).
Result<net::LinkSecurity> read_link_security(const VolumeSettings& settings);

// Of the NBD export. Null: without TLS.
Result<std::shared_ptr<const stream::TlsContext>> read_nbd_tls(const VolumeSettings& settings);

struct Security {
  net::LinkSecurity links;
  std::shared_ptr<const stream::TlsContext> nbd;
};
Result<Security> read_security(const VolumeSettings& settings);

}  // namespace twinloft::repl::daemon
