#include "twinloft/spool-repl/stream/kernel_tls.h"

#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>

#include "twinloft/base/errno_text.h"
#include "twinloft/base/fd.h"

#ifndef SOL_TLS
#define SOL_TLS 282  // linux/socket.h
#endif

namespace twinloft::repl::stream {

namespace {

std::unexpected<Error> failed(int error) {
  return fail(Errc::io, "{}", errno_text(error));
}

// iv of TLS: the kernel calls its first bytes the salt.
template <class Info>
Status give(int socket, const RecordKey& key, std::uint16_t cipher) {
  Info info{};
  info.info.version = TLS_1_3_VERSION;
  info.info.cipher_type = cipher;
  constexpr std::size_t salt_bytes = sizeof info.salt;
  static_assert(salt_bytes + sizeof info.iv == sizeof key.iv && sizeof info.key <= sizeof key.key);
  std::memcpy(info.key, key.key.data(), sizeof info.key);
  if constexpr (salt_bytes > 0) std::memcpy(info.salt, key.iv.data(), salt_bytes);
  std::memcpy(info.iv, key.iv.data() + salt_bytes, sizeof info.iv);
  const int done = ::setsockopt(socket, SOL_TLS, TLS_TX, &info, sizeof info);
  const int error = errno;
  OPENSSL_cleanse(&info, sizeof info);
  return done == 0 ? Status() : failed(error);
}

// A connection of this process to itself, which nobody accepts.
struct Loop {
  Fd listening, connected;
};
Result<Loop> loop_over_loopback() {
  constexpr int wait_ms = 200;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  Loop out{Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
           Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))};
  if (!out.listening || !out.connected || ::bind(out.listening.get(), any, size) != 0 ||
      ::listen(out.listening.get(), 1) != 0 || ::getsockname(out.listening.get(), any, &size) != 0 ||
      (::connect(out.connected.get(), any, size) != 0 && errno != EINPROGRESS))
    return failed(errno);
  pollfd ready{out.connected.get(), POLLOUT, 0};
  if (::poll(&ready, 1, wait_ms) != 1 || (ready.revents & (POLLERR | POLLHUP)))
    return fail(Errc::unavailable, "no connection over 127.0.0.1");
  return out;
}

// What the kernel has answered, once it has.
struct Answer {
  std::mutex mutex;
  std::optional<Status> given;
};

Status try_kernel(RecordCipher cipher, Answer& answer) {
  std::lock_guard lock(answer.mutex);
  if (answer.given) return *answer.given;
  TL_TRY_ASSIGN(const Loop loop, loop_over_loopback());
  RecordKey key;
  key.cipher = cipher;
  Status out = give_key_to_kernel(loop.connected.get(), key);
  if (!out) {
    out = fail(Errc::unavailable, "the kernel has no TLS for this (module `tls`): {}", out.error().message);
  } else {
    key.key[0] = 1;
    out = give_key_to_kernel(loop.connected.get(), key);
    if (!out)
      out = fail(Errc::unavailable, "the kernel cannot change the keys of TLS (Linux before 6.14): {}",
                 out.error().message);
  }
  return answer.given.emplace(std::move(out));
}

}  // namespace

Status kernel_has_tls(RecordCipher cipher) {
  static Answer aes, chacha;
  return try_kernel(cipher, cipher == RecordCipher::aes_128_gcm ? aes : chacha);
}

Status give_key_to_kernel(int socket, const RecordKey& key) {
  // EEXIST: from an earlier call.
  if (::setsockopt(socket, IPPROTO_TCP, TCP_ULP, "tls", sizeof "tls") != 0 && errno != EEXIST)
    return failed(errno);
  if (key.cipher == RecordCipher::aes_128_gcm)
    return give<tls12_crypto_info_aes_gcm_128>(socket, key, TLS_CIPHER_AES_GCM_128);
  return give<tls12_crypto_info_chacha20_poly1305>(socket, key, TLS_CIPHER_CHACHA20_POLY1305);
}

Result<bool> send_record(int socket, std::uint8_t type, std::span<const std::byte> content) {
  iovec piece{const_cast<std::byte*>(content.data()), content.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof type)] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_TLS;
  header->cmsg_type = TLS_SET_RECORD_TYPE;
  header->cmsg_len = CMSG_LEN(sizeof type);
  std::memcpy(control + CMSG_LEN(0), &type, sizeof type);  // where the data begins
  for (;;) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(content.size())) return true;
    if (sent >= 0) return fail(Errc::io, "the kernel has sent a part of a record");
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if (errno != EINTR) return failed(errno);
  }
}

}  // namespace twinloft::repl::stream
