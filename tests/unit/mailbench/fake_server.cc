#include "fake_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "twinloft/base/check.h"

namespace twinloft::mailbench {

Plan accept_all(const FakeMessage& message) {
  Plan plan;
  for (std::size_t i = 0; i < message.recipients.size(); ++i) plan.replies += "250 2.0.0 stored\r\n";
  plan.store.assign(message.recipients.size(), true);
  return plan;
}

namespace {

class Lines {
 public:
  explicit Lines(int fd) : fd_(fd) {}
  // Without CRLF; none at the connection's end.
  std::optional<std::string> next() {
    for (;;) {
      if (std::size_t end = buffer_.find("\r\n", at_); end != buffer_.npos) {
        std::string line = buffer_.substr(at_, end - at_);
        at_ = end + 2;
        return line;
      }
      buffer_.erase(0, std::exchange(at_, 0));
      char chunk[65536];
      ssize_t n = ::recv(fd_, chunk, sizeof chunk, 0);
      if (n <= 0) return {};
      buffer_.append(chunk, static_cast<std::size_t>(n));
    }
  }

 private:
  int fd_;
  std::string buffer_;
  std::size_t at_ = 0;
};

bool read_content(Lines& lines, std::string& text) {
  text.clear();
  while (auto line = lines.next()) {
    if (*line == ".") return true;
    text += (line->starts_with('.') ? line->substr(1) : *line) + "\r\n";
  }
  return false;
}

}  // namespace

FakeServer::FakeServer(std::string spool, Behaviour behaviour)
    : spool_(std::move(spool)), behaviour_(std::move(behaviour)) {
  listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  TL_CHECK(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  TL_CHECK(::listen(listener_.get(), 128) == 0);
  TL_CHECK(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  endpoint_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  acceptor_ = std::thread([this] { accept_loop(); });
}

FakeServer::~FakeServer() {
  stopping_ = true;
  ::shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  {
    std::scoped_lock lock(mutex_);
    for (int fd : open_) ::shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
}

void FakeServer::accept_loop() {
  for (;;) {
    int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) {
      if (stopping_) return;
      continue;
    }
    int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ++connections_;
    std::scoped_lock lock(mutex_);
    open_.push_back(fd);
    threads_.emplace_back([this, fd] {
      serve(fd);
      std::scoped_lock inner(mutex_);
      std::erase(open_, fd);
      ::close(fd);
    });
  }
}

void FakeServer::store(const std::string& recipient, const std::string& text) {
  std::size_t at = recipient.find('@');
  std::filesystem::path maildir = std::filesystem::path(spool_) / recipient.substr(at + 1) /
                                  recipient.substr(0, at) / "Maildir";
  for (const char* part : {"tmp", "new", "cur"}) std::filesystem::create_directories(maildir / part);
  std::ofstream out(maildir / "new" / std::to_string(files_++), std::ios::binary);
  out << "Return-Path: <x@y>\r\nDelivered-To: " << recipient << "\r\n" << text;
}

void FakeServer::serve(int fd) {
  Lines lines(fd);
  auto reply = [&](std::string_view text) {
    std::size_t step = behaviour_.bytewise ? 1 : text.size();
    for (; !text.empty(); text.remove_prefix(std::min(step, text.size())))
      if (::send(fd, text.data(), std::min(step, text.size()), MSG_NOSIGNAL) < 0) return;
  };
  reply(behaviour_.greeting);
  FakeMessage message;
  while (auto line = lines.next()) {
    if (line->starts_with("LHLO")) {
      reply(behaviour_.pipelining ? "250-fake\r\n250-SIZE\r\n250 PIPELINING\r\n" : "250 fake\r\n");
    } else if (line->starts_with("MAIL")) {
      message.recipients.clear();
      reply("250 ok\r\n");
    } else if (line->starts_with("RCPT TO:<")) {
      std::string address = line->substr(9, line->size() - 10);
      std::string answer = behaviour_.on_recipient(address);
      if (answer.starts_with('2')) message.recipients.push_back(address);
      reply(answer);
    } else if (*line == "DATA") {
      if (message.recipients.empty()) {
        reply("503 no recipients\r\n");
        continue;
      }
      reply("354 go\r\n");
      if (!read_content(lines, message.text)) return;
      message.ordinal = messages_++;
      Plan plan = behaviour_.on_message(message);
      for (std::size_t i = 0; i < plan.store.size(); ++i)
        if (plan.store[i]) store(message.recipients[i], message.text);
      reply(plan.replies);
      if (plan.close) {
        ::shutdown(fd, SHUT_RDWR);
        return;
      }
    } else if (*line == "QUIT") {
      reply("221 bye\r\n");
      return;
    } else {
      reply("250 ok\r\n");
    }
  }
}

}  // namespace twinloft::mailbench
