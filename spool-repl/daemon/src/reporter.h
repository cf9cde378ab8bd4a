// Reports events of a volume, to its event log and to the log.
#pragma once

#include <functional>
#include <string>

#include "event_log.h"

namespace twinloft::repl::daemon {

class Reporter {
 public:
  Reporter(const VolumeSettings& settings, const Clock& clock)
      : volume_(settings.name), events_(events_path(settings), settings.name, clock) {}

  // The epoch of later events without an epoch: the counter of the volume's epoch.
  void set_epoch(std::function<std::uint64_t()> epoch) { epoch_ = std::move(epoch); }
  // Called after each new event, which may be within a step of the core.
  void set_on_event(std::function<void()> on_event) { on_event_ = std::move(on_event); }
  // `once`: see EventLog::add().
  void say(std::string kind, std::string text, bool serious = false, ReplicaId peer = 0,
           std::uint64_t epoch = 0, bool once = false);
  void warn(std::string kind, std::string text) { say(std::move(kind), std::move(text), true); }
  // To the event log alone, if the log has the line already.
  void note_failed_start(const std::string& why);
  const EventLog& events() const { return events_; }

 private:
  std::string volume_;
  std::function<std::uint64_t()> epoch_;
  std::function<void()> on_event_;
  EventLog events_;
};

}  // namespace twinloft::repl::daemon
