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
  out << "Return-Path: <x@y>\r\n";
  if (behaviour_.delivered_to) out << "Delivered-To: " << recipient << "\r\n";
  out << text;
}

struct FakeServer::Transaction {
  FakeMessage message;
  bool smtp = false;  // one reply for all recipients

  void begin() { message = {}; }
};

bool FakeServer::end_message(int fd, Transaction& t) {
  t.message.ordinal = messages_++;
  messages_.notify_all();
  Plan plan = behaviour_.on_message(t.message);
  for (std::size_t i = 0; i < plan.store.size(); ++i)
    if (plan.store[i]) store(t.message.recipients[i], t.message.text);
  if (t.smtp) plan.replies = plan.replies.substr(0, plan.replies.find('\n') + 1);
  loopback::send_all(fd, plan.replies, behaviour_.bytewise ? 1 : 0);
  if (plan.close) ::shutdown(fd, SHUT_RDWR);
  return !plan.close;
}

void FakeServer::serve(int fd) {
  loopback::LineReader lines(fd);
  auto reply = [&](std::string_view text) { loopback::send_all(fd, text, behaviour_.bytewise ? 1 : 0); };
  if (greeted_++ >= behaviour_.connections_max) {
    messages_.wait(0);
    return;
  }
  reply(behaviour_.greeting);
  Transaction t;
  while (auto line = lines.next()) {
    if (line->starts_with("LHLO") || line->starts_with("EHLO")) {
      t.smtp = line->starts_with('E');
      reply(behaviour_.pipelining ? "250-fake\r\n250-SIZE\r\n250-CHUNKING\r\n250 PIPELINING\r\n"
                                  : "250 fake\r\n");
    } else if (line->starts_with("MAIL")) {
      t.begin();
      reply("250 ok\r\n");
    } else if (line->starts_with("RCPT TO:<")) {
      std::string address = line->substr(9, line->size() - 10);
      std::string answer = behaviour_.on_recipient(address);
      if (answer.starts_with('2')) t.message.recipients.push_back(address);
      reply(answer);
    } else if (*line == "DATA") {
      if (t.message.recipients.empty()) {
        reply("503 no recipients\r\n");
        continue;
      }
      reply("354 go\r\n");
      if (!read_content(lines, t.message.text) || !end_message(fd, t)) return;
    } else if (line->starts_with("BDAT ")) {
      auto chunk = lines.bytes(std::stoul(line->substr(5)));
      if (!chunk) return;
      t.message.text += *chunk;
      if (!line->ends_with(" LAST"))
        reply(behaviour_.on_chunk);
      else if (!end_message(fd, t))
        return;
    } else if (*line == "QUIT") {
      reply("221 bye\r\n");
      return;
    } else {
      reply("250 ok\r\n");
    }
  }
}

}  // namespace twinloft::mailbench
