// `status` and `events`: print the server process's answer, once or repeatedly.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>
#include <string_view>
#include <thread>

#include "commands.h"
#include "twinloft/spool-repl/control/control.h"
#include "twinloft/spool-repl/daemon/events.h"

namespace twinloft::repl::ctl {

namespace {

constexpr Duration answer_time_max = std::chrono::seconds(5);
constexpr auto look_every = std::chrono::seconds(1);

std::vector<daemon::VolumeSettings> chosen(const daemon::NodeSettings& node, const NodeOptions& options) {
  std::vector<daemon::VolumeSettings> out;
  for (const auto& v : node.volumes)
    if (options.volume.empty() || v.name == options.volume) out.push_back(v);
  if (out.empty())
    report({Errc::invalid, fmt::format("no volume \"{}\" in {}", options.volume, options.config), 0},
           exit_usage);
  return out;
}

// Tries again while the server has too many callers. A second request for reading has no further effect.
Result<std::string> ask_to_read(const std::string& path, const std::string& question) {
  constexpr int attempts = 10;
  for (int i = 1;; ++i) {
    auto answer = control::ask(path, question, answer_time_max);
    if (answer || answer.error().code != Errc::exhausted || i == attempts) return answer;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

Error named(const daemon::VolumeSettings& v, const Error& e) {
  return {e.code, fmt::format("volume {}: {}", v.name, e.message), e.sys};
}

// "state" comes from the serializer of this project, so a search finds it. The first state of the table is
// the worst.
constexpr std::pair<std::string_view, Exit> states[] = {
    {"failed", exit_volume_failed}, {"split-brain", exit_split_brain}, {"suspended", exit_suspended},
    {"stalled", exit_stalled},      {"starting", exit_starting},       {"no-primary", exit_no_primary},
    {"degraded", exit_degraded},    {"resyncing", exit_resyncing},     {"ok", exit_ok}};

Exit state_of(const std::string& json) {
  for (const auto& [name, code] : states)
    if (json.find(fmt::format("\"state\":\"{}\"", name)) != json.npos) return code;
  return exit_failed;
}

// exit_unavailable, and an unknown state, are worse than any state.
int worse(int a, int b) {
  auto rank = [](int code) {
    auto found = std::find_if(std::begin(states), std::end(states),
                              [&](const auto& s) { return s.second == code; });
    return found - std::begin(states) - (found == std::end(states) ? std::ssize(states) + 1 : 0);
  };
  return rank(a) < rank(b) ? a : b;
}

// Red for states in which the volume stops, yellow for a lack of redundancy.
std::string_view colour_of(std::string_view line) {
  for (std::string_view bad : {"SUSPENDED", "FAILED", "SPLIT BRAIN", "STALLED"})
    if (line.find(bad) != line.npos) return "\033[1;31m";
  for (std::string_view weak : {"DEGRADED", "RESYNCING", "NO PRIMARY", "STARTING", "Inconsistent", "Outdated",
                                "waits to be promoted", "not served"})
    if (line.find(weak) != line.npos) return "\033[33m";
  return "";
}

// Overwrites the lines, since clearing the screen first would flicker.
void redraw(std::string_view text) {
  std::string out = "\033[H";
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    std::string_view colour = colour_of(line);
    out += fmt::format("{}{}{}\033[K\n", colour, line, colour.empty() ? "" : "\033[0m");
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  fmt::print("{}\033[J", out);
  std::fflush(stdout);
}

// On a terminal, a screen that is updated. Otherwise a line for each volume every second.
int watch(const std::vector<daemon::VolumeSettings>& volumes, const NodeOptions& options) {
  bool picture = !options.json && ::isatty(STDOUT_FILENO) == 1;
  const char* question = options.json ? "status json" : picture ? "status" : "status line";
  if (picture) fmt::print("\033[2J");
  for (;;) {
    std::string all;
    for (const auto& v : volumes) {
      auto text = ask_to_read(v.control, question);
      if (text)
        all += *text;
      else if (!options.json)
        all += fmt::format("{}  not served: {}\n", v.name, text.error().message);
      if (picture) all += '\n';
    }
    if (picture)
      redraw(all);
    else
      fmt::print("{}", all);
    if (std::fflush(stdout) != 0) return exit_failed;  // the reader has ended
    std::this_thread::sleep_for(look_every);
  }
}

struct Page {
  std::uint64_t last = 0;  // number of the newest event
  std::string text;
};

// From the process that serves the volume, or otherwise from the file.
Result<Page> page_of(const daemon::VolumeSettings& v, std::uint64_t since, bool json) {
  auto reply = ask_to_read(v.control, fmt::format("events {}{}", since, json ? " json" : ""));
  if (!reply && reply.error().code != Errc::unavailable) return std::unexpected(reply.error());
  Page page;
  if (reply) {
    std::size_t newline = reply->find('\n');
    std::from_chars(reply->data(), reply->data() + std::min(newline, reply->size()), page.last);
    if (newline != std::string::npos) page.text = reply->substr(newline + 1);
    return page;
  }
  for (const daemon::Event& e : daemon::load_events(daemon::events_path(v))) {
    page.last = e.number;
    if (e.number > since) page.text += json ? daemon::event_json(v.name, e) : daemon::event_text(e);
  }
  return page;
}

}  // namespace

int status(const daemon::NodeSettings& node, const NodeOptions& options) {
  std::vector<daemon::VolumeSettings> volumes = chosen(node, options);
  if (volumes.empty()) return exit_usage;
  if (options.watch) return watch(volumes, options);
  int result = exit_ok;
  for (const auto& v : volumes) {
    auto json = ask_to_read(v.control, "status json");
    auto text = json && !options.json ? ask_to_read(v.control, "status") : json;
    if (!text) {
      bool silent = text.error().code == Errc::timeout;
      result = worse(
          result, report(named(v, text.error()), silent ? exit_unavailable : exit_of_answer(text.error())));
      continue;
    }
    result = worse(result, state_of(*json));
    fmt::print("{}", *text);
  }
  if (std::fflush(stdout) != 0)
    return report(fail_errno(errno, "status: standard output").error(), exit_failed);
  return result;
}

int events(const daemon::NodeSettings& node, const NodeOptions& options) {
  std::vector<daemon::VolumeSettings> volumes = chosen(node, options);
  if (volumes.empty()) return exit_usage;
  int result = exit_ok;
  std::map<std::string, std::uint64_t> seen;
  for (const auto& v : volumes) seen[v.name] = options.since;
  for (;;) {
    for (const auto& v : volumes) {
      auto page = page_of(v, seen[v.name], options.json);
      if (!page) {
        result = report(named(v, page.error()), exit_failed);
        continue;
      }
      if (volumes.size() > 1 && !options.json && !page->text.empty()) fmt::print("{}:\n", v.name);
      fmt::print("{}", page->text);
      seen[v.name] = page->last;  // smaller than before if the files were removed
    }
    if (std::fflush(stdout) != 0) return exit_failed;
    if (!options.follow) return result;
    std::this_thread::sleep_for(look_every);
  }
}

}  // namespace twinloft::repl::ctl
