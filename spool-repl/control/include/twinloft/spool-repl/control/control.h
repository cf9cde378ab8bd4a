// The control socket of a volume: one line in, one text out, the connection closes. Only root and the group that
// the socket's directory admits can reach it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::control {

inline constexpr std::size_t command_bytes_max = 512;

class Server {
 public:
  // Called once, now or later, on the loop's thread. An error is sent as "error: <message>". Where the session has
  // ended meanwhile, or the server has, nothing happens.
  using Reply = std::function<void(Result<std::string>)>;
  using Handler = std::function<void(const std::string& command, Reply reply)>;
  Server(ports::Loop& loop, std::string path, Handler handler);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  // Errc::unavailable: a living server has the socket. A dead one's socket is replaced.
  Status start();

 private:
  struct Session {
    Fd fd;
    std::uint64_t number;
    std::string in, out;
    std::size_t sent = 0;
    bool asked = false, answered = false;  // `out` is the reply, which may be empty
  };
  void on_accept();
  void on_ready(int fd, unsigned ready);
  void send_rest(int fd);
  void end(int fd);

  ports::Loop& loop_;
  std::string path_;
  Handler handler_;
  Fd listener_;
  ports::Loop::TimerId accept_timer_ = 0;
  std::unordered_map<int, Session> sessions_;
  std::uint64_t next_session_ = 1;
  std::shared_ptr<Server*> self_ = std::make_shared<Server*>(this);  // what replies hold, weakly
};

// Asks the server at `path`. Errc::unavailable where none answers.
Result<std::string> ask(const std::string& path, const std::string& command, Duration timeout);

}  // namespace twinloft::repl::control
