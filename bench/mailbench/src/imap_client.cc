#include "twinloft/mailbench/imap_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>

#include "twinloft/base/clock.h"

namespace twinloft::mailbench {

namespace {

Status nothing(ImapResponse&&) {
  return {};
}

// What the server says, in a form for a message.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, 200));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > 126) c = '?';
  return out;
}

// Waits for the connection, and makes the socket blocking, with a time limit.
Status make_blocking(int fd) {
  pollfd wait{fd, POLLOUT, 0};
  int ready = ::poll(&wait, 1, static_cast<int>(ImapClient::kTimeout.count()) * 1000);
  if (ready == 0) return fail(Errc::timeout, "time limit on connecting");
  if (int error = ready < 0 ? errno : connect_error(fd); error != 0) return fail_errno(error, "connect");
  timeval limit{ImapClient::kTimeout.count(), 0};
  int flags = ::fcntl(fd, F_GETFL);
  bool good = ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0 &&
              ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
              ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0;
  return good ? Status{} : fail_errno(errno, "socket");
}

}  // namespace

Result<ImapClient> ImapClient::connect(const Endpoint& endpoint, Security security, const TlsContext* tls) {
  TL_TRY_ASSIGN(Fd fd, endpoint.connect());
  TL_TRY(make_blocking(fd.get()));
  ImapClient out(std::move(fd));
  if (security == Security::tls) TL_TRY(out.handshake(*tls));
  TL_TRY_ASSIGN(ImapResponse greeting, out.next());
  if (!greeting.text.starts_with("* OK") && !greeting.text.starts_with("* PREAUTH"))
    return fail(Errc::unavailable, "the server's greeting is '{}'", shown(greeting.text));
  if (security == Security::starttls) {
    TL_TRY(out.run("STARTTLS", nothing));
    if (out.plain_at_ < out.plain_.size())
      return fail(Errc::corrupt, "the server sent clear text after its reply to STARTTLS");
    TL_TRY(out.handshake(*tls));
  }
  return out;
}

Status ImapClient::handshake(const TlsContext& tls) {
  tls_ = std::make_unique<TlsClient>(tls);
  TL_TRY(tls_->feed({}));
  while (!tls_->established()) TL_TRY(receive());
  return send_raw({});
}

Status ImapClient::login(std::string_view user, std::string_view password) {
  TL_TRY_ASSIGN(std::string name, imap_quoted(user));
  TL_TRY_ASSIGN(std::string secret, imap_quoted(password));
  return run(fmt::format("LOGIN {} {}", name, secret), nothing);
}

Result<std::vector<std::string>> ImapClient::mailboxes() {
  std::vector<std::string> out;
  TL_TRY(run("LIST \"\" \"*\"", [&](ImapResponse&& response) -> Status {
    TL_TRY_ASSIGN(std::optional<std::string> name, imap_listed(std::move(response)));
    if (out.size() == kMailboxesMax) return fail(Errc::exhausted, "more than {} mailboxes", kMailboxesMax);
    if (name) out.push_back(std::move(*name));
    return {};
  }));
  return out;
}

Status ImapClient::read_mailbox(const std::string& name,
                                const std::function<void(std::uint64_t, std::string_view)>& take) {
  TL_TRY_ASSIGN(std::string quoted, imap_quoted(name));
  bool empty = false;
  TL_TRY(run("EXAMINE " + quoted, [&](ImapResponse&& response) -> Status {
    empty = empty || response.text == "* 0 EXISTS";
    return {};
  }));
  if (empty) return {};  // RFC 3501: no number exists that FETCH could name
  return run("FETCH 1:* (BODY.PEEK[])", [&](ImapResponse&& response) -> Status {
    TL_TRY_ASSIGN(std::optional<ImapFetched> message, imap_fetched(std::move(response)));
    if (message) take(message->number, message->content);
    return {};
  });
}

void ImapClient::logout() {
  (void)run("LOGOUT", nothing);
}

Status ImapClient::run(const std::string& command, const std::function<Status(ImapResponse&&)>& on_untagged) {
  std::string tag = fmt::format("m{} ", ++tag_);
  std::string_view verb = std::string_view(command).substr(0, command.find(' '));
  TL_TRY(send(tag + command + "\r\n"));
  Instant end = OsClock().now() + kCommandTime;
  for (;;) {
    if (OsClock().now() >= end) return fail(Errc::timeout, "the server has not ended {} in an hour", verb);
    TL_TRY_ASSIGN(ImapResponse response, next());
    if (response.text.starts_with(tag)) {
      std::string_view rest = std::string_view(response.text).substr(tag.size());
      if (rest.starts_with("OK")) return {};
      return fail(Errc::unavailable, "the server answers {} with '{}'", verb, shown(rest));
    }
    if (response.text.starts_with("* BYE") && verb != "LOGOUT")
      return fail(Errc::unavailable, "the server ends the connection: '{}'", shown(response.text));
    TL_TRY(on_untagged(std::move(response)));
  }
}

Result<ImapResponse> ImapClient::next() {
  for (;;) {
    std::string_view bytes = std::string_view(plain_).substr(plain_at_);
    std::size_t before = bytes.size();
    TL_TRY_ASSIGN(bool complete, parser_.feed(bytes));
    plain_at_ += before - bytes.size();
    if (complete) return std::move(parser_.response());
    plain_.clear();
    plain_at_ = 0;
    TL_TRY(receive());
  }
}

Status ImapClient::send(std::string_view text) {
  if (!tls_) return send_raw(text);
  TL_TRY(tls_->write(text));
  return send_raw({});
}

// With TLS, the bytes are those that wait in it.
Status ImapClient::send_raw(std::string_view bytes) {
  if (tls_) bytes = tls_->output();
  while (!bytes.empty()) {
    ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "send");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  if (tls_) tls_->output().clear();
  return {};
}

Status ImapClient::receive() {
  if (tls_) TL_TRY(send_raw({}));  // of the handshake
  char buffer[65536];
  ssize_t n = 0;
  do n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
  while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
    return fail(Errc::timeout, "time limit on a response");
  if (n < 0) return fail_errno(errno, "receive");
  if (n == 0) return fail(Errc::unavailable, "the server closed the connection");
  std::string_view bytes(buffer, static_cast<std::size_t>(n));
  if (!tls_) {
    plain_ += bytes;
    return {};
  }
  TL_TRY(tls_->feed(bytes));
  char plain[16384];
  for (;;) {
    TL_TRY_ASSIGN(std::size_t size, tls_->read(plain));
    if (size == 0) return {};
    plain_.append(plain, size);
  }
}

}  // namespace twinloft::mailbench
