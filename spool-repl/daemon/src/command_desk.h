// The commands of the control socket: checks whether a command is allowed now, carries it out, and keeps its
// reply until the core has answered.
#pragma once

#include <map>

#include "command.h"
#include "twinloft/spool-repl/control/control.h"
#include "twinloft/spool-repl/core/effects.h"

namespace twinloft::repl::daemon {

class CommandDesk {
 public:
  using Reply = control::Server::Reply;
  // The volume of the commands.
  class Volume {
   public:
    virtual ~Volume() = default;
    virtual bool is_suspended() = 0;
    virtual bool is_stopping() = 0;  // a stop has begun
    virtual bool is_draining() = 0;
    virtual std::string show_status(command::Status::Form form) = 0;
    virtual Result<std::string> show_events(const std::string& range) = 0;
    virtual void command_core(core::Event command) = 0;
    virtual void demote(Reply reply) = 0;
    virtual Status set_peers_wanted(bool wanted) = 0;
  };
  explicit CommandDesk(Volume& volume) : volume_(volume) {}

  void on_line(const std::string& line, Reply reply);
  // Keeps the reply until the core answers the command with this token. The token is never 0, which is the
  // node's own promotion. Without a reply, no client waits.
  core::Token keep(Reply reply);
  Reply take(core::Token token);  // nullptr: no client waits for the command
  bool waits_for_core() const { return !replies_.empty(); }

 private:
  void carry_out(const command::Status& c, Reply reply) { reply(volume_.show_status(c.form)); }
  void carry_out(const command::Events& c, Reply reply) { reply(volume_.show_events(c.range)); }
  void carry_out(const command::Promote& c, Reply reply) {
    volume_.command_core(core::Promote{keep(std::move(reply)), c.force, c.accept_loss});
  }
  void carry_out(const command::Discard& c, Reply reply) {
    volume_.command_core(core::Discard{keep(std::move(reply)), c.force});
  }
  void carry_out(const command::Demote&, Reply reply) { volume_.demote(std::move(reply)); }
  void carry_out(const command::Connect& c, Reply reply);

  Volume& volume_;
  core::Token next_ = 1;
  std::map<core::Token, Reply> replies_;
};

}  // namespace twinloft::repl::daemon
