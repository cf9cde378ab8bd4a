// The control socket of a volume: the client sends a line, the server answers with a text and closes the
// connection.
//
// Each answer ends with the line "end ok" or "end error CODE MESSAGE" (docs/formats/control.md). Without this
// line the answer is incomplete. The kernel names the client's user (SO_PEERCRED, unix(7)): root and the
// server's own user may send every command. Users and groups of `Access` may send commands that only read.
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

// The other users who may connect and read.
struct Access {
  bool everybody = false;
  std::optional<gid_t> group;
};

class Server {
 public:
  // The handler calls it once, at once or later, on the loop's thread. It does nothing if the session or the
  // server has ended meanwhile.
  using Reply = std::function<void(Result<std::string>)>;
  using Handler = std::function<void(const std::string& command, Reply reply)>;
  Server(ports::Loop& loop, std::string path, Handler handler, Access access = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  // Creates the socket, and replaces the socket of an ended server. Errors: Errc::unavailable (a server
  // listens there), Errc::conflict (the file is not a socket).
  Status start();

 private:
  struct Session {
    Fd fd;
    std::uint64_t number;
    std::string in, out;
    uid_t user = static_cast<uid_t>(-1);
    bool may_command = false;
    ports::Loop::TimerId timer = 0;  // until the command has arrived
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
  std::shared_ptr<Server*> self_ = std::make_shared<Server*>(this);  // replies have a weak pointer to it
};

// Sends a command to the server at `path`, and returns its answer. Errors: Errc::unavailable (no server
// answers), Errc::denied (this user may not send the command), Errc::io (the answer is incomplete, and the
// command may have been executed or not), and the errors of the server with their codes.
Result<std::string> ask(const std::string& path, const std::string& command, Duration timeout);

}  // namespace twinloft::repl::control
