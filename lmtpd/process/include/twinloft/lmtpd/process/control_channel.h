// The socket between the supervisor and a server process (make_socket_pair()), and the packets that it
// carries.
#pragma once

#include <cstddef>
#include <vector>

#include "twinloft/base/bytes.h"

namespace twinloft::lmtpd {

enum class WhenFull { wait, drop };

// False: it is not sent. The other side is gone, or the socket is full and the packet is dropped.
bool write_packet(int channel, ByteSpan packet, WhenFull when_full);

enum class Heard {
  nothing,  // now
  packet,
  end,  // the other side is gone
};

// Never blocks. Of a packet beyond server_message_bytes_max one byte more than that is given, which no
// decoder accepts.
Heard read_packet(int channel, std::vector<std::byte>& packet);

}  // namespace twinloft::lmtpd
