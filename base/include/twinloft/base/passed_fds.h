// Packets of Unix sockets with file descriptors (SCM_RIGHTS, unix(7)). All descriptors are passed by these
// functions. A receiver gives the number that it expects, and further descriptors are closed.
#pragma once

#include <array>
#include <cstddef>
#include <expected>
#include <span>

#include "twinloft/base/bytes.h"
#include "twinloft/base/fd.h"

namespace twinloft {

inline constexpr std::size_t passed_fds_max = 4;  // with one packet

struct ReceivedPacket {
  std::size_t bytes = 0;               // at the front of the buffer; 0: the other end is closed
  std::array<Fd, passed_fds_max> fds;  // close-on-exec; the received descriptors come first
  bool cut = false;                    // the packet was larger than the buffer: its end is lost
  // More descriptors were sent than expected, or this process has no free numbers for them (RLIMIT_NOFILE).
  bool fds_lost = false;
};

// socket: SOCK_SEQPACKET or SOCK_DGRAM. fds_max: at most passed_fds_max. flags: as of recvmsg(2), such as
// MSG_DONTWAIT. Repeats after EINTR. Errors: the errno.
std::expected<ReceivedPacket, int> receive_packet(int socket, MutableByteSpan into, std::size_t fds_max,
                                                  int flags = 0);

// Sends the whole packet or nothing, with copies of `fds` (at most passed_fds_max), without SIGPIPE. flags:
// as of sendmsg(2). Repeats after EINTR. Returns 0, or the errno.
int send_packet(int socket, ByteSpan packet, std::span<const int> fds = {}, int flags = 0);

}  // namespace twinloft
