#include "twinloft/spool-repl/daemon/volume_runner.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <future>
#include <map>

#include "arbiter_watch.h"
#include "archiver.h"
#include "arena_memory.h"
#include "command.h"
#include "core_settings.h"
#include "disk_shell.h"
#include "event_log.h"
#include "front_ends.h"
#include "in_use.h"
#include "memory_bound.h"
#include "resync_watch.h"
#include "status_text.h"
#include "storage.h"
#include "twinloft/base/check.h"
#include "twinloft/base/log.h"
#include "twinloft/base/service_manager.h"
#include "twinloft/spool-repl/arbiter/arbiter.h"
#include "twinloft/spool-repl/control/control.h"
#include "twinloft/spool-repl/daemon/check.h"
#include "twinloft/spool-repl/journal/recovery.h"
#include "twinloft/spool-repl/net/peer_net.h"
#include "wait_meter.h"

namespace twinloft::repl::daemon {

namespace {

constexpr Duration drain_time_max = std::chrono::seconds(15);
constexpr Duration promotion_retry = std::chrono::milliseconds(500);
constexpr Duration slow_stop = std::chrono::seconds(2);

}  // namespace

class VolumeRunner::Impl final : public ports::BlockTarget {
 public:
  Impl(VolumeSettings settings, StartHooks hooks)
      : settings_(std::move(settings)), hooks_(std::move(hooks)) {}

  Status start() {
    auto promise = std::make_shared<std::promise<Status>>();
    std::future<Status> started = promise->get_future();
    thread_ = std::thread([this, promise] { run(promise); });
    if (hooks_.late && started.wait_for(hooks_.late_after) == std::future_status::timeout) hooks_.late();
    Status result = started.get();
    if (!result) wait();
    return result;
  }
  void request_stop(bool force) {
    if (loop_) loop_->post([this, force] { begin_stop(force); });
  }
  void wait() {
    if (thread_.joinable()) thread_.join();
  }
  bool failed() const { return failed_; }
  bool stands_down() const { return stands_down_; }
  const std::string& failure() const { return failure_; }
  void reload(std::map<ReplicaId, std::string> addresses, std::string secret) {
    loop_->post([this, addresses = std::move(addresses), secret = std::move(secret)] {
      if (!net_) return;
      net_->set_secret(secret);
      for (const auto& [id, address] : addresses) net_->set_address(id, address);
    });
  }

  // ports::BlockTarget
  std::uint64_t size_bytes() const override { return superblock_.volume_blocks * block_size; }
  void submit(ports::IoRequest& r) override {
    waits_.begin(r, loop_->now());
    core_->step(core::ClientRequest{static_cast<core::ClientOp>(r.op), r.fua, r.offset, r.length, r.data,
                                    reinterpret_cast<std::uint64_t>(&r)});
  }

 private:
  void run(const std::shared_ptr<std::promise<Status>>& promise) {
    Status ready = set_up();
    if (!ready) {
      if (ready.error().code != Errc::unavailable)
        remove_stale_link(settings_);  // else the one that serves it may have made it
      if (events_)
        events_->add({0, {}, "failed", true, 0, 0, "could not be started: " + ready.error().message});
      tear_down();
      promise->set_value(ready);
      return;
    }
    started_ = [promise](Status s) { promise->set_value(std::move(s)); };
    core_->tick(loop_->now());  // it must know the time before anything has a deadline
    if (wants_primary_) try_promotion();
    // Where the volume can be primary at once its front ends belong to the start, errors and all.
    turn();
    if (!front_ends_) std::exchange(started_, nullptr)({});
    happened("started", fmt::format("served from now on, at {}", core_->status().last.v));
    Status end = loop_->run();
    if (!end) {
      warn("failed", end.error().message);
      fail_volume(end.error().message);
    }
    tear_down();
  }

  // The other volumes of this process go on; who has started this one sees it once the thread has ended.
  void fail_volume(std::string why) {
    failure_ = std::move(why);
    failed_ = true;
  }

