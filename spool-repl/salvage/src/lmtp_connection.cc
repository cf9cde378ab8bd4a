#include "lmtp_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

#include "beneath.h"
#include "fields.h"

namespace twinloft::repl::salvage {

namespace {

constexpr std::size_t line_bytes_max = 4096;
constexpr int reply_lines_max = 100;

void set_timeout(int fd, int which, std::chrono::seconds timeout) {
  timeval value{static_cast<time_t>(timeout.count()), 0};
  ::setsockopt(fd, SOL_SOCKET, which, &value, sizeof value);
}

bool is_atom_byte(unsigned char c) {
  return std::isalnum(c) ||
         std::string_view("!#$%&'*+-/=?^_`{|}~").find(static_cast<char>(c)) != std::string_view::npos;
}

bool is_dot_atom(std::string_view text) {
  if (text.empty() || text.front() == '.' || text.back() == '.' || text.find("..") != text.npos) return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c == '.' || is_atom_byte(c); });
}

}  // namespace

Result<LmtpConnection> LmtpConnection::connect(const LmtpServer& server, const LmtpOptions& options) {
  Fd fd(::socket(server.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "a socket for {}", server.text);
  set_timeout(fd.get(), SO_RCVTIMEO, options.timeout);
  set_timeout(fd.get(), SO_SNDTIMEO, options.timeout);
  // The final dot is a write of its own. On a Unix socket this has no effect.
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
    if (n < 0 && errno == EAGAIN) return fail(Errc::timeout, "the server takes nothing more");
    if (n < 0) return fail_errno(errno, "the connection was lost");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<std::string> LmtpConnection::line() {
  for (;;) {
    std::size_t lf = buffer_.find('\n');
    if (lf != buffer_.npos) {
      std::string out = buffer_.substr(0, lf);
      buffer_.erase(0, lf + 1);
      if (out.ends_with('\r')) out.pop_back();
      return out;
    }
    if (buffer_.size() > line_bytes_max)
      return fail(Errc::corrupt, "a reply line of more than {} bytes", line_bytes_max);
    char piece[4096];
    ssize_t n = ::recv(fd_.get(), piece, sizeof piece, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return fail(Errc::timeout, "no reply in time");
    if (n < 0) return fail_errno(errno, "the connection was lost");
    if (n == 0) return fail(Errc::unavailable, "the server closed the connection");
    buffer_.append(piece, static_cast<std::size_t>(n));
  }
}

Result<Reply> LmtpConnection::reply() {
  Reply out;
  for (int lines = 0; lines < reply_lines_max; ++lines) {
    TL_TRY_ASSIGN(std::string text, line());
    auto code = text.size() >= 3 ? parse_number<int>(std::string_view(text).substr(0, 3)) : std::nullopt;
    bool more = text.size() > 3 && text[3] == '-';
    bool good = code && *code >= 200 && *code < 600 && (text.size() == 3 || more || text[3] == ' ') &&
                (lines == 0 || *code == out.code);
    if (!good) return fail(Errc::corrupt, "\"{}\" is no reply of LMTP", printable(text.substr(0, 200)));
    out.code = *code;
    out.text += (lines == 0 ? text.substr(0, 3) + " " : "; ") +
                printable(text.size() > 4 ? text.substr(4) : "");
    if (!more) return out;
  }
  return fail(Errc::corrupt, "a reply of more than {} lines", reply_lines_max);
}

Result<Reply> LmtpConnection::ask(std::string_view command) {
  TL_TRY(send(std::string(command) + "\r\n"));
  return reply();
}

void DotStuffer::feed(std::string_view in, std::string& out) {
  for (char c : in) {
    if (c == '.' && last_ == '\n') out += '.';
    if (c == '\n' && last_ != '\r') out += '\r';
    out += c;
    last_ = c;
  }
}

void DotStuffer::finish(std::string& out) {
  if (last_ != '\n') out += last_ == '\r' ? "\n" : "\r\n";
  last_ = '\n';
}

Result<std::string> forward_path(const std::string& address) {
  if (std::any_of(address.begin(), address.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f; }))
    return fail(Errc::invalid, "the address {} is not ASCII, and can not be named in LMTP",
                printable(address));
  std::size_t at = address.rfind('@');
  std::string local = address.substr(0, at), domain = at == address.npos ? "" : address.substr(at);
  if (domain.find_first_of("<> ") != domain.npos) return fail(Errc::invalid, "\"{}\" is no address", address);
  if (is_dot_atom(local)) return local + domain;
  std::string quoted;
  for (char c : local) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return "\"" + quoted + "\"" + domain;
}

}  // namespace twinloft::repl::salvage
