#include "front_end_life.h"

#include <utility>

namespace twinloft::repl::daemon {

void FrontEndLife::on_role(const core::RoleChange& change) {
  if (change.role == core::Role::secondary) {
    if (change.lost) on_lost();
    return;
  }
  change_ = Attaching{};
  if (!leaving_) attach();  // otherwise after the end of the old device
}

void FrontEndLife::attach() {
  current_ = volume_.make_front_ends();
  current_->start([this, which = current_.get()](Status attached) {
    if (current_.get() == which) on_attached(std::move(attached));
  });
}

void FrontEndLife::report_start(Done done) {
  if (!current_) return done({});
  started_ = std::move(done);
}

void FrontEndLife::when_attached(Done done) {
  std::get<Attaching>(change_).waiting.push_back(std::move(done));
}

void FrontEndLife::on_attached(Status attached) {
  std::vector<Done> waiting;
  if (auto* attaching = std::get_if<Attaching>(&change_)) waiting = std::move(attaching->waiting);
  change_ = Steady{};
  for (const Done& done : waiting) done(attached);
  if (!attached && !waiting.empty()) {
    give_back(attached.error().message);
  } else if (!attached && !volume_.is_draining()) {
    // At the start, or by the node itself: only the log gets the error.
    volume_.fail_volume(attached.error().message, !started_);
    current_->stop(true, [this](const Status&) { volume_.end(); });
  }
  if (auto report = std::exchange(started_, nullptr)) report(std::move(attached));
}

// Promoted, but the device cannot be made: the promotion is ended, since a primary without a device serves
// no client.
void FrontEndLife::give_back(const std::string& why) {
  volume_.gives_back(why);
  current_->stop(true, [this, which = current_.get()](const Status&) {
    drop(which);
    volume_.ask_core_to_demote(nullptr);
  });
}

void FrontEndLife::demote(const core::VolumeStatus& status, Reply reply) {
  if (status.role == core::Role::secondary || !current_) {
    volume_.stand_down();
    // Cancels a waiting promotion, such as for the arbiter.
    return volume_.ask_core_to_demote(std::move(reply));
  }
  if (role_changes()) return reply(fail(Errc::conflict, "a change of role is under way"));
  if (status.suspended)
    return reply(fail(Errc::conflict, "cannot demote now: writes wait for {}", status.waits_for));
  change_ = Demoting{std::move(reply)};
  current_->stop(false, [this, which = current_.get()](const Status& stopped) {
    // Otherwise another replica was promoted meanwhile, and the reply was sent.
    if (std::holds_alternative<Demoting>(change_) && current_.get() == which)
      on_stopped_for_demotion(stopped);
  });
}

void FrontEndLife::on_stopped_for_demotion(const Status& stopped) {
  Reply reply = std::move(std::get<Demoting>(change_).reply);
  change_ = Steady{};
  if (!stopped)
    return reply(fail(Errc::conflict, "{}. Unmount it first; until then this replica stays Primary",
                      stopped.error().message));
  volume_.stand_down();
  volume_.ask_core_to_demote(
      [this, which = current_.get(), reply = std::move(reply)](Result<std::string> done) {
        drop(which);
        reply(std::move(done));
      });
}

// Posted, since front ends must not be destroyed within their callback. Others may replace them meanwhile.
void FrontEndLife::drop(const FrontEnds* which) {
  loop_.post([this, which] {
    if (current_.get() == which) current_.reset();
  });
}

// Another replica was promoted. Waiting replies are sent now, since the end of their operations is not
// reported any more.
void FrontEndLife::on_lost() {
  volume_.stand_down();
  auto change = std::exchange(change_, Steady{});
  if (auto* attaching = std::get_if<Attaching>(&change)) {
    for (const Done& done : attaching->waiting)
      done(fail(Errc::conflict, "another replica was promoted while the device here was being attached"));
    if (auto report = std::exchange(started_, nullptr)) report({});
  }
  if (auto* demoting = std::get_if<Demoting>(&change))
    demoting->reply(
        fail(Errc::conflict, "another replica was promoted meanwhile: this replica is Secondary"));
  if (!current_) return;
  volume_.device_is_taken_away();
  leaving_ = std::move(current_);
  leaving_->stop(true, [this](const Status&) {
    loop_.post([this] {
      leaving_.reset();
      if (is_attaching() && !volume_.is_draining()) attach();
    });
  });
}

void FrontEndLife::stop(bool force, Done done) {
  if (current_)
    current_->stop(force, std::move(done));
  else
    done({});
}

void FrontEndLife::end() {
  current_.reset();
  leaving_.reset();
  if (auto report = std::exchange(started_, nullptr))
    report(fail(Errc::unavailable, "stopped while it was being started"));
}

}  // namespace twinloft::repl::daemon