  Status set_up() {
    TL_TRY_ASSIGN(storage_, open_storage(settings_));
    remove_stale_link(settings_);
    events_ = std::make_unique<EventLog>(events_path(settings_), settings_.name, clock_);
    core::Config config = core_config(settings_);
    if (settings_.arena < arena_bytes_min(settings_))
      return fail(Errc::invalid, "volume.{}.arena: {} MiB is too small: at least {} MiB are needed",
                  settings_.name, settings_.arena >> 20, arena_bytes_min(settings_) >> 20);
    TL_TRY(fits_memory(settings_));
    TL_TRY(arena_memory_.map(settings_.arena / block_size * block_size));
    TL_TRY(read_memory_.map(read_memory_bytes));
    std::size_t room = core::recovery_blocks(config, arena_memory_.span().size() / block_size) * block_size;
    auto report = [this](std::string kind, std::string text, bool serious) {
      happened(std::move(kind), std::move(text), serious);
    };
    TL_TRY_ASSIGN(RecoveredLog log, replay(settings_, storage_, arena_memory_.span().first(room), report));
    superblock_ = log.superblock;
    was_primary_ = last_writer(log) == superblock_.replica;
    arena_ = std::make_unique<core::Arena>(arena_memory_.span());
    reads_ = std::make_unique<core::Arena>(read_memory_.span());
    TL_TRY_ASSIGN(core_, core::Core::create(config, std::move(log), *arena_, *reads_, random_));

    TL_TRY_ASSIGN(loop_, io::UringLoop::create(clock_));
    if (Status s = loop_->register_memory(std::array{arena_memory_.span(), read_memory_.span()}); !s)
      log_info(
          "volume {}: the arena is not registered with io_uring, which only makes disk operations cheaper: "
          "{}",
          settings_.name, s.error().message);
    resyncs_ = std::make_unique<ResyncWatch>(
        *loop_, superblock_.volume_blocks, [this] { return core_->status(); },
        [this](ReplicaId peer, std::string text) {
          happened("resync-progress", std::move(text), false, peer);
        });
    disk_ = std::make_unique<DiskShell>(*loop_, storage_.journal, storage_.data,
                                        [this](core::Event e) { core_->step(std::move(e)); });
    TL_TRY(start_arbiter());
    TL_TRY(start_net());
    archiver_ = std::make_unique<Archiver>(*loop_, storage_.journal.fd.get(), state_directory(settings_),
                                           settings_.name);
    control_ = std::make_unique<control::Server>(
        *loop_, settings_.control,
        [this](const std::string& c, control::Server::Reply reply) { on_line(c, std::move(reply)); },
        control::Access{settings_.status_everybody, settings_.status_group});
    if (hooks_.before_control) hooks_.before_control();
    TL_TRY(wait_while_in_use([&] { return control_->start(); }));
    wants_primary_ = settings_.role == core::Role::primary || (settings_.role_as_before && was_primary_);
    loop_->set_turn_hook([this] { turn(); });
    return {};
  }

  Status start_arbiter() {
    TL_TRY_ASSIGN(auto store,
                  arbiter::make_store(settings_.arbiter, superblock_.volume, superblock_.replica, clock_));
    if (!store) return {};
    arbiter_ = std::make_unique<ArbiterWatch>(*loop_, std::move(store), settings_.name,
                                              [this](core::ArbiterAnswer a) { core_->step(std::move(a)); });
    return {};
  }

  Status start_net() {
    if (settings_.peers.empty()) return {};
    net::NetOptions o;
    o.self = {superblock_.volume, superblock_.volume_blocks, superblock_.replica,
              [all = settings_](ReplicaId peer) { return agreement_with(all, peer).text(); }};
    o.listen = settings_.listen;
    TL_TRY_ASSIGN(o.secret, read_secret(settings_.secret_file));
    o.timeout = settings_.peer_timeout;
    for (const PeerSettings& p : settings_.peers) o.peers.push_back({p.id, p.address});
    net_ = std::make_unique<net::PeerNet>(
        *loop_, std::move(o), random_,
        net::NetEvents{
            [this](ReplicaId id) { core_->step(core::PeerUp{id}); },
            [this](ReplicaId id) { core_->step(core::PeerDown{id}); },
            [this](ReplicaId id, PeerMessage m) { core_->step(core::PeerInput{id, std::move(m)}); },
            [this](ReplicaId id, const std::string& text) { on_link_trouble(id, text); },
            [this](ReplicaId id, const std::string& text, bool other) { on_unfit(id, text, other); }});
    return net_->start();
  }

