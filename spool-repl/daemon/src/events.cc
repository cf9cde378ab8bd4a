#include "twinloft/spool-repl/daemon/events.h"

#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "twinloft/base/fd.h"
#include "twinloft/base/json.h"

namespace twinloft::repl::daemon {

std::string time_text(WallTime t, bool with_microseconds) {
  time_t seconds = t.seconds;
  tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::string text = fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", utc.tm_year + 1900, utc.tm_mon + 1,
                                 utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
  return with_microseconds ? fmt::format("{}.{:06}Z", text, t.microseconds) : text + "Z";
}

namespace {

std::optional<WallTime> parse_time(const char* text) {
  tm utc{};
  int micros = 0, used = 0;
  if (std::sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d.%6dZ%n", &utc.tm_year, &utc.tm_mon, &utc.tm_mday,
                  &utc.tm_hour, &utc.tm_min, &utc.tm_sec, &micros, &used) != 7 ||
      used == 0)
    return std::nullopt;
  utc.tm_year -= 1900;
  utc.tm_mon -= 1;
  return WallTime{::timegm(&utc), micros};
}

std::optional<Event> parse_event(std::string_view line) {
  boost::system::error_code error;
  json::value value = json::parse(json::string_view(line.data(), line.size()), error);
  if (error || !value.is_object()) return std::nullopt;
  const json::object& o = value.get_object();
  auto number = [&](const char* key) -> std::uint64_t {
    const json::value* v = o.if_contains(key);
    boost::system::error_code not_one;
    std::uint64_t n = v ? v->to_number<std::uint64_t>(not_one) : 0;
    return not_one ? 0 : n;
  };
  auto text = [&](const char* key) {
    const json::value* v = o.if_contains(key);
    return v && v->is_string() ? std::string(v->get_string()) : std::string();
  };
  const json::value* serious = o.if_contains("serious");
  auto time = parse_time(text("time").c_str());
  if (number("n") == 0 || !time) return std::nullopt;
  return Event{number("n"),
               *time,
               text("kind"),
               serious && serious->is_bool() && serious->get_bool(),
               static_cast<ReplicaId>(number("peer")),
               number("epoch"),
               text("text")};
}

}  // namespace

std::string state_directory(const VolumeSettings& s) {
  if (!s.archive.empty()) return s.archive;
  struct stat st{};
  // The directory of a device is /dev, which is in memory.
  if (::stat(s.journal.c_str(), &st) == 0 && S_ISBLK(st.st_mode)) return "/var/lib/twinloft";
  std::size_t slash = s.journal.rfind('/');
  return slash == 0 ? "/" : s.journal.substr(0, slash);
}

std::string events_path(const VolumeSettings& s) {
  return fmt::format("{}/{}.events", state_directory(s), s.name);
}

std::vector<Event> load_events(const std::string& path) {
  std::vector<Event> events;
  for (const std::string& name : {path + ".1", path}) {
    auto text = read_file(name, 2 * event_file_bytes_max);
    if (!text) continue;
    std::string_view rest = *text;
    while (!rest.empty()) {
      std::size_t end = rest.find('\n');
      if (end == rest.npos) break;  // an incomplete line
      if (auto e = parse_event(rest.substr(0, end));
          e && (events.empty() || e->number > events.back().number))
        events.push_back(std::move(*e));
      rest.remove_prefix(end + 1);
    }
  }
  if (events.size() > events_kept_max)
    events.erase(events.begin(), events.end() - static_cast<std::ptrdiff_t>(events_kept_max));
  return events;
}

std::string event_text(const Event& e) {
  return fmt::format("{:>5}  {}  {} {:<20} {}\n", e.number, time_text(e.time, false), e.serious ? '!' : ' ',
                     e.kind, e.text);
}

std::string event_json(const std::string& volume, const Event& e) {
  json::object o{{"n", e.number},        {"time", time_text(e.time, true)},
                 {"volume", volume},     {"kind", e.kind},
                 {"serious", e.serious}, {"peer", nullptr},
                 {"epoch", nullptr},     {"text", e.text}};
  if (e.peer != 0) o["peer"] = e.peer;
  if (e.epoch != 0) o["epoch"] = e.epoch;
  return json::serialize(o) + "\n";
}

}  // namespace twinloft::repl::daemon
