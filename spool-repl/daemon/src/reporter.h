// Says what happened to a volume: in its events, and in the log.
#pragma once

#include <functional>
#include <string>

#include "event_log.h"

namespace twinloft::repl::daemon {

class Reporter {
 public:
  Reporter(const VolumeSettings& settings, const Clock& clock)
      : volume_(settings.name), events_(events_path(settings), settings.name, clock) {}

  // What events name from now on unless they name another: the counter of the volume's epoch.
  void set_epoch(std::function<std::uint64_t()> epoch) { epoch_ = std::move(epoch); }
  // `once`: see EventLog::add().
  void say(std::string kind, std::string text, bool serious = false, ReplicaId peer = 0,
           std::uint64_t epoch = 0, bool once = false);
  void warn(std::string kind, std::string text) { say(std::move(kind), std::move(text), true); }
  // Into the events only: somebody else says it in the log.
  void note_failed_start(const std::string& why);
  const EventLog& events() const { return events_; }

 private:
  std::string volume_;
  std::function<std::uint64_t()> epoch_;
  EventLog events_;
};

}  // namespace twinloft::repl::daemon
