// What UblkExport is made of: the tags of its queue, and where each of them is.
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

  // A tag is with the driver (a fetch waits for a request), or with the target, or here while its request is
  // looked at. A lost tag brings nothing any more: its device is being stopped.
  enum class Place : std::uint8_t { here, driver, target, lost };
  struct Tag {
    State* state = nullptr;
    unsigned number = 0;
    Place place = Place::here;
    bool held = false;  // by the target: it has `io` and the buffer. After abort() also where the driver has
                        // the tag back
    ports::IoRequest io;
  };

  // `step` on the side thread, and what it says to `then`, unless this is gone by that time.
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
  int prepare(const uapi::IoDescriptor& d, ports::IoRequest& io) const;  // 0, or the errno to refuse it with
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

  std::byte* memory = nullptr;  // a buffer for each tag, and one that nothing is read from
  std::size_t memory_bytes = 0;
  std::vector<Tag> tags;
  std::unique_ptr<Queue> queue;
  unsigned in_target = 0;
  unsigned lost = 0;   // tags
  int lost_error = 0;  // of the first that was not simply given back
  bool nonsense_told = false;
  bool to_submit = false, flush_posted = false;

  std::string device;
  std::string trouble;  // why it is lost
  bool aborted = false, stopping = false, gone = false;
  std::vector<std::function<void()>> wait_until_gone;
  // After an abort; set by the side thread.
  std::shared_ptr<std::atomic<bool>> kernel_let_go = std::make_shared<std::atomic<bool>>(false);
  ports::Loop::TimerId timer = 0;
  int sweeps = 0;
  std::function<void(Result<std::string>)> ready;  // nullptr once it was called
  std::function<void(Status)> stop_after_ready;
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);  // what the side thread brings back looks at it
                                                               // first
};

}  // namespace twinloft::repl::ublk
