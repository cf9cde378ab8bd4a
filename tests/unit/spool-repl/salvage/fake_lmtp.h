// An LMTP server that the test controls.
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
  // The state of the dialogue.
  enum class At { greeting, lhlo, mail, rcpt, data, content, end, rset };
  struct Answer {
    std::string bytes;     // "": the usual reply
    bool hang_up = false;  // after the reply
    bool stores = true;    // at `end`: the server stores the message
    Answer(const char* text = "") : bytes(text) {}
    static Answer gone(const char* text = "") {
      Answer out(text);
      out.hang_up = true;
      out.stores = false;
      return out;
    }
  };
  using Script = std::function<Answer(At, const std::string& line)>;
  // The script is asked for `content` at the first line of the message. With hang_up the server reads no
  // further.
  explicit FakeLmtp(Script script = {}, bool trickle = false);

  LmtpServer server() const;
  void set_script(Script script);
  // The place for accepted messages. Without it, they are only kept in memory.
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