  // ---- one turn
  // ----------------------------------------------------------------------------------------------------

  void turn() {
    core_->tick(loop_->now());
    for (;;) {
      core_->get_output(out_);
      if (out_.empty()) break;
      core::perform_in_order(out_, *this);
      out_.clear();
    }
    if (front_ends_) front_ends_->flush();
    arm_tick();
    if (draining_ && !ended_) continue_stop();
    if (disk_failed_ && !stop_asked_ && !failed_) leave_failed_disk();
  }

  // A secondary confirms nothing any more, and its primary's clients wait for that: the connections go, and
  // the volume is started again. A primary stays, for what its clients still read.
  void leave_failed_disk() {
    core::VolumeStatus s = core_->status();
    if (s.role != core::Role::secondary || !replies_.empty()) return;
    fail_volume(s.failure);
    loop_->post([this] { loop_->stop(); });
  }

  template <class Performer>
  friend void core::perform_in_order(core::Output& out, Performer& performer);
  template <class DiskEffect>
  void perform(const DiskEffect& effect) {
    disk_->perform(effect);
  }

  // ---- events
  // ------------------------------------------------------------------------------------------------------

  void happened(std::string kind, std::string text, bool serious = false, ReplicaId peer = 0,
                std::uint64_t epoch = 0, bool once = false) {
    if (epoch == 0 && core_) epoch = core_->status().epoch.counter;
    std::string line = fmt::format("volume {}: {}", settings_.name, text);
    if (!events_->add({0, {}, std::move(kind), serious, peer, epoch, std::move(text)}, once)) return;
    log_line(serious ? LogLevel::warning : LogLevel::info, line);
  }
  void warn(std::string kind, std::string text) { happened(std::move(kind), std::move(text), true); }

  // A refused connection is tried again, with the same words.
  void perform(const core::Notice& n) {
    using enum core::NoticeKind;
    bool once = n.kind == other || n.kind == refused || n.kind == split_brain;
    disk_failed_ = disk_failed_ || n.kind == core::NoticeKind::failed;
    happened(name_of(n.kind), n.text, n.serious, n.peer, n.epoch, once);
    if (n.kind == connected || n.kind == resync_begun) resyncs_->begin();
  }
  void on_unfit(ReplicaId peer, const std::string& text, bool other_arbiter) {
    unfit_[peer] = text;
    core_->step(core::PeerUnfit{peer, text, other_arbiter});
  }
  void on_link_trouble(ReplicaId peer, const std::string& text) {
    happened("connection", text, true, peer, 0, true);
  }

  void perform(core::ArchiveTail& tail) {
    archiver_->start(std::move(tail), [this, token = tail.token, first = tail.first,
                                       last = tail.last](Result<std::string> path) {
      if (path)
        warn("archived", fmt::format("records {} to {} are kept in {}", first.v, last.v, *path));
      else
        warn("archived",
             fmt::format("records {} to {} can not be kept: {}", first.v, last.v, path.error().message));
      core_->step(core::DiskDone{token, path ? 0 : EIO});
    });
  }

  void perform(core::ArbiterRequest& r) {
    if (arbiter_) arbiter_->ask(std::move(r));  // there is none any more at the very end
  }
  void perform(const core::Send& s) { net_->send(s.peer, s.message); }
  void perform(const core::SendRecord& r) {
    pieces_.clear();
    for (const core::IoPiece& p : r.pieces) pieces_.push_back({p.data, p.bytes});
    net_->send_record(r.peer, r.epoch, r.meta_bytes, pieces_);
  }
  void all_sent() {
    if (net_) net_->flush();
  }
  void perform(const core::ClosePeer& c) { net_->close(c.peer, c.reason); }

  void perform(const core::Complete& c) {
    if (c.id == stop_flush_id) {
      stop_flushed_ = true;
      return;
    }
    auto* request = reinterpret_cast<ports::IoRequest*>(c.id);
    waits_.end(*request);
    request->error = c.error;
    request->done(*request);
  }

