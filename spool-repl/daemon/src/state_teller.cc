#include "state_teller.h"

#include <utility>

#include "twinloft/base/log.h"
#include "twinloft/spool-repl/daemon/events.h"

namespace twinloft::repl::daemon {

StateTeller::StateTeller(const VolumeSettings& settings, std::string uuid, const Clock& clock)
    : volume_(settings.name), uuid_(std::move(uuid)), clock_(clock), file_(settings.state_file) {
  thread_ = std::jthread([this] { write_all(); });
}

StateTeller::~StateTeller() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
}

void StateTeller::tell(VolumeState state, std::string role, std::string reason) {
  if (file_.path().empty()) return;
  if (told_.state == name_of(state) && told_.role == role && told_.reason == reason) return;
  if (told_.state != name_of(state)) {
    told_.since = clock_.now();
    told_.time = time_text(clock_.wall(), false);
  }
  told_.volume = volume_;
  told_.uuid = uuid_;
  told_.state = name_of(state);
  told_.role = std::move(role);
  told_.reason = std::move(reason);
  {
    std::lock_guard lock(mutex_);
    unwritten_ = told_;
  }
  changed_.notify_one();
}

// The thread. A state that a later one replaces before it is written is left out.
void StateTeller::write_all() {
  std::unique_lock lock(mutex_);
  for (;;) {
    auto is_due = [&] { return ending_ || unwritten_; };
    if (failed_)
      changed_.wait_for(lock, retry, is_due);
    else
      changed_.wait(lock, is_due);
    if (ending_) return;
    auto state = std::exchange(unwritten_, std::nullopt);
    if (!state) state = failed_;
    lock.unlock();
    if (write(*state))
      failed_.reset();
    else
      failed_ = std::move(state);
    lock.lock();
  }
}

bool StateTeller::write(const spool_state::SpoolState& state) {
  Status written = file_.write(state);
  if (!written && !failed_)
    log_warning("volume {}: its state is not told to other programs: {}", volume_, written.error().message);
  return written.has_value();
}

}  // namespace twinloft::repl::daemon
