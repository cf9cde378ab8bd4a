#include "fake_lmtp.h"

#include <fmt/format.h>

#include <cstring>

namespace twinloft::repl::salvage {

FakeLmtp::FakeLmtp(Script script, bool trickle)
    : script_(std::move(script)),
      trickle_(trickle),
      server_(loopback::Server::Clients::one_at_a_time, [this](int fd) { serve(fd); }) {}

LmtpServer FakeLmtp::server() const {
  LmtpServer out;
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(server_.port());
  std::memcpy(&out.address, &at, sizeof at);
  out.length = sizeof at;
  out.text = server_.address();
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
  return loopback::send_all(fd, bytes, trickle_ ? 1 : 0) && !answer.hang_up;
}

void FakeLmtp::serve(int fd) {
  if (!say(fd, At::greeting, "", "220 fake LMTP\r\n")) return;
  loopback::LineReader lines(fd);
  while (auto line = lines.next())
    if (!take_command(fd, *line, lines)) return;
}

bool FakeLmtp::take_command(int fd, const std::string& line, loopback::LineReader& lines) {
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
  return say(fd, ready, "354 send\r\n") && (!ready.bytes.empty() || take_message(fd, lines));
}

bool FakeLmtp::take_message(int fd, loopback::LineReader& lines) {
  std::optional<std::string> line = lines.next();
  for (bool first = true; line && *line != "."; first = false, line = lines.next()) {
    if (first && !say(fd, At::content, *line, "")) return false;
    now_.content += (line->starts_with(".") ? line->substr(1) : *line) + "\r\n";
  }
  if (!line) return false;
  Answer end = answer(At::end, "");
  if (end.stores && (end.bytes.empty() || end.bytes.starts_with("2"))) store(now_);
  return say(fd, end, "250 2.0.0 delivered\r\n");
}

// Like lmtpd: LF line ends, and its own trace fields.
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
