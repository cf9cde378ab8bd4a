#include "stopper.h"

namespace twinloft::repl::daemon {

using Next = Stopping::Next;

void Stopper::ask(bool force) {
  bool first = !stopping_.is_asked();
  Next next = stopping_.ask(force, first && volume_.volume_status().failed);
  if (next == Next::nothing) return;
  perform(next);
  say_waits();
  if (first) watch();
}

void Stopper::perform(Next next) {
  switch (next) {
    case Next::nothing:
      return;
    case Next::stop_front_ends:
      return volume_.stop_front_ends(false, [this](const Status& stopped) {
        perform(stopping_.front_ends_stopped(stopped, loop_.now()));
        say_waits();
      });
    case Next::take_front_ends:
      volume_.fail_requests();
      return volume_.stop_front_ends(
          true, [this](const Status&) { perform(stopping_.front_ends_taken(loop_.now())); });
    case Next::drain:
      return drain();
    case Next::checkpoint:
      volume_.checkpoint();
      return loop_.post([] {});
    case Next::end:
      return volume_.ended(volume_.volume_status().failed && stopping_.has_failed_by_itself());
  }
}

void Stopper::drain() {
  if (volume_.volume_status().role == core::Role::primary)
    volume_.flush([this] { stopping_.flushed(); });
  else
    stopping_.flushed();
  volume_.checkpoint();
  keep_turning();
}

// A turn is requested, since no later event may cause one.
void Stopper::keep_turning() {
  if (!stopping_.is_ended()) loop_.after(drain_turn, [this] { keep_turning(); });
}

void Stopper::turn() {
  if (!stopping_.is_draining() || stopping_.is_ended()) return;
  perform(stopping_.turn(volume_.volume_status(), volume_.is_settled(), loop_.now()));
}

void Stopper::watch() {
  if (stopping_.is_draining()) return;
  say_waits();
  loop_.after(watch_every, [this] {
    perform(stopping_.try_again(volume_.role_changes()));
    watch();
  });
}

std::string Stopper::waits_for() const {
  if (!stopping_.is_asked() || stopping_.is_draining()) return "";
  return stopping_.waits_for(volume_.volume_status(), volume_.oldest_request());
}

void Stopper::say_waits() {
  std::string waits = waits_for();
  if (waits.empty() || waits == said_) return;
  volume_.say_waits(waits);
  said_ = waits;
}

}  // namespace twinloft::repl::daemon
