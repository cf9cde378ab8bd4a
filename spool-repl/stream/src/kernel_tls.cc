#include "kernel_tls.h"

#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

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

// Both ends of a connection; empty without loopback.
struct Pair {
  Fd one, two;
};
Pair loopback_pair() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  const Fd listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listening || ::bind(listening.get(), any, size) != 0 || ::listen(listening.get(), 1) != 0 ||
      ::getsockname(listening.get(), any, &size) != 0)
    return {};
  // Over loopback, the handshake of TCP ends within connect(2).
  Pair out{Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), {}};
  if (!out.one || ::connect(out.one.get(), any, size) != 0) return {};
  out.two.reset(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return out;
}

bool changes_keys(RecordCipher cipher) {
  const Pair pair = loopback_pair();
  if (!pair.two) return false;
  RecordKey key;
  key.cipher = cipher;
  if (!give_key_to_kernel(pair.one.get(), key)) return false;
  key.key[0] = 1;
  return give_key_to_kernel(pair.one.get(), key).has_value();
}

}  // namespace

bool kernel_has_tls(RecordCipher cipher) {
  static const bool aes = changes_keys(RecordCipher::aes_128_gcm);
  static const bool chacha = changes_keys(RecordCipher::chacha20_poly1305);
  return cipher == RecordCipher::aes_128_gcm ? aes : chacha;
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
  std::memcpy(CMSG_DATA(header), &type, sizeof type);
  for (;;) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(content.size())) return true;
    if (sent >= 0) return fail(Errc::io, "the kernel has sent a part of a record");
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if (errno != EINTR) return failed(errno);
  }
}

}  // namespace twinloft::repl::stream
