#include "twinloft/lmtpd/process/control_channel.h"

#include <sys/socket.h>

#include <cerrno>

#include "twinloft/lmtpd/process/server_messages.h"

namespace twinloft::lmtpd {

bool send_packet(int channel, ByteSpan packet, WhenFull when_full) {
  const int flags = MSG_NOSIGNAL | (when_full == WhenFull::drop ? MSG_DONTWAIT : 0);
  ssize_t sent;
  do {
    sent = ::send(channel, packet.data(), packet.size(), flags);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(packet.size());
}

Heard receive_packet(int channel, std::vector<std::byte>& packet) {
  packet.resize(server_message_bytes_max + 1);
  const ssize_t got = ::recv(channel, packet.data(), packet.size(), MSG_DONTWAIT);
  packet.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  if (got > 0) return Heard::packet;
  return got < 0 && (errno == EAGAIN || errno == EINTR) ? Heard::nothing : Heard::end;
}

}  // namespace twinloft::lmtpd
