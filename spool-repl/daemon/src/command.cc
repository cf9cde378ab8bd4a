#include "command.h"

#include <array>
#include <utility>

namespace twinloft::repl::daemon::command {

Result<Command> parse(std::string_view line) {
  static const std::array<std::pair<std::string_view, Command>, 11> commands{{
      {"status", Status{Status::Form::text}},
      {"status json", Status{Status::Form::json}},
      {"status line", Status{Status::Form::line}},
      {"promote", Promote{}},
      {"promote force", Promote{true, false}},
      {"promote accept-loss", Promote{true, true}},
      {"discard", Discard{false}},
      {"discard force", Discard{true}},
      {"demote", Demote{}},
      {"connect", Connect{true}},
      {"disconnect", Connect{false}},
  }};
  for (const auto& [text, command] : commands)
    if (line == text) return command;
  constexpr std::string_view events = "events ";
  if (line.starts_with(events)) return Events{std::string(line.substr(events.size()))};
  return fail(Errc::invalid, "unknown command \"{}\"", line.substr(0, 64));
}

bool helps_a_stop(const Command& command, bool suspended) {
  if (const auto* c = std::get_if<Connect>(&command)) return c->wanted;
  const auto* p = std::get_if<Promote>(&command);
  return p && p->force && !p->accept_loss && suspended;
}

bool only_reads(const Command& command) {
  return std::holds_alternative<Status>(command) || std::holds_alternative<Events>(command);
}

}  // namespace twinloft::repl::daemon::command
