// Sends and receives packets on the socket between the supervisor and a server process (make_socket_pair()).
#pragma once

#include <cstddef>
#include <vector>

#include "twinloft/base/bytes.h"

namespace twinloft::lmtpd {

enum class WhenFull { wait, drop };

// False: the packet is not sent. The other side is gone, or the socket is full and the packet is dropped.
bool write_packet(int channel, ByteSpan packet, WhenFull when_full);

enum class Heard {
  nothing,  // no packet now
  packet,
  end,  // the other side is gone
};

// Never blocks. A packet longer than server_message_bytes_max is cut to one byte more than this limit, which
// the decoder refuses.
Heard read_packet(int channel, std::vector<std::byte>& packet);

}  // namespace twinloft::lmtpd
