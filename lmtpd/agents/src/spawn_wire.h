// Messages between the network process and the spawner: one SOCK_SEQPACKET packet each, little-endian, every
// field with its length before it and a bound on that. The spawner trusts nothing in them.
#pragma once

#include <cstddef>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/agents/spawner.h"

namespace twinloft::lmtpd {

// Below the default socket buffer of Linux (208 KiB), so that a packet always fits.
inline constexpr std::size_t spawn_packet_bytes_max = 128 * 1024;

// Errc::exhausted where a field or the whole is beyond its bound.
Result<std::vector<std::byte>> encode_request(const RunRequest& request);
// Errc::invalid, naming the field. Checks form only: bounds, NUL bytes, known macro names, an absolute home.
Result<RunRequest> decode_request(ByteSpan packet);

// A question without a run: the answer is an empty result.
std::vector<std::byte> encode_ping();
bool is_ping(ByteSpan packet);

std::vector<std::byte> encode_result(const RunResult& result);
Result<RunResult> decode_result(ByteSpan packet);

}  // namespace twinloft::lmtpd
