// The file system of a replica's image, mounted for reading. Its journal is replayed in an overlay, and the
// image is not changed.
//
// Nothing is left after any end of the process: the mount is in the process's own namespace, the kernel
// detaches the loop device after its last user, the process that serves the device ends with its parent, and
// the overlay has no name.
#pragma once

#include <memory>
#include <string>

#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/journal/image.h"
#include "twinloft/spool-repl/snapshot/cow_target.h"

namespace twinloft::repl::snapshot {

class MountedImage {
 public:
  // Gives the calling thread its own mount namespace, so call it before other threads start. Image and files
  // must outlive the object. overlay_directory: needs room for the writes of the replay, at most the size of
  // the file system's journal. Errors: the file system is not ext2, ext3, ext4 or XFS, or cannot be mounted;
  // the caller is not root; FUSE or loop devices are missing.
  static Result<std::unique_ptr<MountedImage>> mount(const journal::Image& image,
                                                     const std::string& overlay_directory);
  ~MountedImage();
  MountedImage(const MountedImage&) = delete;
  MountedImage& operator=(const MountedImage&) = delete;

  int root() const { return root_.get(); }  // a descriptor of the root directory
  const std::string& type() const { return type_; }
  const CowTarget& target() const { return *target_; }

 private:
  MountedImage();
  Status mount_file();
  Status unmount();

  struct Parts;
  std::unique_ptr<CowTarget> target_;
  std::unique_ptr<Parts> parts_;
  std::string type_;
  Fd root_;
};

}  // namespace twinloft::repl::snapshot
