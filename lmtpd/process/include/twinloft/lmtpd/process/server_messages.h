// Messages between the supervisor and its server processes: one packet of a SOCK_SEQPACKET socket each.
// docs/formats/supervisor.md has their bytes. Codec only, without I/O (control_channel.h).
//
// The supervisor may be root, and trusts nothing in what it receives. Either side may be newer: a receiver
// skips a type that it does not know, and what stands in a payload behind the fields that it knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

// Of configurations, as the supervisor has read them: 1 at its start, one more with each that a reload reads.
// A process that replaces another one has the generation of that.
using Generation = std::uint64_t;

// From a server process.
struct ServerReady {  // it serves; once, and first
  Generation generation = 0;
  bool operator==(const ServerReady&) const = default;
};
struct ServerCrippled {  // it serves, and a helper process of it is gone; once for each
  bool operator==(const ServerCrippled&) const = default;
};
struct ServerLeaving {  // no connection is left, and no sign of life comes any more; once, and last
  bool operator==(const ServerLeaving&) const = default;
};
struct ServerLives {  // a sign of life, every five seconds
  bool operator==(const ServerLives&) const = default;
};
using FromServer = std::variant<ServerReady, ServerCrippled, ServerLeaving, ServerLives>;

// To a server process.
struct DrainServer {         // accept no more connections, and end once those that there are have ended
  Generation successor = 0;  // what serves now
  bool operator==(const DrainServer&) const = default;
};
struct StopServer {  // finish deliveries that have begun, and end
  bool operator==(const StopServer&) const = default;
};
struct AbortServer {  // end now
  bool operator==(const AbortServer&) const = default;
};
using ToServer = std::variant<DrainServer, StopServer, AbortServer>;

inline constexpr std::size_t server_message_bytes_max = 512;

std::vector<std::byte> encode_message(const FromServer& message);
std::vector<std::byte> encode_message(const ToServer& message);

// nullopt: a type that is not known here. Errc::invalid: another version, a length that is not the packet's,
// a packet beyond server_message_bytes_max, or a payload without all of its fields.
Result<std::optional<FromServer>> decode_from_server(ByteSpan packet);
Result<std::optional<ToServer>> decode_to_server(ByteSpan packet);

}  // namespace twinloft::lmtpd
