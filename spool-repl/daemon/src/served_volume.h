// A volume that is served on a thread: its parts, their connections, and the turn of the loop.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "performer.h"
#include "roles.h"
#include "state_teller.h"
#include "stopper.h"
#include "twinloft/spool-repl/daemon/link_security.h"
#include "twinloft/spool-repl/daemon/volume_runner.h"

namespace twinloft::repl::daemon {

class ServedVolume final : public FrontEndLife::Volume, public CommandDesk::Volume, public Stopper::Volume {
 public:
  ServedVolume(VolumeSettings settings, ProcessParts process)
      : settings_(std::move(settings)), process_(std::move(process)) {}

  // Serves until it is stopped, or fails. before_control: called when everything except the control socket
  // is ready. started: called once, when the volume is served, or has failed without leaving anything
  // behind.
  void run(const std::function<void()>& before_control, const std::function<void(Status)>& started);

  // From any thread, once the volume is served.
  void request_stop(bool force);
  void reload(const VolumeSettings& now, Security security);
  bool stands_down() const { return roles_.stands_down(); }
  bool has_failed() const { return failed_; }  // without a request
  const std::string& failure() const { return failure_; }

 private:
  Status set_up(const std::function<void()>& before_control);
  Status open();
  Status join_parts();
  void tear_down();
  void drain_disk();
  void turn();
  void arm_tick();
  void try_promotion();
  void leave_failed_disk();
  void watch_state();
  void tell_state();
  // Calls look(view) with what `status` shows.
  template <class Look>
  auto with_view(Look look);
  void stop_loop();
  core::Core& core() { return *opened_->core; }
  void step(core::Event&& event) { opened_->step(std::move(event), loop_->now()); }

  // FrontEndLife::Volume
  std::unique_ptr<FrontEnds> make_front_ends() override;
  void stand_down() override { roles_.stand_down(); }
  void ask_core_to_demote(FrontEndLife::Reply reply) override;
  void device_is_taken_away() override;
  void fail_volume(const std::string& why, bool tell) override;
  void end() override { loop_->stop(); }
  void gives_back(const std::string& why) override { reporter_->warn("failed", why + ": demoted again"); }
  bool is_draining() override { return stopper_->state().is_draining(); }

  // CommandDesk::Volume
  bool is_suspended() override { return core().status().suspended; }
  bool is_stopping() override { return stopper_->state().is_under_way(); }
  std::string show_status(command::Status::Form form) override;
  Result<std::string> show_events(const std::string& range) override;
  void command_core(core::Event command) override { step(std::move(command)); }
  void demote(CommandDesk::Reply reply) override;
  Status set_peers_wanted(bool wanted) override { return links_->set_wanted(wanted); }

  // Stopper::Volume
  core::VolumeStatus volume_status() override { return core().status(); }
  bool is_settled() override { return core().settled(); }
  Duration oldest_request() override { return requests_->oldest_wait(); }
  bool role_changes() override { return front_ends_->role_changes(); }
  void stop_front_ends(bool force, std::function<void(Status)> done) override;
  void fail_requests() override { step(core::Detach{}); }
  void flush(std::function<void()> done) override { requests_->flush(std::move(done)); }
  void checkpoint() override { step(core::CheckpointNow{}); }
  void say_waits(const std::string& why) override;
  void ended(bool failed) override;

  const VolumeSettings settings_;
  const ProcessParts process_;
  OsClock clock_;
  OsRandom random_;
  Roles roles_;
  std::unique_ptr<StateTeller> teller_;
  std::unique_ptr<Reporter> reporter_;
  std::shared_ptr<LinkShares> shares_;
  std::unique_ptr<OpenedVolume> opened_;
  std::unique_ptr<io::UringLoop> loop_;
  std::unique_ptr<ClientRequests> requests_;
  std::unique_ptr<Links> links_;
  std::shared_ptr<const stream::TlsContext> nbd_tls_;
  std::unique_ptr<FrontEndLife> front_ends_;
  CommandDesk commands_{*this};
  std::unique_ptr<Stopper> stopper_;
  std::unique_ptr<Performer> performer_;
  std::unique_ptr<control::Server> control_;
  ports::Loop::TimerId tick_timer_ = 0;
  Instant tick_at_;
  bool state_may_differ_ = false;  // from what teller_ has told
  std::string failure_;            // before failed_ is set
  std::atomic<bool> failed_ = false;
};

}  // namespace twinloft::repl::daemon
