#include "arbiter_watch.h"

#include "twinloft/base/log.h"

namespace twinloft::repl::daemon {

ArbiterWatch::ArbiterWatch(ports::Loop& loop, std::unique_ptr<arbiter::Store> store, std::string volume,
                           arbiter::Arbiter::Answer answer)
    : loop_(loop),
      volume_(std::move(volume)),
      answer_(std::move(answer)),
      arbiter_(loop, std::move(store), [this](core::ArbiterAnswer a) { on_answer(std::move(a)); }) {
  look();
}

void ArbiterWatch::look() {
  arbiter_.ask({look_token, true, std::nullopt, {}});
  loop_.after(look_every, [this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) look();
  });
}

void ArbiterWatch::on_answer(core::ArbiterAnswer answer) {
  bool silent = !arbiter_.trouble().empty();
  if (silent && !silent_) log_warning("volume {}: {}", volume_, arbiter_.trouble());
  if (!silent && silent_) log_info("volume {}: the arbiter answers again", volume_);
  silent_ = silent;
  if (answer.token != look_token) answer_(std::move(answer));
}

}  // namespace twinloft::repl::daemon
