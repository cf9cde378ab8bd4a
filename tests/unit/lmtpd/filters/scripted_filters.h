// Filters for tests: each is a function from a packet to the bytes of its answer, behind a connector.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "twinloft/base/crc32c.h"
#include "twinloft/lmtpd/connect/connector.h"
#include "twinloft/lmtpd/milter/packet.h"
#include "twinloft/lmtpd/milter/protocol.h"
#include "twinloft/lmtpd/session/filtering.h"

namespace twinloft::lmtpd::test {

inline std::string packet(char kind, std::string_view data = {}) {
  std::string out;
  milter::append_packet(out, kind, data);
  return out;
}
inline std::string agreement(std::uint32_t wishes, std::uint32_t rights = milter::may::all) {
  std::string data;
  for (std::uint32_t number : {6u, rights, wishes}) milter::append_number(data, number);
  return packet(milter::command::negotiate, data);
}

// One filter. `answer` runs on the threads of its connections.
struct ScriptedFilter {
  std::uint32_t wishes = 0;
  bool reachable = true;
  bool shortage = false;  // of descriptors, on this side
  // The answer to a packet other than the negotiation and macros. Empty: no answer.
  std::function<std::string(const milter::Packet&)> answer = [](const milter::Packet& p) {
    return is_silent(p.kind) ? std::string() : packet(milter::answer::continue_);
  };
  std::size_t bytes_max = std::string::npos;  // of a connection's output; behind them it closes

  static bool is_silent(char kind) {
    using namespace milter;
    return kind == command::abort || kind == command::quit || kind == command::quit_for_another_client ||
           kind == command::macros;
  }
  // What it has heard: "C", "M<a@b>", "Lname: value", "B...".
  std::vector<std::string> heard() const {
    std::lock_guard lock(mutex);
    return events;
  }
  std::string kinds() const {
    std::string out;
    for (const std::string& event : heard()) out += event[0];
    return out;
  }
  void note(const milter::Packet& p) {
    if (p.kind == milter::command::macros) return;
    std::string text(p.data);
    for (char& c : text) c = c == '\0' ? '|' : c;
    std::lock_guard lock(mutex);
    events.push_back(p.kind + text);
  }
  mutable std::mutex mutex;
  std::vector<std::string> events;
};

class ScriptedConnector final : public Connector {
 public:
  explicit ScriptedConnector(std::size_t filters) : filters_(filters) {}
  ~ScriptedConnector() override {
    for (int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
    settle();
    for (int socket : sockets_) ::close(socket);
  }
  // Waits until each filter has heard all of its connections, which the other side has closed.
  void settle() {
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
  }
  // Waits until the filter has ended this connection, counted from 0.
  void wait_for_end(std::size_t connection) { threads_[connection].join(); }
  ScriptedFilter& operator[](std::size_t i) { return filters_[i]; }
  std::size_t connections() const { return threads_.size(); }

  Result<Fd> connect(std::size_t target) override {
    if (filters_[target].shortage) return fail_errno(EMFILE, "socket");
    if (!filters_[target].reachable) return fail(Errc::unavailable, "connection refused");
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return fail_errno(errno, "socketpair");
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    sockets_.push_back(ends[1]);
    threads_.emplace_back([this, target, socket = ends[1]] { serve(filters_[target], socket); });
    return Fd(ends[0]);
  }

 private:
  static void serve(ScriptedFilter& filter, int socket) {
    milter::PacketReader reader;
    std::size_t left = filter.bytes_max;
    for (std::array<char, 4096> bytes;;) {
      ssize_t n = ::read(socket, bytes.data(), bytes.size());
      if (n <= 0) return;
      reader.add({bytes.data(), static_cast<std::size_t>(n)});
      while (auto next = reader.next()) {
        if (!*next) break;
        const milter::Packet& p = **next;
        if (p.kind != milter::command::negotiate) filter.note(p);
        std::string out = p.kind == milter::command::negotiate ? agreement(filter.wishes)
                          : p.kind == milter::command::macros  ? std::string()
                                                               : filter.answer(p);
        if (p.kind == milter::command::quit) ::shutdown(socket, SHUT_RDWR);
        std::size_t count = std::min(out.size(), left);
        left -= count;
        (void)::send(socket, out.data(), count, MSG_NOSIGNAL);
        if (left == 0) return (void)::shutdown(socket, SHUT_RDWR);
      }
    }
  }

  std::vector<ScriptedFilter> filters_;
  std::vector<int> sockets_;
  std::vector<std::thread> threads_;
};

// A body in memory, or in a file.
class FakeBody final : public StoredBody {
 public:
  explicit FakeBody(bool in_file = false, std::uint64_t bytes_max = UINT64_MAX) : bytes_max_(bytes_max) {
    if (in_file) body_.file = Fd(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  }
  Status append(std::string_view bytes) override {
    if (body_.size + bytes.size() > bytes_max_) return fail(Errc::exhausted, "no room");
    body_.size += bytes.size();
    if (body_.in_memory()) return body_.memory += bytes, Status();
    return write_all(body_.file.get(), as_bytes(bytes));
  }
  const MessageBody& body() const override { return body_; }
  void set_checksum() { body_.checksum = crc32c(as_bytes(text())); }
  std::string text() const {
    if (body_.in_memory()) return body_.memory;
    std::string out(body_.size, '\0');
    EXPECT_EQ(::pread(body_.file.get(), out.data(), out.size(), 0), static_cast<ssize_t>(out.size()));
    return out;
  }

 private:
  const std::uint64_t bytes_max_;
  MessageBody body_;
};

inline std::shared_ptr<FakeBody> body_of(std::string_view text, bool in_file = false) {
  auto out = std::make_shared<FakeBody>(in_file);
  EXPECT_TRUE(out->append(text));
  return out;
}
inline std::string text_of(const std::shared_ptr<StoredBody>& body) {
  return static_cast<const FakeBody&>(*body).text();
}

inline std::shared_ptr<Envelope> envelope_to(std::initializer_list<const char*> recipients) {
  auto out = std::make_shared<Envelope>();
  out->id = "id1";
  out->from = "a@sender.example";
  out->lhlo = "mta.example";
  for (const char* text : recipients) {
    Recipient r;
    r.text = text;
    r.user.name = text;
    out->recipients.push_back(std::move(r));
  }
  return out;
}

}  // namespace twinloft::lmtpd::test
