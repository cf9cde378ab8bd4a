// The events of a volume: changes of role and membership, connections, resyncs, suspensions, failures.
//
// Events are in memory for `spool-repl events`, and in a file, so that a split brain is known after a
// restart: VOLUME.events, with a line of JSON for each event, and VOLUME.events.1 with older events.
// docs/spool-repl.md has the kinds.
#pragma once

#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/spool-repl/daemon/config.h"

namespace twinloft::repl::daemon {

struct Event {
  std::uint64_t number = 0;  // from 1, and continues after a restart
  WallTime time;
  std::string kind;         // "role", "connected", ...
  bool serious = false;     // it needs attention
  ReplicaId peer = 0;       // the other replica of the event; 0: none
  std::uint64_t epoch = 0;  // the counter of the volume's epoch; 0: unknown
  std::string text;
  bool operator==(const Event& o) const {
    return number == o.number && time.seconds == o.time.seconds && time.microseconds == o.time.microseconds &&
           kind == o.kind && serious == o.serious && peer == o.peer && epoch == o.epoch && text == o.text;
  }
};

inline constexpr std::size_t events_kept_max = 1000;             // in memory, which `events` can show
inline constexpr std::size_t event_text_bytes_max = 2048;        // longer texts are cut
inline constexpr std::uint64_t event_file_bytes_max = 1u << 20;  // then it becomes VOLUME.events.1

// The directory for files of a volume: `archive`, or the directory of the journal file, or /var/lib/twinloft.
std::string state_directory(const VolumeSettings& settings);
std::string events_path(const VolumeSettings& settings);

// The newest `events_kept_max` events of both files, oldest first. Malformed lines are omitted, since a crash
// may tear the last line.
std::vector<Event> load_events(const std::string& path);

std::string time_text(WallTime time, bool with_microseconds);           // RFC 3339, in UTC
std::string event_text(const Event& event);                             // a line for people, with its newline
std::string event_json(const std::string& volume, const Event& event);  // a line of JSON, with its newline

}  // namespace twinloft::repl::daemon
