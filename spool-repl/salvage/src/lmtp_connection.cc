#include "lmtp_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>

#include "beneath.h"
#include "twinloft/mail/address.h"

namespace twinloft::repl::salvage {

namespace {

void set_timeout(int fd, int which, std::chrono::seconds timeout) {
  timeval value{static_cast<time_t>(timeout.count()), 0};
  ::setsockopt(fd, SOL_SOCKET, which, &value, sizeof value);
}

}  // namespace

Result<LmtpConnection> LmtpConnection::connect(const LmtpServer& server, const LmtpOptions& options) {
  Fd fd(::socket(server.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "a socket for {}", server.text);
  set_timeout(fd.get(), SO_RCVTIMEO, options.timeout);
  set_timeout(fd.get(), SO_SNDTIMEO, options.timeout);
  // The final dot is a separate write. On a Unix socket, this option has no effect.
  int one = 1;
  (void)::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&server.address), server.length) != 0)
    return fail_errno(errno == EINPROGRESS ? ETIMEDOUT : errno, "{}", server.text);
  return LmtpConnection(std::move(fd));
}

void LmtpConnection::set_reply_timeout(std::chrono::seconds timeout) {
  set_timeout(fd_.get(), SO_RCVTIMEO, timeout);
}

Status LmtpConnection::send(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return fail(Errc::timeout, "the server accepts no more data");
    if (n < 0) return fail_errno(errno, "the connection was lost");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<mail::LmtpReply> LmtpConnection::reply() {
  for (;;) {
    TL_TRY_ASSIGN(auto reply, replies_.next());
    if (reply) return std::move(*reply);
    char piece[4096];
    ssize_t n = ::recv(fd_.get(), piece, sizeof piece, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return fail(Errc::timeout, "no reply in time");
    if (n < 0) return fail_errno(errno, "the connection was lost");
    if (n == 0) return fail(Errc::unavailable, "the server closed the connection");
    replies_.feed({piece, static_cast<std::size_t>(n)});
  }
}

std::string text_of(const mail::LmtpReply& reply) {
  std::string out = std::to_string(reply.code);
  for (std::size_t i = 0; i < reply.lines.size(); ++i)
    out += (i == 0 ? " " : "; ") + printable(reply.lines[i]);
  return out;
}

Result<mail::LmtpReply> LmtpConnection::ask(std::string_view command) {
  TL_TRY(send(std::string(command) + "\r\n"));
  return reply();
}

Result<std::string> forward_path(const std::string& address) {
  if (std::any_of(address.begin(), address.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f; }))
    return fail(Errc::invalid, "the address {} is not ASCII, and cannot be named in LMTP",
                printable(address));
  std::size_t at = address.rfind('@');
  std::string local = address.substr(0, at), domain = at == address.npos ? "" : address.substr(at);
  if (domain.find_first_of("<> ") != domain.npos)
    return fail(Errc::invalid, "\"{}\" is not an address", address);
  return mail::quote_local_part(local) + domain;
}

}  // namespace twinloft::repl::salvage
