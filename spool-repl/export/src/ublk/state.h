// The state of UblkExport: the tags of its queue, and the owner of each tag.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device.h"
#include "driver.h"
#include "twinloft/spool-repl/export/ublk_export.h"

namespace twinloft::repl::ublk {

struct UblkExport::State {
  State(ports::Loop& the_loop, ports::BlockTarget& the_target, exports::SideThread& the_side,
        UblkOptions the_options, std::shared_ptr<Driver> driver);
  ~State();

  // A tag is at the driver (a fetch waits for a request), at the target, or here while its request is
  // checked. A lost tag gets no more requests, since its device is being stopped.
  enum class Place : std::uint8_t { here, driver, target, lost };
  struct Tag {
    State* state = nullptr;
    unsigned number = 0;
    Place place = Place::here;
    bool held = false;  // the target has `io` and the buffer. After abort() also while the tag is at the
                        // driver
    ports::IoRequest io;
  };

  // Runs `step` on the side thread, and passes its result to `then`, unless the export is destroyed
  // meanwhile.
  template <class Step, class Then>
  void on_side(Step step, Then then) {
    auto outcome = std::make_shared<Status>();
    side.run([outcome, step, device = control] { *outcome = step(*device); },
             [outcome, watched = std::weak_ptr(alive), then = std::move(then)]() mutable {
               if (!watched.expired()) then(std::move(*outcome));
             });
  }

  void add();
  void on_added(Status added);
  Status open_queue();
  void on_started(Status started);
  void tell_ready(Result<std::string> device);
  void detach(std::function<void(Status)> stopped);
  void on_stopped(Status outcome, std::function<void(Status)> stopped);
  void sweep_later();
  void close_queue();
  void withdraw_link();

  void on_ready();
  void reap();
  void on_completion(const Completion& c);
  void lose(Tag& tag, int result);
  void lose_device();
  void serve(Tag& tag);
  int prepare(const uapi::IoDescriptor& d, ports::IoRequest& io) const;  // 0, or the errno of a refusal
  static void on_io_done(ports::IoRequest& io);
  void answer(Tag& tag, int error, std::uint32_t length);
  void give(Tag& tag, uapi::Io command, int result);
  void wants_flush();
  void submit();

  void abort();
  void finish_abort();
  void tell_gone();
  void fail_all();
  void serve_until(const std::atomic<bool>& done);

  std::byte* buffer(unsigned tag) const {
    return memory + static_cast<std::size_t>(tag) * options.max_io_bytes;
  }

  ports::Loop& loop;
  ports::BlockTarget& target;
  exports::SideThread& side;
  UblkOptions options;
  std::shared_ptr<Driver> driver;
  std::shared_ptr<Device> control;
  UblkCounters counters;

  std::byte* memory = nullptr;  // a buffer for each tag, and one whose content is ignored
  std::size_t memory_bytes = 0;
  std::vector<Tag> tags;
  std::unique_ptr<Queue> queue;
  unsigned in_target = 0;
  unsigned lost = 0;   // tags
  int lost_error = 0;  // of the first tag that was lost by an error
  bool nonsense_told = false;
  bool to_submit = false, flush_posted = false;

  std::string device;
  std::string trouble;  // the reason if the device is lost
  bool aborted = false, stopping = false, gone = false;
  std::vector<std::function<void()>> wait_until_gone;
  // After an abort; set by the side thread.
  std::shared_ptr<std::atomic<bool>> kernel_let_go = std::make_shared<std::atomic<bool>>(false);
  ports::Loop::TimerId timer = 0;
  int sweeps = 0;
  std::function<void(Result<std::string>)> ready;  // nullptr once it was called
  std::function<void(Status)> stop_after_ready;
  // Results of the side thread are ignored after the export is destroyed.
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
};

}  // namespace twinloft::repl::ublk
