// Starts, stops and aborts the export.
#include <sys/mman.h>

#include <utility>

#include "state.h"
#include "twinloft/base/check.h"
#include "twinloft/base/log.h"
#include "twinloft/spool-repl/export/loop_device.h"

namespace twinloft::repl::ublk {

using State = UblkExport::State;

namespace {

constexpr int remove_pauses = 5 * Driver::pauses_a_second;  // udev reads a device that is being removed
constexpr int remove_pauses_abort = 1 * Driver::pauses_a_second;
constexpr std::chrono::seconds sweep_interval{2};
constexpr int sweeps_max = 60;

}  // namespace

State::State(ports::Loop& the_loop, ports::BlockTarget& the_target, exports::SideThread& the_side,
             UblkOptions the_options, std::shared_ptr<Driver> the_driver)
    : loop(the_loop),
      target(the_target),
      side(the_side),
      options(std::move(the_options)),
      driver(std::move(the_driver)),
      control(std::make_shared<Device>(driver, options, target.size_bytes())) {
  TL_CHECK_MSG(options.queue_depth > 0 && options.queue_depth <= uapi::queue_depth_max, "a queue's depth");
  TL_CHECK_MSG(options.max_io_bytes % 4096 == 0 && options.max_io_bytes > 0 &&
                   options.max_io_bytes <= ports::io_max_length,
               "a request's size");
}

State::~State() {
  TL_CHECK_MSG(in_target == 0, "a ublk export is destroyed with requests at the target");
  close_queue();
  if (timer != 0) loop.cancel(timer);
  if (memory != nullptr) ::munmap(memory, memory_bytes);
}

void State::add() {
  on_side([](Device& d) { return d.add(); }, [this](Status added) { on_added(std::move(added)); });
}

void State::on_added(Status added) {
  if (aborted) return tell_ready(fail(Errc::unavailable, "ublk: {}: the export was aborted", options.link));
  if (added) added = open_queue();
  if (!added) return tell_ready(std::unexpected(added.error()));
  on_side([](Device& d) { return d.start(); }, [this](Status started) { on_started(std::move(started)); });
}

void State::on_started(Status started) {
  if (aborted) return tell_ready(fail(Errc::unavailable, "ublk: {}: the export was aborted", options.link));
  if (!started && lost_error != 0)
    started = fail_errno(lost_error, "ublk: the kernel's driver refuses its request slots");
  if (!started) return tell_ready(std::unexpected(started.error()));
  device = control->path;
  if (Status linked = exports::publish_symlink(device, options.link); !linked)
    return tell_ready(std::unexpected(linked.error()));
  if (control->left_over > 0) sweep_later();
  tell_ready(device);
}

void State::tell_ready(Result<std::string> path) {
  std::weak_ptr watched(alive);
  std::exchange(ready, nullptr)(std::move(path));
  if (watched.expired() || !stop_after_ready) return;
  auto stopped = std::exchange(stop_after_ready, nullptr);
  if (aborted) return stopped({});
  detach(std::move(stopped));
}

// A killed process may have left a device that is mounted, or whose loss the driver has not detected yet.
void State::sweep_later() {
  timer = loop.after(sweep_interval, [this] {
    timer = 0;
    side.run([device = control] { device->sweep(); },
             [this, watched = std::weak_ptr(alive)] {
               if (watched.expired() || stopping || aborted) return;
               if (control->left_over == 0) return;
               if (++sweeps < sweeps_max) return sweep_later();
               log_warning(
                   "ublk: {}: a device of an earlier process is still in use (mounted?); it stays as a dead "
                   "device",
                   options.link);
             });
  });
}

void State::detach(std::function<void(Status)> stopped) {
  stopping = true;
  on_side([](Device& d) { return d.stop(false); },
          [this, stopped = std::move(stopped)](Status outcome) mutable {
            on_stopped(std::move(outcome), std::move(stopped));
          });
}

void State::on_stopped(Status outcome, std::function<void(Status)> stopped) {
  if (aborted) return stopped({});  // aborted meanwhile: nothing is left to stop
  if (!outcome) {
    stopping = false;
    return stopped(std::move(outcome));
  }
  close_queue();
  withdraw_link();
  gone = true;
  side.run([device = control] { device->remove(remove_pauses); },
           [watched = std::weak_ptr(alive), stopped = std::move(stopped)] {
             if (!watched.expired()) stopped({});
           });
}

void State::withdraw_link() {
  if (!device.empty()) exports::withdraw_symlink(device, options.link);
  device.clear();
}

UblkExport::UblkExport(std::unique_ptr<State> state) : state_(std::move(state)) {}

UblkExport::~UblkExport() {
  state_->abort();
  if (state_->gone) return;
  state_->serve_until(*state_->kernel_let_go);
  state_->finish_abort();
}

std::unique_ptr<UblkExport> UblkExport::start(ports::Loop& loop, ports::BlockTarget& target,
                                              exports::SideThread& side, UblkOptions options,
                                              std::shared_ptr<Driver> driver,
                                              std::function<void(Result<std::string>)> ready) {
  std::unique_ptr<UblkExport> made(
      new UblkExport(std::make_unique<State>(loop, target, side, std::move(options), std::move(driver))));
  made->state_->ready = std::move(ready);
  made->state_->add();
  return made;
}

void UblkExport::stop(std::function<void(Status)> stopped) {
  State& s = *state_;
  if (s.ready)
    s.stop_after_ready = std::move(stopped);
  else
    s.detach(std::move(stopped));
}

// The kernel releases the device when all requests are answered, which may take some time. The loop continues
// meanwhile.
void State::abort() {
  if (gone || std::exchange(aborted, true)) return;
  control->give_up = true;
  fail_all();
  submit();
  withdraw_link();
  on_side(
      [let_go = kernel_let_go](Device& d) {
        Status stopped = d.stop(true);
        if (!stopped) log_error("{}", stopped.error().message);
        *let_go = true;
        return stopped;
      },
      [this](Status) { finish_abort(); });
}

void State::finish_abort() {
  if (std::exchange(gone, true)) return;
  close_queue();
  control->char_device.reset();
  withdraw_link();
  side.run([device = control] { device->remove(remove_pauses_abort); }, [] {});
  tell_gone();
}

void State::tell_gone() {
  for (auto& told : std::exchange(wait_until_gone, {}))
    loop.post([watched = std::weak_ptr(alive), told = std::move(told)] {
      if (!watched.expired() && told) told();
    });
}

void UblkExport::abort(std::function<void()> gone) {
  state_->wait_until_gone.push_back(std::move(gone));
  state_->abort();
  if (state_->gone) state_->tell_gone();
}

void UblkExport::flush() {
  state_->submit();
}
const std::string& UblkExport::device() const {
  return state_->device;
}
std::string UblkExport::trouble() const {
  return state_->trouble;
}
unsigned UblkExport::in_flight() const {
  return state_->in_target;
}
const UblkCounters& UblkExport::counters() const {
  return state_->counters;
}

}  // namespace twinloft::repl::ublk
