#include "command_desk.h"

#include <utility>

namespace twinloft::repl::daemon {

void CommandDesk::on_line(const std::string& line, Reply reply) {
  Result<command::Command> parsed = command::parse(line);
  if (!parsed) return reply(std::unexpected(parsed.error()));
  // A command may end the wait of a stop.
  bool waits_for_stop = volume_.is_draining() ||
                        (volume_.is_stopping() && !command::helps_a_stop(*parsed, volume_.is_suspended()));
  if (waits_for_stop && !command::only_reads(*parsed))
    return reply(fail(Errc::conflict, "the node is being stopped"));
  std::visit([&](const auto& c) { carry_out(c, std::move(reply)); }, *parsed);
}

void CommandDesk::carry_out(const command::Connect& c, Reply reply) {
  if (Status done = volume_.set_peers_wanted(c.wanted); !done) return reply(std::unexpected(done.error()));
  reply(c.wanted ? std::string("connecting to every peer\n") : std::string("disconnected from every peer\n"));
}

core::Token CommandDesk::keep(Reply reply) {
  core::Token token = next_++;
  if (reply) replies_.emplace(token, std::move(reply));
  return token;
}

CommandDesk::Reply CommandDesk::take(core::Token token) {
  auto found = replies_.extract(token);
  return found ? std::move(found.mapped()) : nullptr;
}

}  // namespace twinloft::repl::daemon
