// fsync and syncfs whose success can be relied on.
//
// Success of the system call alone is no proof. On XFS, fsync of a directory returns 0 after the file system
// has shut down. On ext4, once another caller's fsync has reported a failed commit of the journal, every
// later fsync and syncfs returns 0, until an operation tries to change something. Both states last until the
// file system is unmounted, so a look at it after the sync tells whether the sync has done what it says.
#pragma once

#include "twinloft/base/result.h"

namespace twinloft {

// Of a file or a directory: its content, and the entries of a directory, are durable. EIO, EROFS: the file
// system has failed.
Status sync_durably(int fd);

// All of the file system that `fd` lies on. The look is through `fd`: see check_not_failed().
Status sync_file_system_durably(int fd);

// That the file system of `fd` has not failed so far. Changes nothing. It asks for the removal of an extended
// attribute that no file has, for which the file system starts a transaction. The caller needs the right to
// write to `fd`'s file; without it only a shut-down XFS is noticed.
Status check_not_failed(int fd);

// Whether check_not_failed() sees all that it can see through this file: the caller may write to it, and it
// takes extended attributes.
bool sees_failure(int fd);

}  // namespace twinloft
