#include "usage.h"

#include <algorithm>
#include <vector>

namespace twinloft::repl::ctl {

namespace {

struct Command {
  std::string_view name, arguments, summary;
  std::vector<std::string_view> options;
  std::string_view text;  // after the first line and the summary
};

constexpr std::string_view config_option = "  --config FILE        default /etc/twinloft/spool-repl.toml\n";

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      {"create",
       "VOLUME",
       "make the journal and the data area of this replica",
       {"adopt", "overwrite"},
       "A file is made, and never overwritten. A block device is used as it is, once nothing is recognised "
       "on it and nobody uses it.\n"
       "\n"
       "  --adopt              keep what the data area holds: it is the volume's content from then on\n"
       "  --overwrite          destroy what is recognised on a block device: file systems, partition tables, "
       "other volumes\n"},
      {"serve",
       "",
       "serve every volume of the configuration until SIGTERM",
       {},
       "The first SIGTERM or SIGINT waits until each device is unmounted and every request is answered. The "
       "second one takes devices\n"
       "away from their users; requests that wait fail.\n"},
      {"status",
       "[VOLUME]",
       "role, connections, disk state",
       {"json", "watch"},
       "Exit code: 0 all is well, 2 suspended, 3 failed, 4 split brain, 5 no primary, 6 degraded, 7 "
       "resyncing, 8 stalled, 69 not\n"
       "served; of several volumes the worst.\n"
       "\n"
       "  --json               as JSON, a line for each volume\n"
       "  --watch              again every second, with the progress of a resync\n"},
      {"events",
       "[VOLUME]",
       "what happened",
       {"json", "follow", "since"},
       "Works also while the volume is not served.\n"
       "\n"
       "  --follow             and what happens next\n"
       "  --since N            only what came behind event N\n"
       "  --json               as JSON, a line for each event\n"},
      {"promote",
       "VOLUME",
       "make this replica primary",
       {"force", "accept-loss"},
       "Unforced it needs every other recorded member, connected and secondary, or the arbiter.\n"
       "\n"
       "  --force              although others may have what this replica lacks: what may be missing is "
       "printed\n"
       "  --accept-loss        although acknowledged writes were lost here in a damaged journal\n"},
      {"demote",
       "VOLUME",
       "make this replica secondary",
       {},
       "Its device must not be in use. Everything is brought to the other replicas before it returns.\n"},
      {"discard",
       "VOLUME",
       "give up this side of a split brain: this replica is filled from the other",
       {"force"},
       "Salvage its mail first. What its journal holds is kept in a file; it waits at most 30 s for the "
       "winner to connect.\n"
       "\n"
       "  --force              although nothing of the history here is found in the other's\n"},
      {"disconnect",
       "VOLUME",
       "close the connections to the other replicas, and keep them closed",
       {},
       "Until `connect`, or a restart.\n"},
      {"connect", "VOLUME", "open the connections to the other replicas again", {}, ""},
      {"check-config",
       "",
       "read the configuration, look at what it names, and say what is wrong",
       {"syntax"},
       "  --syntax             look at nothing but the file\n"},
  };
  return all;
}

const Command* find(std::string_view name) {
  auto found = std::find_if(commands().begin(), commands().end(),
                            [&](const Command& c) { return c.name == name; });
  return found == commands().end() ? nullptr : &*found;
}

void add_line(std::string& out, std::string words, std::string_view summary) {
  words.resize(std::max<std::size_t>(words.size() + 1, 21), ' ');
  out.append("  ").append(words).append(summary).append("\n");
}

std::string general() {
  std::string out = "usage: spool-repl COMMAND [options] [VOLUME]\n\n";
  for (const Command& c : commands())
    add_line(out, std::string(c.name) + (c.arguments.empty() ? "" : " ") + std::string(c.arguments),
             c.summary);
  add_line(out, "journal VOLUME",
           "list and check the records of a journal, or make an image of the volume at an LSN");
  add_line(out, "cert", "certificates for the links between replicas, by an authority of one's own");
  add_line(out, "fuse-ring-test", "test on this machine whether FUSE over io_uring works");
  add_line(out, "salvage", "after a split brain: bring the mail of the losing side to the winner");
  out += "\n`spool-repl COMMAND --help` says more of each.\n\n";
  return out.append(config_option).append("  --version, --help\n");
}

}  // namespace

bool is_command(std::string_view command) {
  return find(command) != nullptr;
}

std::vector<std::string> command_names() {
  std::vector<std::string> out = {"journal", "fuse-ring-test", "salvage"};
  for (const Command& c : commands()) out.emplace_back(c.name);
  return out;
}

bool takes_option(std::string_view command, std::string_view option) {
  const Command* c = find(command);
  return c && std::find(c->options.begin(), c->options.end(), option) != c->options.end();
}

std::string usage_of(std::string_view command) {
  const Command* c = find(command);
  if (!c) return general();
  std::string out = "usage: spool-repl " + std::string(c->name) + (c->options.empty() ? "" : " [options]");
  if (!c->arguments.empty()) out.append(" ").append(c->arguments);
  out.append("\n\n").append(c->summary).append("\n");
  if (!c->text.empty()) out.append(c->text.starts_with("  --") ? "\n" : "").append(c->text);
  if (c->options.empty()) out.append("\n");
  return out.append(config_option);
}

}  // namespace twinloft::repl::ctl
