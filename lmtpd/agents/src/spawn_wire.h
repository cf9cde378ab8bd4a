// Messages between the server process and the spawner: a SOCK_SEQPACKET packet each, little-endian. Each
// field has its length before it, which is limited. The spawner checks every field.
#pragma once

#include <cstddef>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/agents/spawner.h"

namespace twinloft::lmtpd {

// Below the default socket buffer of Linux (208 KiB), so that a packet always fits.
inline constexpr std::size_t spawn_packet_bytes_max = 128 * 1024;

// Errors: Errc::exhausted (a field or the message is beyond its bound).
Result<std::vector<std::byte>> encode_request(const RunRequest& request);
// Errors: Errc::invalid with the field. Checks the form alone: bounds, NUL bytes, known macro names, an
// absolute home.
Result<RunRequest> decode_request(ByteSpan packet);

// A request for a sign of life. The answer is an empty result.
std::vector<std::byte> encode_ping();
bool is_ping(ByteSpan packet);

std::vector<std::byte> encode_result(const RunResult& result);
Result<RunResult> decode_result(ByteSpan packet);

}  // namespace twinloft::lmtpd
