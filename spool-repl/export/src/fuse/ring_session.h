// The state of RingExport: the entries of the ring, and the requests in flight.
#pragma once

#include <sys/stat.h>

#include <deque>
#include <memory>
#include <vector>

#include "ring_codec.h"
#include "ring_flow.h"
#include "ring_kernel.h"
#include "twinloft/spool-repl/export/buffer_pool.h"
#include "twinloft/spool-repl/export/ring_export.h"
#include "twinloft/spool-repl/export/side_thread.h"

namespace twinloft::repl::fuse {

struct RingExport::State {
  State(ports::Loop& the_loop, ports::BlockTarget& the_target, FuseOptions the_options,
        std::unique_ptr<RingKernel> the_kernel);
  ~State();

  // A request at the target. A longer range than an IoRequest may have is submitted in pieces.
  struct Request {
    State* state = nullptr;
    std::uint64_t unique = 0;  // the kernel's number of the request
    std::uint64_t range_left = 0;
    ports::IoRequest io;
  };
  struct Entry : Request {
    EntryFlow flow;
    std::uint64_t tag = 0;  // its place in `entries`
    unsigned queue = 0;
    std::uint64_t commit_id = 0;
    uapi::RequestHeader* header = nullptr;
    std::byte* payload = nullptr;
    iovec buffers[2]{};
  };
  // From /dev/fuse.
  struct Direct : Request {
    exports::Buffer buffer;
  };

  Status mount();
  Status greet();  // answers FUSE_INIT
  Status make_entries();
  Status register_entries();
  void watch();

  void on_ring();
  void on_completion(const RingCompletion& done);
  void serve(Entry& entry);
  void answer(Entry& entry, int error, std::size_t bytes);
  void commit(Entry& entry);
  void commit_again();

  void on_connection();
  void serve_direct(std::span<const std::byte> message);
  void answer_direct(std::uint64_t unique, int error, std::span<const std::byte> reply);

  void submit_io(Request& request, const Decision& wanted, std::byte* data, void (*done)(ports::IoRequest&));
  bool continues(Request& request);  // the range has another piece, which was submitted
  void count(const ports::IoRequest& io);
  void note_lost_write(int error);

  void wants_flush();
  void submit();
  void connection_ended();
  void break_connection(const std::string& why);
  void end_mount(std::function<void()> afterwards);
  void unwatch();
  void tell_changed();
  void on_unmounted(Status outcome);
  bool connection_lives() const;
  unsigned at_kernel() const;  // entries
  bool await_entries();        // true: the kernel has none of them

  ports::Loop& loop;
  ports::BlockTarget& target;
  FuseOptions options;
  std::unique_ptr<RingKernel> kernel;
  exports::BufferPool pool;
  FuseCounters counters;
  FileFacts file;

  bool mounted = false, ended = false, watching = false, stopping = false;
  bool to_submit = false, flush_posted = false;
  unsigned failed_submits = 0;
  ports::Loop::TimerId timer = 0;         // of commits that wait for memory
  ports::Loop::TimerId submit_timer = 0;  // of a refused submission

  std::byte* memory = nullptr;
  std::size_t memory_bytes = 0;
  std::deque<Entry> entries;
  std::vector<std::byte> message;  // of /dev/fuse
  std::vector<std::unique_ptr<Direct>> direct;
  unsigned in_target = 0;
  std::function<void(Status)> stopped;
  // Results of other threads are ignored after the export is destroyed.
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  // Ends the mount. DeviceExport's side thread may wait for the file at that time. Destroyed before `kernel`,
  // with its work done.
  std::unique_ptr<exports::SideThread> ender;
};

}  // namespace twinloft::repl::fuse
