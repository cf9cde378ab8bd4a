// Packets of Unix sockets that bring file descriptors along (SCM_RIGHTS, unix(7)). The one place where
// descriptors are passed: a receiver says how many it wants, and nothing beyond them stays open.
#pragma once

#include <array>
#include <cstddef>
#include <expected>
#include <span>

#include "twinloft/base/bytes.h"
#include "twinloft/base/fd.h"

namespace twinloft {

inline constexpr std::size_t passed_fds_max = 4;  // beside one packet

struct ReceivedPacket {
  std::size_t bytes = 0;               // at the front of the buffer; 0: the other end is closed
  std::array<Fd, passed_fds_max> fds;  // closed at an exec; those that came are the first ones
  bool cut = false;                    // the packet was larger than the buffer: its end is lost
  // More came than were wanted, or this process has no numbers left for them (RLIMIT_NOFILE).
  bool fds_lost = false;
};

// Of a socket that keeps packets apart (SOCK_SEQPACKET, SOCK_DGRAM). `fds_max`: at most passed_fds_max.
// `flags`: as of recvmsg(2), such as MSG_DONTWAIT. Repeats on EINTR. The error is the errno.
std::expected<ReceivedPacket, int> receive_packet(int socket, MutableByteSpan into, std::size_t fds_max,
                                                  int flags = 0);

// The whole packet or nothing of it, with copies of `fds` (at most passed_fds_max). No SIGPIPE comes of it.
// `flags` as of sendmsg(2). Repeats on EINTR. 0, or the errno.
int send_packet(int socket, ByteSpan packet, std::span<const int> fds = {}, int flags = 0);

}  // namespace twinloft
