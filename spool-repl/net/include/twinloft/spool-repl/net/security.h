// How the connections to peers are protected: TLS, or clear text where that is allowed.
//
// Clear text is for loopback addresses, and for peers at the end of a direct cable that the configuration
// names as such.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "twinloft/spool-repl/format/types.h"
#include "twinloft/spool-repl/stream/tls_context.h"

namespace twinloft::repl::net {

struct LinkSecurity {
  std::shared_ptr<const stream::TlsContext> tls;  // null: clear text
  // Of a pair that is being upgraded: replicas of a release without TLS are accepted with this secret, in
  // clear text, until they have spoken TLS once. Empty: none are.
  std::string old_secret = {};
};

// The name that a replica's certificate has, unless the configuration names another: an URI.
std::string certificate_name(const Uuid& volume, ReplicaId replica);

// Of a connection that is up.
struct LinkProtection {
  enum class Kind { clear_text, secret, certificate, old_release };
  Kind kind = Kind::clear_text;
  std::optional<std::int64_t> peer_expires;  // the end of the peer's certificate, in seconds since 1970
  bool by_kernel = false;                    // the kernel encrypts what this side sends
};

}  // namespace twinloft::repl::net
