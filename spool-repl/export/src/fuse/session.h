// The state of FuseExport: the libfuse session, and the requests in flight.
#pragma once

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <sys/stat.h>

#include <memory>
#include <optional>
#include <vector>

#include "mount.h"
#include "twinloft/spool-repl/export/buffer_pool.h"
#include "twinloft/spool-repl/export/fuse_export.h"

namespace twinloft::repl::fuse {

struct FuseExport::State {
  State(ports::Loop& the_loop, ports::BlockTarget& the_target, exports::SideThread& the_side,
        FuseOptions the_options);
  ~State();

  // A request at the target. A longer range than an IoRequest may have is submitted in pieces, one after the
  // other.
  struct Pending {
    State* state = nullptr;
    fuse_req_t request = nullptr;
    ports::IoRequest io;
    exports::Buffer buffer;
    std::uint64_t range_left = 0;  // the rest of a trim or zero range after `io`
  };

  Status mount();
  void on_ready();
  void connection_ended();  // no more requests will come
  void unwatch();
  void on_unmounted(Status outcome);

  void submit(fuse_req_t request, ports::IoOp op, std::uint64_t offset, std::uint32_t length,
              exports::Buffer buffer, std::uint64_t range_left = 0, bool fua = false);
  static void on_io_done(ports::IoRequest& io);
  void answer(Pending& p);
  // The kernel splits a large write into requests, and acknowledges a partial write of a loop device as
  // complete.
  void refuse_write(fuse_req_t request, int error);
  Pending& take_pending();

  void fill_attributes(struct stat& out) const;

  ports::Loop& loop;
  ports::BlockTarget& target;
  exports::SideThread& side;
  FuseOptions options;
  exports::BufferPool pool;
  FuseCounters counters;

  fuse_session* session = nullptr;
  bool mounted = false;
  bool ended = false;       // the connection has ended
  bool write_lost = false;  // a write has failed: no flush succeeds any more
  dev_t device = 0;         // of the mount; its path may later have another mount
  bool watching = false;
  bool stopping = false;
  struct stat underlying{};  // of the mount point's own file
  fuse_buf input{};          // libfuse allocates its memory on first use

  std::vector<std::unique_ptr<Pending>> all_pending;
  std::vector<Pending*> free_pending;
  unsigned in_target = 0;
  std::function<void(Status)> stopped;
  // Results of the side thread are ignored after the export is destroyed.
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
};

// The low-level operations; their userdata is the State.
const fuse_lowlevel_ops& operations();

}  // namespace twinloft::repl::fuse
