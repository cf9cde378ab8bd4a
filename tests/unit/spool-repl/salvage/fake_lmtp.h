// An LMTP server that does what the test says.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "../../support/loopback.h"
#include "spool.h"
#include "twinloft/spool-repl/salvage/target.h"

namespace twinloft::repl::salvage {

class FakeLmtp {
 public:
  // Where it stands in a dialogue.
  enum class At { greeting, lhlo, mail, rcpt, data, content, end, rset };
  struct Answer {
    std::string bytes;     // "": the usual one
    bool hang_up = false;  // behind it
    bool stores = true;    // at `end`: takes the message
    Answer(const char* text = "") : bytes(text) {}
    static Answer gone(const char* text = "") {
      Answer out(text);
      out.hang_up = true;
      out.stores = false;
      return out;
    }
  };
  using Script = std::function<Answer(At, const std::string& line)>;
  // `content` is asked at the first line of the message: with hang_up it reads no more of it.
  explicit FakeLmtp(Script script = {}, bool trickle = false);

  LmtpServer server() const;
  void set_script(Script script);
  // Where accepted messages go, as a server stores them; without it they are only kept.
  void deliver_to(const Spool* spool);
  struct Taken {
    std::string from, to, content;
  };
  std::vector<Taken> taken() const;
  std::size_t connections() const { return server_.connections(); }

 private:
  void serve(int fd);
  Answer answer(At at, const std::string& line) const;
  bool say(int fd, const Answer& answer, const std::string& usual) const;
  bool say(int fd, At at, const std::string& line, const std::string& usual) const {
    return say(fd, answer(at, line), usual);
  }
  bool take_command(int fd, const std::string& line, loopback::LineReader& lines);
  bool take_message(int fd, loopback::LineReader& lines);
  void store(const Taken& taken);

  mutable std::mutex mutex_;
  Script script_;                 // guarded by mutex_
  const Spool* spool_ = nullptr;  // guarded by mutex_
  std::vector<Taken> taken_;      // guarded by mutex_
  bool trickle_;
  Taken now_;
  loopback::Server server_;
};

}  // namespace twinloft::repl::salvage