  void arm_tick() {
    auto next = core_->next_tick();
    if (!next || (tick_timer_ != 0 && tick_at_ <= *next)) return;
    if (tick_timer_ != 0) loop_->cancel(tick_timer_);
    tick_at_ = *next;
    tick_timer_ = loop_->after(*next - loop_->now(), [this] { tick_timer_ = 0; });  // the turn hook does the
                                                                                    // rest
  }

  // ---- control
  // -----------------------------------------------------------------------------------------------------

  void on_line(const std::string& line, control::Server::Reply reply) {
    Result<command::Command> parsed = command::parse(line);
    if (!parsed) return reply(std::unexpected(parsed.error()));
    // What a stop waits for may be mended by a command.
    bool helps = command::helps_a_stop(*parsed, core_->status().suspended);
    if (!command::only_reads(*parsed) && (draining_ || (stopping_ && !helps)))
      return reply(fail(Errc::conflict, "the node is being stopped"));
    std::visit([&](const auto& c) { carry_out(c, std::move(reply)); }, *parsed);
  }

  void carry_out(const command::Status& c, control::Server::Reply reply) {
    using Form = command::Status::Form;
    core::VolumeStatus status = core_->status();
    if (net_) tell_link_troubles(status, *net_, unfit_);
    NodeView view{settings_,
                  superblock_.volume,
                  size_bytes(),
                  front_ends_ ? front_ends_->device() : "",
                  front_ends_ ? front_ends_->nbd_uri() : "",
                  wants_primary_,
                  arbiter_ ? arbiter_->trouble() : "",
                  status,
                  resyncs_->meter(),
                  front_ends_ ? front_ends_->device_trouble() : "",
                  stop_waits_for(),
                  waits_.oldest(loop_->now()),
                  disk_->oldest(loop_->now()),
                  front_ends_ && front_ends_->device_lost()};
    reply(c.form == Form::text   ? status_text(view)
          : c.form == Form::line ? status_line(view)
                                 : status_json(view));
  }
  void carry_out(const command::Events& c, control::Server::Reply reply) { reply(events_->answer(c.range)); }
  void carry_out(const command::Promote& c, control::Server::Reply reply) {
    core_->step(core::Promote{keep(std::move(reply)), c.force, c.accept_loss});
  }
  void carry_out(const command::Discard& c, control::Server::Reply reply) {
    core_->step(core::Discard{keep(std::move(reply)), c.force});
  }
  void carry_out(const command::Demote&, control::Server::Reply reply) { demote(std::move(reply)); }
  void carry_out(const command::Connect& c, control::Server::Reply reply) {
    if (!net_) return reply(fail(Errc::invalid, "this volume has no peers"));
    for (const PeerSettings& p : settings_.peers) net_->set_wanted(p.id, c.wanted);
    reply(c.wanted ? std::string("connecting to every peer\n")
                   : std::string("disconnected from every peer\n"));
  }

  // Until the core answers the command with this token.
  core::Token keep(control::Server::Reply reply) {
    core::Token token = next_command_++;
    replies_.emplace(token, std::move(reply));
    return token;
  }

  void perform(const core::CommandDone& c) {
    auto found = replies_.find(c.token);
    if (found == replies_.end()) return;
    auto reply = std::move(found->second);
    replies_.erase(found);
    // A promotion is done when its device is there.
    if (c.ok && front_ends_starting_) {
      promoted_ = [reply = std::move(reply), text = c.text](Status s) {
        reply(s ? Result<std::string>(text + "\n") : std::unexpected(s.error()));
      };
      return;
    }
    reply(c.ok ? Result<std::string>(c.text + "\n") : fail(Errc::conflict, "{}", c.text));
  }

  // ---- roles
  // -------------------------------------------------------------------------------------------------------

  // Again and again until it is granted: the other replicas may not be there yet. The reason shows in status.
  void try_promotion() {
    if (!wants_primary_ || stopping_) return;
    // An arbiter would grant it as soon as the primary that is followed now is lost. When to replace that
    // primary is for an operator or a cluster manager to say: its users may still be reading from it.
    core::VolumeStatus s = core_->status();
    if (arbiter_ && std::any_of(s.peers.begin(), s.peers.end(), [](const auto& p) { return p.primary; })) {
      stand_down();
      return;
    }
    if (s.role == core::Role::secondary) core_->step(core::Promote{0, false});
    loop_->after(promotion_retry, [this] { try_promotion(); });
  }

