// fsync(2) and syncfs(2) with a check that the file system still works.
//
// A return value of 0 is no proof of durability. On XFS, fsync of a directory returns 0 after the file system
// has shut down. On ext4, after one fsync has reported a failed commit of the journal, every later fsync and
// syncfs returns 0 until an operation tries to change the file system. Both states last until the file system
// is unmounted. So a check after the sync shows whether the sync was effective.
#pragma once

#include <string>

#include "twinloft/base/result.h"

namespace twinloft {

// Makes the content of a file, or the entries of a directory, durable. Errors: as of fsync(2). Error::sys is
// EIO or EROFS if the file system has failed.
Status sync_durably(int fd);

// Makes the name of a file durable: its directory's entries. Errors: as above, and of open(2).
Status sync_parent_durably(const std::string& path);

// Writes the data of a file, and waits until the disk has taken it, perhaps into a volatile cache
// (sync_file_range(2)). No check for a failed file system: a later sync_durably() has it.
Status write_back(int fd);
// Begins to write the data of a file, and does not wait for the disk. A later write_back() waits.
Status start_write_back(int fd);

// Makes everything on the file system of `fd` durable. Errors: as above. The check is that of
// check_not_failed(), with its limits.
Status sync_file_system_durably(int fd);

// Checks that the file system of `fd` has not failed, and changes nothing: it removes an extended attribute
// that no file has, for which the file system starts a transaction. A caller without write permission on the
// file detects only an XFS that has shut down. Errors: EIO or EROFS in Error::sys.
Status check_not_failed(int fd);

// Whether check_not_failed() detects every failure through this file: the caller may write to the file, and
// the file system has extended attributes.
bool sees_failure(int fd);

}  // namespace twinloft
