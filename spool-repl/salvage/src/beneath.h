// Opens files below a directory in which mail users may have made every name: no symbolic link is followed,
// nothing outside of the directory or on another file system is reached, and only plain files and
// directories are opened.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/salvage/printable.h"

namespace twinloft::repl::salvage {

// path: relative. Errors have the errno: ELOOP (a symbolic link in the path), EXDEV (it leads out), ENOENT,
// ENOTDIR.
Result<Fd> open_beneath(int dir, const std::string& path, int flags, mode_t mode = 0);
Result<Fd> open_directory(int dir, const std::string& path);

struct PlainFile {
  Fd fd;
  struct stat about{};
};
// Opens a plain file for reading. Errors: Errc::invalid (a FIFO, a device or a directory, which is not
// opened, so that the call does not wait).
Result<PlainFile> open_plain_file(int dir, const std::string& name);

Result<struct stat> stat_of(int fd);

struct Entry {
  std::string name;
  unsigned char type = 0;  // DT_*, DT_UNKNOWN resolved
};
// Without "." and "..", in order of name.
Result<std::vector<Entry>> list_directory(int dir);

}  // namespace twinloft::repl::salvage