  void stand_down() {
    wants_primary_ = false;
    stands_down_ = true;
  }

  void perform(const core::RoleChange& change) {
    if (change.role == core::Role::primary) {
      front_ends_starting_ = true;
      if (!leaving_) start_front_ends();  // else when the old device is gone
      return;
    }
    if (!change.lost) return;
    stand_down();
    end_attaching("another replica was promoted while the device here was being attached");
    if (auto reply = std::exchange(demoting_, nullptr))
      reply(fail(Errc::conflict, "another replica was promoted meanwhile: this one is Secondary"));
    if (!front_ends_) return;
    log_error("volume {}: another replica is primary now: the device here is taken away", settings_.name);
    leaving_ = std::move(front_ends_);
    leaving_->stop(true, [this](Status) {
      loop_->post([this] {
        leaving_.reset();
        if (front_ends_starting_ && !draining_) start_front_ends();
      });
    });
  }

  void start_front_ends() {
    front_ends_ = std::make_unique<FrontEnds>(
        *loop_, *this, settings_, core_->status().epoch,
        [this](std::string text, bool serious) { happened("device", std::move(text), serious, 0, 0, true); });
    front_ends_->start([this](Status s) { on_front_ends(std::move(s)); });
  }

  // Its end is not reported any more: a caller that waits for it is answered now.
  void end_attaching(const std::string& why) {
    if (!std::exchange(front_ends_starting_, false)) return;
    if (auto promoted = std::exchange(promoted_, nullptr)) promoted(fail(Errc::conflict, "{}", why));
    if (auto report = std::exchange(started_, nullptr)) report({});
  }

  // The device goes first: it is what can refuse, and after it nothing is written any more.
  void demote(control::Server::Reply reply) {
    if (core_->status().role == core::Role::secondary || !front_ends_) {
      stand_down();
      // Gives up a promotion that still waits, for the arbiter say.
      return ask_core_to_demote(std::move(reply));
    }
    if (front_ends_starting_ || demoting_)
      return reply(fail(Errc::conflict, "a change of role is under way"));
    core::VolumeStatus s = core_->status();
    if (s.suspended)
      return reply(fail(Errc::conflict, "writes wait for {}: demoting would leave them behind", s.waits_for));
    demoting_ = std::move(reply);
    front_ends_->stop(false, [this, which = front_ends_.get()](Status stopped) {
      if (!demoting_ || front_ends_.get() != which) return;  // deposed meanwhile, and answered
      auto asked = std::exchange(demoting_, nullptr);
      if (!stopped)
        return asked(fail(Errc::conflict, "{}. Unmount it first; until then this replica stays Primary",
                          stopped.error().message));
      stand_down();
      ask_core_to_demote([this, which, asked = std::move(asked)](Result<std::string> done) {
        drop(which);
        asked(std::move(done));
      });
    });
  }
  // Not from within its own callback; and another one may have come in its place by then.
  void drop(const FrontEnds* which) {
    loop_->post([this, which] {
      if (front_ends_.get() == which) front_ends_.reset();
    });
  }
  void ask_core_to_demote(control::Server::Reply reply) { core_->step(core::Demote{keep(std::move(reply))}); }

  // ---- start and stop
  // ----------------------------------------------------------------------------------------------

  void on_front_ends(Status s) {
    front_ends_starting_ = false;
    if (auto promoted = std::exchange(promoted_, nullptr)) {
      promoted(s);
      if (!s) give_back(s.error().message);
    } else if (!s && !draining_) {
      // At start, or on this node's own account: nobody but the log is there to be told.
      fail_volume(s.error().message);
      if (!started_) warn("failed", s.error().message);
      front_ends_->stop(true, [this](Status) { loop_->stop(); });
    }
    if (auto report = std::exchange(started_, nullptr)) report(std::move(s));
  }

