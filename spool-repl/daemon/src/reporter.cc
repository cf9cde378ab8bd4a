#include "reporter.h"

#include "twinloft/base/log.h"

namespace twinloft::repl::daemon {

void Reporter::say(std::string kind, std::string text, bool serious, ReplicaId peer, std::uint64_t epoch,
                   bool once) {
  if (epoch == 0 && epoch_) epoch = epoch_();
  std::string line = fmt::format("volume {}: {}", volume_, text);
  if (!events_.add({0, {}, std::move(kind), serious, peer, epoch, std::move(text)}, once)) return;
  log_line(serious ? LogLevel::warning : LogLevel::info, line);
  if (on_event_) on_event_();
}

void Reporter::note_failed_start(const std::string& why) {
  events_.add({0, {}, "failed", true, 0, 0, "could not be started: " + why});
}

}  // namespace twinloft::repl::daemon
