#include "twinloft/base/passed_fds.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "twinloft/base/check.h"

namespace twinloft {

namespace {

union Control {
  cmsghdr alignment;
  char bytes[CMSG_SPACE(sizeof(int) * passed_fds_max)];
};

// Takes all received descriptors, so that none stays open unnoticed. The first `fds_max` are kept.
void take_fds(msghdr& message, std::size_t fds_max, ReceivedPacket& out) {
  std::size_t count = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= c->cmsg_len; at += sizeof(int)) {
      int number;
      std::memcpy(&number, CMSG_DATA(c) + at, sizeof number);
      Fd fd(number);
      if (count < fds_max)
        out.fds[count++] = std::move(fd);
      else
        out.fds_lost = true;
    }
  }
}

}  // namespace

std::expected<ReceivedPacket, int> receive_packet(int socket, MutableByteSpan into, std::size_t fds_max,
                                                  int flags) {
  TL_CHECK(fds_max <= passed_fds_max);
  Control control;
  iovec part{into.data(), into.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = fds_max > 0 ? &control : nullptr;
  // Without the padding of CMSG_SPACE, which has room for another descriptor.
  message.msg_controllen = fds_max > 0 ? CMSG_LEN(sizeof(int) * fds_max) : 0;
  ssize_t n;
  do {
    n = ::recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return std::unexpected(errno);
  ReceivedPacket out;
  out.bytes = static_cast<std::size_t>(n);
  out.cut = (message.msg_flags & MSG_TRUNC) != 0;
  out.fds_lost = (message.msg_flags & MSG_CTRUNC) != 0;
  take_fds(message, fds_max, out);
  return out;
}

int send_packet(int socket, ByteSpan packet, std::span<const int> fds, int flags) {
  TL_CHECK(fds.size() <= passed_fds_max);
  Control control{};
  iovec part{const_cast<std::byte*>(packet.data()), packet.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = &control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t n;
  do {
    n = ::sendmsg(socket, &message, flags | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return errno;
  return static_cast<std::size_t>(n) == packet.size() ? 0 : EMSGSIZE;
}

}  // namespace twinloft