  // Promoted, and the device can not be made: better no primary than one without a device.
  void give_back(const std::string& why) {
    warn("failed", why + ": demoted again");
    front_ends_->stop(true, [this, which = front_ends_.get()](Status) {
      drop(which);
      core_->step(core::Demote{next_command_++});
    });
  }

  // In good order first, also where force was asked for: meanwhile the device may have been unmounted. While
  // that is under way, and where it is refused again, force takes the device away.
  void begin_stop(bool force) {
    if (draining_ || (stopping_ && !force)) return;
    bool first = !std::exchange(stop_asked_, true);
    if (first) failed_before_stop_ = core_->status().failed;
    if (stopping_) return stop_by_force();
    try_to_stop(force);
    tell_stopping();
    if (first) watch_stopping();
  }

  void try_to_stop(bool force) {
    stopping_ = true;
    auto stopped = [this, force](Status s) {
      if (draining_) return;
      if (s) return drain();
      if (force) return stop_by_force();
      stopping_ = false;
      stop_refused_ = s.error().message +
                      ". Unmount it first; asked once more, the device is taken away from its users";
      tell_stopping();
    };
    if (front_ends_)
      front_ends_->stop(false, stopped);
    else
      stopped({});
  }

  // What a stop that was asked for waits for; empty: nothing.
  std::string stop_waits_for() const {
    if (!stop_asked_ || draining_ || forced_) return "";
    if (!stop_refused_.empty()) return stop_refused_;  // also while it is tried again
    core::VolumeStatus s = core_->status();
    bool late = waits_.oldest(loop_->now()) >= slow_stop;
    if (!s.suspended && !late) return "";
    std::string why = s.suspended ? fmt::format("the volume is suspended: writes wait for {}", s.waits_for)
                                  : "requests of the device are not answered";
    return why +
           ". A second SIGTERM stops it at once: requests that wait fail, and the journal keeps what was "
           "acknowledged";
  }

  void tell_stopping() {
    std::string waits = stop_waits_for();
    if (waits.empty() || waits == stop_told_) return;
    warn("stopping", "not stopped yet: " + waits);
    tell_service_manager(fmt::format("STATUS=volume {}: not stopped yet: {}", settings_.name, waits),
                         Patience::none);
    stop_told_ = waits;
  }

  // Tries again what was refused: that alone sees an unmount in whichever mount namespace it is.
  void watch_stopping() {
    if (draining_) return;
    tell_stopping();
    loop_->after(std::chrono::seconds(1), [this] {
      if (!stopping_ && !stop_refused_.empty() && !front_ends_starting_ && !demoting_) try_to_stop(false);
      watch_stopping();
    });
  }

  void stop_by_force() {
    forced_ = true;
    core_->step(core::Detach{});
    auto drains = [this](Status) {
      if (!draining_) drain();
    };
    if (front_ends_)
      front_ends_->stop(true, drains);
    else
      drains({});
  }

  void drain() {
    draining_ = true;
    drain_until_ = loop_->now() + drain_time_max;
    if (core_->status().role == core::Role::primary)
      core_->step(core::ClientRequest{core::ClientOp::flush, false, 0, 0, nullptr, stop_flush_id});
    else
      stop_flushed_ = true;
    core_->step(core::CheckpointNow{});
    watch_stop();
  }

  // Nothing may happen any more that would bring a turn.
  void watch_stop() {
    if (!ended_) loop_->after(std::chrono::milliseconds(20), [this] { watch_stop(); });
  }

  void continue_stop() {
    core::VolumeStatus s = core_->status();
    bool cannot_finish = s.failed || (s.suspended && s.durable == s.last);
    if (stop_flushed_ && !checkpoint_asked_) {
      checkpoint_asked_ = true;
      core_->step(core::CheckpointNow{});
      loop_->post([] {});
      return;
    }
    bool done = (stop_flushed_ && core_->settled()) || cannot_finish;
    if (!done && loop_->now() < drain_until_) return;
    if (s.failed && (failed_before_stop_ || !forced_)) fail_volume(s.failure);
    happened("stopped", fmt::format("stopped at {}, {}", s.last.v,
                                    core_->settled() ? "everything is in the data area"
                                                     : "the journal keeps what is not in the data area"));
    ended_ = true;
    loop_->post([this] { loop_->stop(); });  // this is the turn's beginning: it would wait once more
  }

