// The control socket of a volume: one line in, one text out, the connection closes.
//
// Every answer ends with a line that says how it went: "end ok", or "end error CODE MESSAGE"
// (docs/formats/control.md). Without that line the answer is not whole. Who may ask is looked up at the
// kernel (SO_PEERCRED): root, and the user that serves, may ask everything; those whom `Access` admits may
// read.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/base/unix_socket.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::control {

inline constexpr std::size_t command_bytes_max = 512;

// Who else may connect, and ask for what changes nothing.
struct Access {
  bool everybody = false;
  std::optional<gid_t> group;
};

class Server {
 public:
  // Called once, now or later, on the loop's thread. Where the session has ended meanwhile, or the server
  // has, nothing happens.
  using Reply = std::function<void(Result<std::string>)>;
  using Handler = std::function<void(const std::string& command, Reply reply)>;
  Server(ports::Loop& loop, std::string path, Handler handler, Access access = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  // Errc::unavailable: a living server has the socket. Errc::conflict: a file that is no socket. A dead
  // server's socket is replaced.
  Status start();

 private:
  struct Session {
    Fd fd;
    std::uint64_t number;
    std::string in, out;
    uid_t user = static_cast<uid_t>(-1);
    bool may_command = false;
    ports::Loop::TimerId timer = 0;  // until it has asked
    std::size_t sent = 0;
    bool asked = false, answered = false;  // `out` is the reply
  };
  Status open_to(const Access& access) const;
  void on_accept();
  void make_room();
  void ask(Session& session, int fd, const std::string& command);
  void answer(int fd, const Result<std::string>& reply);
  void on_ready(int fd, unsigned ready);
  void send_rest(int fd);
  void end(int fd);

  ports::Loop& loop_;
  std::string path_;
  Handler handler_;
  Access access_;
  Fd listener_;
  SocketFile file_;
  ports::Loop::TimerId accept_timer_ = 0;
  std::unordered_map<int, Session> sessions_;
  std::uint64_t next_session_ = 1;
  std::shared_ptr<Server*> self_ = std::make_shared<Server*>(this);  // what replies hold, weakly
};

// Asks the server at `path`. Errc::unavailable where none answers, Errc::denied where this user may not ask,
// Errc::io where the answer ends early: then nobody knows whether the command was carried out. What the
// server answers keeps its code.
Result<std::string> ask(const std::string& path, const std::string& command, Duration timeout);

}  // namespace twinloft::repl::control
