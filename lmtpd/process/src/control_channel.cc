#include "twinloft/lmtpd/process/control_channel.h"

#include <sys/socket.h>

#include <cerrno>

#include "twinloft/base/passed_fds.h"
#include "twinloft/lmtpd/process/server_messages.h"

namespace twinloft::lmtpd {

bool write_packet(int channel, ByteSpan packet, WhenFull when_full) {
  return send_packet(channel, packet, {}, when_full == WhenFull::drop ? MSG_DONTWAIT : 0) == 0;
}

Heard read_packet(int channel, std::vector<std::byte>& packet) {
  packet.resize(server_message_bytes_max + 1);
  const auto got = receive_packet(channel, packet, 0, MSG_DONTWAIT);
  packet.resize(got ? got->bytes : 0);
  if (!got) return got.error() == EAGAIN ? Heard::nothing : Heard::end;
  return packet.empty() ? Heard::end : Heard::packet;
}

}  // namespace twinloft::lmtpd