  void tear_down() {
    arbiter_.reset();
    // Front ends may still have requests here if the loop itself failed: all of them are answered first.
    if (core_ && front_ends_ && !ended_) core_->step(core::Detach{});
    while (disk_ && disk_->in_flight() > 0 && loop_->turn(std::chrono::milliseconds(100))) {
    }
    if (core_ && loop_) {
      turn();  // hands out what the last of them completed
    }
    if (loop_) loop_->set_turn_hook(nullptr);
    front_ends_.reset();
    leaving_.reset();
    archiver_.reset();
    control_.reset();
    net_.reset();
    // Operations still under way refer to the arena: they end before it goes.
    while (disk_ && disk_->in_flight() > 0 && loop_->turn(std::chrono::milliseconds(100))) {
    }
  }

  static constexpr std::uint64_t stop_flush_id = 0;

  VolumeSettings settings_;
  const StartHooks hooks_;
  OsClock clock_;
  OsRandom random_;
  Storage storage_;
  Superblock superblock_;
  ArenaMemory arena_memory_, read_memory_;
  std::unique_ptr<core::Arena> arena_, reads_;
  std::unique_ptr<core::Core> core_;
  std::unique_ptr<io::UringLoop> loop_;
  std::unique_ptr<DiskShell> disk_;
  std::unique_ptr<Archiver> archiver_;
  std::unique_ptr<ArbiterWatch> arbiter_;  // nullptr: manual
  std::unique_ptr<net::PeerNet> net_;
  std::unique_ptr<control::Server> control_;
  std::unique_ptr<FrontEnds> front_ends_;  // while primary
  std::unique_ptr<FrontEnds> leaving_;     // of a primary that was deposed: its device is being taken away
  bool was_primary_ = false;               // says the log here: the newest epoch in it is this replica's
  bool wants_primary_ = false;  // by configuration, until an administrator or another primary says otherwise
  std::atomic<bool> stands_down_ = false;  // an administrator or another primary has said otherwise
  bool disk_failed_ = false, front_ends_starting_ = false;
  control::Server::Reply demoting_;       // waits for the front ends to stop
  std::function<void(Status)> promoted_;  // waits for the front ends
  core::Token next_command_ = 1;          // 0: this node's own promotion
  std::map<core::Token, control::Server::Reply> replies_;
  std::unique_ptr<EventLog> events_;
  std::unique_ptr<ResyncWatch> resyncs_;
  core::Output out_;
  std::vector<ByteSpan> pieces_;
  ports::Loop::TimerId tick_timer_ = 0;
  Instant tick_at_, drain_until_;
  bool stop_asked_ = false, forced_ = false, failed_before_stop_ = false;  // a forced stop fails the device
                                                                           // too
  std::string stop_refused_, stop_told_;  // why the last attempt failed; what the log was told
  bool stopping_ = false, draining_ = false, stop_flushed_ = false, checkpoint_asked_ = false, ended_ = false;
  WaitMeter waits_;
  std::map<ReplicaId, std::string> unfit_;  // what the last handshake that found other settings said
  std::string failure_;                     // before failed_ is set
  std::atomic<bool> failed_ = false;
  std::function<void(Status)> started_;
  std::thread thread_;
};

VolumeRunner::VolumeRunner(VolumeSettings settings, StartHooks hooks)
    : impl_(std::make_unique<Impl>(std::move(settings), std::move(hooks))) {}
VolumeRunner::~VolumeRunner() {
  impl_->wait();
}
Status VolumeRunner::start() {
  return impl_->start();
}
void VolumeRunner::request_stop(bool force) {
  impl_->request_stop(force);
}
void VolumeRunner::wait() {
  impl_->wait();
}
bool VolumeRunner::failed() const {
  return impl_->failed();
}
bool VolumeRunner::stands_down() const {
  return impl_->stands_down();
}
std::string VolumeRunner::failure() const {
  return impl_->failure();
}
void VolumeRunner::reload(std::map<ReplicaId, std::string> addresses, std::string secret) {
  impl_->reload(std::move(addresses), std::move(secret));
}

}  // namespace twinloft::repl::daemon
