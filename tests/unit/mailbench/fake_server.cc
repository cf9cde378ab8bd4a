#include "fake_server.h"

#include <filesystem>
#include <fstream>

namespace twinloft::mailbench {

Plan accept_all(const FakeMessage& message) {
  Plan plan;
  for (std::size_t i = 0; i < message.recipients.size(); ++i) plan.replies += "250 2.0.0 stored\r\n";
  plan.store.assign(message.recipients.size(), true);
  return plan;
}

namespace {

bool read_content(loopback::LineReader& lines, std::string& text) {
  text.clear();
  while (auto line = lines.next()) {
    if (*line == ".") return true;
    text += (line->starts_with('.') ? line->substr(1) : *line) + "\r\n";
  }
  return false;
}

}  // namespace

FakeServer::FakeServer(std::string spool, Behaviour behaviour)
    : spool_(std::move(spool)),
      behaviour_(std::move(behaviour)),
      server_(loopback::Server::Clients::side_by_side, [this](int fd) { serve(fd); }) {}

void FakeServer::store(const std::string& recipient, const std::string& text) {
  std::size_t at = recipient.find('@');
  std::filesystem::path maildir = std::filesystem::path(spool_) / recipient.substr(at + 1) /
                                  recipient.substr(0, at) / "Maildir";
  for (const char* part : {"tmp", "new", "cur"}) std::filesystem::create_directories(maildir / part);
  std::ofstream out(maildir / "new" / std::to_string(files_++), std::ios::binary);
  out << "Return-Path: <x@y>\r\nDelivered-To: " << recipient << "\r\n" << text;
}

void FakeServer::serve(int fd) {
  loopback::LineReader lines(fd);
  auto reply = [&](std::string_view text) { loopback::send_all(fd, text, behaviour_.bytewise ? 1 : 0); };
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
