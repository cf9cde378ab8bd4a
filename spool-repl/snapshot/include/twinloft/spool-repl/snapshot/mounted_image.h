// The file system in a replica's image, mounted for reading: its own journal is replayed in an overlay, the
// image stays as it is.
//
// Nothing is left behind however the process ends: the mount is in a namespace of this process, the loop
// device is cleared by the kernel with its last user, the process that serves the device ends with this one,
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
  // The calling thread has a mount namespace of its own from here on: call this before there are other
  // threads. Image and its files must outlive this. `overlay_directory` needs room for what the replay
  // writes: the file system's journal at most. Errors: the file system is none of ext2, ext3, ext4 and XFS,
  // or can not be mounted; no root, no FUSE, no loop devices.
  static Result<std::unique_ptr<MountedImage>> mount(const journal::Image& image,
                                                     const std::string& overlay_directory);
  ~MountedImage();
  MountedImage(const MountedImage&) = delete;
  MountedImage& operator=(const MountedImage&) = delete;

  int root() const { return root_.get(); }  // of the tree
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
