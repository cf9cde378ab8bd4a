// Messages between the supervisor and its server processes: one packet of a SOCK_SEQPACKET socket each.
// docs/formats/supervisor.md has their bytes. Codec only, without I/O (control_channel.h).
//
// The supervisor may be root, and trusts no received message. Either side may be a newer version: a receiver
// skips unknown types, and unknown bytes behind the known fields of a payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

// The number of a configuration: 1 at the supervisor's start, one more for each configuration that a reload
// reads. A process started as a replacement has the generation of the process it replaces.
using Generation = std::uint64_t;

// `type` is the number of a message in its packet. A number belongs to one direction only, so that a message
// sent back is unknown.

// From a server process.
struct ServerReady {  // the process serves; sent once, as the first message
  static constexpr std::uint8_t type = 1;
  Generation generation = 0;
  bool operator==(const ServerReady&) const = default;
};
struct ServerCrippled {  // the process serves, but a helper process is gone; sent once per helper
  static constexpr std::uint8_t type = 2;
  bool operator==(const ServerCrippled&) const = default;
};
struct ServerLeaving {  // no connection is left, and signs of life end; sent once, as the last message
  static constexpr std::uint8_t type = 3;
  bool operator==(const ServerLeaving&) const = default;
};
struct ServerLives {  // a sign of life, every five seconds
  static constexpr std::uint8_t type = 4;
  bool operator==(const ServerLives&) const = default;
};
using FromServer = std::variant<ServerReady, ServerCrippled, ServerLeaving, ServerLives>;

// To a server process.
struct DrainServer {  // accept no new connections, and end after the last existing connection
  static constexpr std::uint8_t type = 129;
  Generation successor = 0;  // the generation that serves now
  bool operator==(const DrainServer&) const = default;
};
struct StopServer {  // finish deliveries in flight, and end
  static constexpr std::uint8_t type = 130;
  bool operator==(const StopServer&) const = default;
};
struct AbortServer {  // end now
  static constexpr std::uint8_t type = 131;
  bool operator==(const AbortServer&) const = default;
};
using ToServer = std::variant<DrainServer, StopServer, AbortServer>;

inline constexpr std::size_t server_message_bytes_max = 512;

std::vector<std::byte> encode_message(const FromServer& message);
std::vector<std::byte> encode_message(const ToServer& message);

// nullopt: an unknown type. Errc::invalid: another version, a length that differs from the packet's, a packet
// longer than server_message_bytes_max, or a payload with missing fields.
Result<std::optional<FromServer>> decode_from_server(ByteSpan packet);
Result<std::optional<ToServer>> decode_to_server(ByteSpan packet);

}  // namespace twinloft::lmtpd
