#include "served_volume.h"

#include <array>
#include <utility>

#include "in_use.h"
#include "status_text.h"
#include "twinloft/base/log.h"
#include "twinloft/base/service_manager.h"
#include "twinloft/spool-repl/arbiter/arbiter.h"

namespace twinloft::repl::daemon {

void ServedVolume::run(const std::function<void()>& before_control,
                       const std::function<void(Status)>& started) {
  if (Status ready = set_up(before_control); !ready) {
    if (ready.error().code != Errc::unavailable)
      remove_stale_link(settings_);  // otherwise the process that serves the volume may have made it
    if (reporter_) reporter_->note_failed_start(ready.error().message);
    tear_down();
    return started(ready);
  }
  core().tick(loop_->now());  // it needs the time before the first deadline
  try_promotion();
  turn();
  teller_ = std::make_unique<StateTeller>(settings_, opened_->superblock.volume.text(), clock_);
  watch_state();
  front_ends_->report_start(started);
  reporter_->say("started", fmt::format("served from now on, at {}", core().status().last.v));
  if (Status end = loop_->run(); !end) fail_volume(end.error().message, true);
  tear_down();
}

void ServedVolume::request_stop(bool force) {
  if (loop_) loop_->post([this, force] { stopper_->ask(force); });
}

void ServedVolume::reload(const VolumeSettings& now, Security security) {
  loop_->post([this, peers = now.peers, policy = now.read_balancing, security = std::move(security)] {
    step(core::SetReadPolicy{policy});
    if (links_) links_->reload(peers, security.links);
    // The export itself changes at a restart only, so TLS neither begins nor ends before.
    if (!nbd_tls_ || !security.nbd) return;
    nbd_tls_ = security.nbd;
    if (FrontEnds* f = front_ends_->current()) f->set_nbd_tls(nbd_tls_);
  });
}

// ---- start and end

Status ServedVolume::set_up(const std::function<void()>& before_control) {
  TL_TRY(open());
  TL_TRY(join_parts());
  if (before_control) before_control();
  TL_TRY(wait_while_in_use([&] { return control_->start(); }));
  roles_.begin(settings_.role == core::Role::primary || (settings_.role_as_before && opened_->was_primary));
  loop_->set_turn_hook([this] { turn(); });
  return {};
}

// Opens the files first. If another process has them, nothing else of this volume is changed.
Status ServedVolume::open() {
  TL_TRY_ASSIGN(Storage storage, open_storage(settings_));
  remove_stale_link(settings_);
  reporter_ = std::make_unique<Reporter>(settings_, clock_);
  if (process_.memory) {
    TL_TRY_ASSIGN(shares_, LinkShares::join(settings_.peers, process_.memory));
  }
  TL_TRY_ASSIGN(opened_, OpenedVolume::open(
                             settings_, std::move(storage), random_,
                             [this](std::string kind, std::string text, bool serious) {
                               reporter_->say(std::move(kind), std::move(text), serious);
                             },
                             shares_));
  reporter_->set_epoch([this] { return core().status().epoch.counter; });
  reporter_->set_on_event([this] { state_may_differ_ = true; });
  TL_TRY_ASSIGN(loop_, io::UringLoop::create(clock_));
  if (Status s = loop_->register_memory(
          std::array{opened_->arena_memory.span(), opened_->read_memory.span()});
      !s)
    log_info(
        "volume {}: the arena is not registered with io_uring, which only makes disk operations cheaper: {}",
        settings_.name, s.error().message);
  return {};
}

Status ServedVolume::join_parts() {
  const Superblock& superblock = opened_->superblock;
  auto step = [this](core::Event&& e) { this->step(std::move(e)); };
  requests_ = std::make_unique<ClientRequests>(*loop_, superblock.volume_blocks * block_size, step);
  front_ends_ = std::make_unique<FrontEndLife>(*loop_, *this);
  stopper_ = std::make_unique<Stopper>(*loop_, *this);
  TL_TRY_ASSIGN(auto store,
                arbiter::make_store(settings_.arbiter, superblock.volume, superblock.replica, clock_));
  std::unique_ptr<ArbiterWatch> arbiter;
  if (store) arbiter = std::make_unique<ArbiterWatch>(*loop_, std::move(store), settings_.name, step);
  TL_TRY_ASSIGN(nbd_tls_, read_nbd_tls(settings_));
  TL_TRY_ASSIGN(links_, Links::start(
                            settings_, superblock, {*loop_, random_, clock_, process_, shares_}, step,
                            [this](ReplicaId peer, const std::string& text) {
                              reporter_->say("connection", text, true, peer, 0, true);
                            },
                            [this](ReplicaId peer, const std::string& text) {
                              reporter_->say("certificate", text, true, peer);
                            }));
  performer_ = std::make_unique<Performer>(Performer::Parts{settings_, *loop_, *opened_, *links_, *requests_,
                                                            *front_ends_, commands_, *reporter_,
                                                            std::move(arbiter)});
  control_ = std::make_unique<control::Server>(
      *loop_, settings_.control,
      [this](const std::string& line, control::Server::Reply reply) {
        commands_.on_line(line, std::move(reply));
      },
      control::Access{settings_.status_everybody, settings_.status_group});
  return {};
}

// Front ends may still have requests if the loop has failed. All of them are answered first.
void ServedVolume::tear_down() {
  teller_.reset();
  if (!performer_) {
    links_.reset();
    return;
  }
  performer_->end_arbiter();
  if (front_ends_->current() && !stopper_->state().is_ended()) fail_requests();
  drain_disk();
  turn();  // reports the last completions
  loop_->set_turn_hook(nullptr);
  front_ends_->end();
  performer_->end_archiver();
  control_.reset();
  links_.reset();
  drain_disk();  // operations in flight use the arena, so they end first
}

void ServedVolume::drain_disk() {
  while (performer_->disk().in_flight() > 0 && loop_->turn(std::chrono::milliseconds(100))) {
  }
}

// Does not affect the other volumes of this process. The owner of the thread detects its end.
void ServedVolume::fail_volume(const std::string& why, bool tell) {
  failure_ = why;
  failed_ = true;
  if (tell) reporter_->warn("failed", why);
}

// Posted, since the loop's run() clears an earlier request to stop.
void ServedVolume::stop_loop() {
  loop_->post([this] { loop_->stop(); });
}

// ---- the turn of the loop

void ServedVolume::turn() {
  core().tick(loop_->now());
  performer_->perform_all();
  front_ends_->flush();
  arm_tick();
  stopper_->turn();
  if (teller_ && std::exchange(state_may_differ_, false)) tell_state();
  if (performer_->disk_has_failed() && !failed_) leave_failed_disk();
}

void ServedVolume::arm_tick() {
  auto next = core().next_tick();
  if (!next || (tick_timer_ != 0 && tick_at_ <= *next)) return;
  if (tick_timer_ != 0) loop_->cancel(tick_timer_);
  tick_at_ = *next;
  tick_timer_ = loop_->after(*next - loop_->now(), [this] { tick_timer_ = 0; });  // the turn follows
}

void ServedVolume::leave_failed_disk() {
  core::VolumeStatus s = core().status();
  bool awaited = commands_.waits_for_core() || stopper_->state().is_asked();
  if (!Roles::leaves_failed_disk(s, awaited)) return;
  fail_volume(s.failure, false);
  stop_loop();
}

// ---- roles, commands, stopping

// `status` has the reason of a refusal.
void ServedVolume::try_promotion() {
  auto attempt = roles_.attempt(core().status(), performer_->arbiter() != nullptr, is_stopping());
  if (attempt == Roles::Attempt::never) return;
  if (attempt == Roles::Attempt::now) step(core::Promote{0, false});
  loop_->after(Roles::retry, [this] { try_promotion(); });
}

std::unique_ptr<FrontEnds> ServedVolume::make_front_ends() {
  return daemon::make_front_ends(*loop_, *requests_, settings_, core().status().epoch, nbd_tls_,
                                 [this](std::string text, bool serious) {
                                   reporter_->say("device", std::move(text), serious, 0, 0, true);
                                 });
}

void ServedVolume::ask_core_to_demote(FrontEndLife::Reply reply) {
  step(core::Demote{commands_.keep(std::move(reply))});
}

void ServedVolume::device_is_taken_away() {
  log_error("volume {}: another replica is primary now: removing the block device of this replica",
            settings_.name);
}

template <class Look>
auto ServedVolume::with_view(Look look) {
  core::VolumeStatus status = core().status();
  links_->tell_troubles(status);
  const FrontEnds* f = front_ends_->current();
  NodeView view{settings_,
                opened_->superblock.volume,
                requests_->size_bytes(),
                f ? f->device() : "",
                f ? f->nbd_uri() : "",
                roles_.wants_primary(),
                performer_->arbiter() ? performer_->arbiter()->trouble() : "",
                status,
                performer_->resyncs().meter(),
                f ? f->device_trouble() : "",
                stopper_->waits_for(),
                oldest_request(),
                performer_->disk().oldest(loop_->now()),
                f && f->device_lost(),
                links_->states(),
                links_->certificate_ends(),
                clock_.wall().seconds};
  return look(view);
}

std::string ServedVolume::show_status(command::Status::Form form) {
  using Form = command::Status::Form;
  return with_view([form](const NodeView& view) {
    return form == Form::text   ? status_text(view)
           : form == Form::line ? status_line(view)
                                : status_json(view);
  });
}

// ---- the state file

// A stall shows only by the time that passes, so the state is also looked at regularly.
// During tear_down() the loop still turns.
void ServedVolume::watch_state() {
  if (!teller_) return;
  tell_state();
  loop_->after(std::chrono::seconds(1), [this] { watch_state(); });
}

void ServedVolume::tell_state() {
  with_view([this](const NodeView& view) {
    bool primary = view.status.role == core::Role::primary;
    teller_->tell(state_of(view), primary ? "primary" : "secondary", reason_of(view));
  });
}

Result<std::string> ServedVolume::show_events(const std::string& range) {
  return reporter_->events().answer(range);
}

void ServedVolume::demote(CommandDesk::Reply reply) {
  front_ends_->demote(core().status(), std::move(reply));
}

void ServedVolume::stop_front_ends(bool force, std::function<void(Status)> done) {
  front_ends_->stop(force, std::move(done));
}

void ServedVolume::say_waits(const std::string& why) {
  reporter_->warn("stopping", "not stopped yet: " + why);
  tell_service_manager(fmt::format("STATUS=volume {}: not stopped yet: {}", settings_.name, why),
                       Patience::none);
}

void ServedVolume::ended(bool failed) {
  core::VolumeStatus s = core().status();
  if (failed) fail_volume(s.failure, false);
  reporter_->say("stopped",
                 fmt::format("stopped at {}, {}", s.last.v,
                             is_settled() ? "everything is in the data area"
                                          : "the journal has writes that are not in the data area"));
  stop_loop();
}

}  // namespace twinloft::repl::daemon
