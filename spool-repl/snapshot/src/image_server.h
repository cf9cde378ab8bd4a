// The image as a file, served by FUSE from a process of its own.
//
// Of its own: a process that is killed while it waits for a request that only itself could answer stays for
// ever, and with it mount and device. Here a user of the image waits for another process, which goes with it,
// and not before it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/snapshot/cow_target.h"

namespace twinloft::repl::snapshot {

class ImageServer {
 public:
  // `mount_point`: of the FUSE file, in this process's mount namespace. To be called by the only thread there
  // is; the server ends with that thread. The target must outlive this.
  static Result<std::unique_ptr<ImageServer>> start(CowTarget& target, const std::string& mount_point);
  ~ImageServer();  // the file must not be in use
  ImageServer(const ImageServer&) = delete;
  ImageServer& operator=(const ImageServer&) = delete;

 private:
  explicit ImageServer(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

}  // namespace twinloft::repl::snapshot
