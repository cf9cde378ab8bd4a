// The image as a file by FUSE, served by a separate process.
//
// A process that is killed while it waits for its own answer would stay, with the mount and the device. A
// user of the image waits for another process instead, which ends after its user.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/snapshot/cow_target.h"

namespace twinloft::repl::snapshot {

class ImageServer {
 public:
  // mount_point: of the FUSE file, in this process's mount namespace. Call it in a process with a single
  // thread; the server ends with this thread. The target must outlive this object.
  static Result<std::unique_ptr<ImageServer>> start(CowTarget& target, const std::string& mount_point);
  ~ImageServer();  // the file must not be in use
  ImageServer(const ImageServer&) = delete;
  ImageServer& operator=(const ImageServer&) = delete;

 private:
  explicit ImageServer(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

}  // namespace twinloft::repl::snapshot
