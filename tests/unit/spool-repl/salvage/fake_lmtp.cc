#include "fake_lmtp.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>

#include "twinloft/base/check.h"

namespace twinloft::repl::salvage {

namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  out.sin_port = htons(port);
  return out;
}

}  // namespace

FakeLmtp::FakeLmtp(Script script, bool trickle) : script_(std::move(script)), trickle_(trickle) {
  sockaddr_in at = loopback(0);
  socklen_t length = sizeof at;
  listener_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  TL_CHECK(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), length) == 0 &&
           ::listen(listener_.get(), 16) == 0);
  TL_CHECK(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &length) == 0);
  port_ = ntohs(at.sin_port);
  thread_ = std::thread([this] { serve(); });
}

FakeLmtp::~FakeLmtp() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    ::shutdown(listener_.get(), SHUT_RDWR);
    if (connection_ >= 0) ::shutdown(connection_, SHUT_RDWR);
  }
  thread_.join();
}

LmtpServer FakeLmtp::server() const {
  LmtpServer out;
  sockaddr_in at = loopback(port_);
  std::memcpy(&out.address, &at, sizeof at);
  out.length = sizeof at;
  out.text = fmt::format("127.0.0.1:{}", port_);
  return out;
}

void FakeLmtp::set_script(Script script) {
  std::lock_guard lock(mutex_);
  script_ = std::move(script);
}

void FakeLmtp::deliver_to(const Spool* spool) {
  std::lock_guard lock(mutex_);
  spool_ = spool;
}

std::vector<FakeLmtp::Taken> FakeLmtp::taken() const {
  std::lock_guard lock(mutex_);
  return taken_;
}

int FakeLmtp::connections() const {
  std::lock_guard lock(mutex_);
  return connections_;
}

void FakeLmtp::serve() {
  for (;;) {
    Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    {
      std::lock_guard lock(mutex_);
      if (ending_ || !fd) return;
      connection_ = fd.get();
      ++connections_;
    }
    serve_connection(fd.get());
    std::lock_guard lock(mutex_);
    connection_ = -1;
  }
}

FakeLmtp::Answer FakeLmtp::answer(At at, const std::string& line) const {
  Script script;
  {
    std::lock_guard lock(mutex_);
    script = script_;
  }
  return script ? script(at, line) : Answer();
}

bool FakeLmtp::say(int fd, const Answer& answer, const std::string& usual) const {
  const std::string& bytes = answer.hang_up || !answer.bytes.empty() ? answer.bytes : usual;
  int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  for (std::size_t at = 0; at < bytes.size(); at += trickle_ ? 1 : bytes.size())
    if (::send(fd, bytes.data() + at, trickle_ ? 1 : bytes.size(), MSG_NOSIGNAL) <= 0) return false;
  return !answer.hang_up;
}

bool FakeLmtp::read_line(int fd, std::string& out) {
  std::size_t end;
  while ((end = buffer_.find("\r\n")) == buffer_.npos) {
    char piece[4096];
    ssize_t n = ::recv(fd, piece, sizeof piece, 0);
    if (n <= 0) return false;
    buffer_.append(piece, static_cast<std::size_t>(n));
  }
  out = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return true;
}

void FakeLmtp::serve_connection(int fd) {
  buffer_.clear();
  if (!say(fd, At::greeting, "", "220 fake LMTP\r\n")) return;
  std::string line;
  while (read_line(fd, line) && take_command(fd, line)) {
  }
}

bool FakeLmtp::take_command(int fd, const std::string& line) {
  if (line.starts_with("LHLO "))
    return say(fd, At::lhlo, line, "250-fake\r\n250-PIPELINING\r\n250 8BITMIME\r\n");
  if (line == "RSET") return say(fd, At::rset, line, "250 2.0.0 reset\r\n");
  if (line.starts_with("MAIL FROM:")) {
    now_ = {line.substr(10), "", ""};
    return say(fd, At::mail, line, "250 2.1.0 sender\r\n");
  }
  if (line.starts_with("RCPT TO:<") && line.ends_with(">")) {
    now_.to = line.substr(9, line.size() - 10);
    return say(fd, At::rcpt, line, "250 2.1.5 recipient\r\n");
  }
  if (line != "DATA") return say(fd, At::rset, line, "500 5.5.1 what?\r\n");
  Answer ready = answer(At::data, line);
  return say(fd, ready, "354 send\r\n") && (!ready.bytes.empty() || take_message(fd));
}

bool FakeLmtp::take_message(int fd) {
  std::string line;
  for (bool first = true; read_line(fd, line) && line != "."; first = false) {
    if (first && !say(fd, At::content, line, "")) return false;
    now_.content += (line.starts_with(".") ? line.substr(1) : line) + "\r\n";
  }
  if (line != ".") return false;
  Answer end = answer(At::end, "");
  if (end.stores && (end.bytes.empty() || end.bytes.starts_with("2"))) store(now_);
  return say(fd, end, "250 2.0.0 delivered\r\n");
}

// Like lmtpd: LF line ends, and a trace of its own.
void FakeLmtp::store(const Taken& taken) {
  std::lock_guard lock(mutex_);
  taken_.push_back(taken);
  if (!spool_) return;
  std::string text = fmt::format(
      "Return-Path: <>\nDelivered-To: {0}\nReceived: from salvage\n\tby fake with LMTP id 9\n\tfor <{0}>; "
      "today\n",
      taken.to);
  for (char c : taken.content)
    if (c != '\r') text += c;
  std::size_t at = taken.to.find('@');
  spool_->put(fmt::format("{}/{}/Maildir/new/{}.fake", taken.to.substr(at + 1), taken.to.substr(0, at),
                          taken_.size()),
              text);
}

}  // namespace twinloft::repl::salvage
