// The commands of the control socket, as values. docs/formats/control.md has the lines.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "twinloft/base/result.h"

namespace twinloft::repl::daemon::command {

struct Status {
  enum class Form { text, json, line } form = Form::text;
};
struct Events {
  std::string range;  // as for EventLog::answer()
};
struct Promote {
  bool force = false, accept_loss = false;
};
struct Discard {
  bool force = false;
};
struct Demote {};
struct Connect {
  bool wanted = true;  // false: disconnect
};
using Command = std::variant<Status, Events, Promote, Discard, Demote, Connect>;

// Errors: Errc::invalid (an unknown command).
Result<Command> parse(std::string_view line);

// Whether the command may help a stop that waits for writes of a suspended volume.
bool helps_a_stop(const Command& command, bool suspended);
bool only_reads(const Command& command);

}  // namespace twinloft::repl::daemon::command
