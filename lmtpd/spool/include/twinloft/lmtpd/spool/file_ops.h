// The file operations that a delivery's promise depends on, as a seam.
//
// Production uses OsFileOps, one system call a function. Tests put a recorder in between, to see the durable
// order, or a failing one, to see what a full disk or a broken one leaves behind. Every call may block.
// Errors keep errno in Error::sys and name the path.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

struct FileAbout {
  std::uint64_t size = 0;            // bytes
  std::int64_t changed_seconds = 0;  // mtime, since 1970-01-01 00:00 UTC
  std::int64_t changed_ns = 0;
  bool is_link = false;  // a symbolic one
  std::uint64_t inode = 0;
  bool operator==(const FileAbout&) const = default;
};

class FileOps {
 public:
  virtual ~FileOps() = default;

  // An existing directory. `path` is absolute.
  virtual Result<Fd> open_root(const std::string& path) = 0;
  // A directory at `path` (relative) beneath `dir`, neither above it nor on another file system (openat2 with
  // RESOLVE_BENEATH, RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS). EXDEV: the path leads out.
  virtual Result<Fd> open_directory(int dir, const std::string& path) = 0;
  // A new file for writing (O_EXCL, mode 0600).
  virtual Result<Fd> create_file(int dir, const std::string& path) = 0;
  virtual Status write(int fd, ByteSpan data) = 0;
  virtual Status make_directory(int dir, const std::string& path) = 0;  // mode 0700; EEXIST is success
  // Fails with EEXIST rather than replace `to`.
  virtual Status rename(int from_dir, const std::string& from, int to_dir, const std::string& to) = 0;
  // Another name of the same file. Fails with EEXIST rather than replace `to`.
  virtual Status link(int from_dir, const std::string& from, int to_dir, const std::string& to) = 0;
  // Over what is there.
  virtual Status replace(int dir, const std::string& from, const std::string& to) = 0;
  virtual Status unlink(int dir, const std::string& path) = 0;
  // To an existing regular file beneath `dir`, in one write. False: another file has got its name meanwhile,
  // or none.
  virtual Result<bool> append(int dir, const std::string& path, ByteSpan data) = 0;
  // Of `name` in that directory, itself where it is a link; "": of the directory.
  virtual Result<FileAbout> about(int dir, const std::string& name) = 0;
  // Beneath `dir`, as open_directory(). Errc::exhausted: it is larger than that.
  virtual Result<std::string> read_file(int dir, const std::string& path, std::size_t limit) = 0;
  // Without "." and "..". What `see` fails with ends it.
  virtual Status each_entry(int dir, const std::function<Status(const std::string&)>& see) = 0;
  Result<std::vector<std::string>> entries(int dir);
  // As sync_durably() and its siblings in base/durable.h: success means that the file system has not failed.
  virtual Status sync_file(int fd) = 0;         // fsync of a file or of a directory
  virtual Status sync_file_system(int fd) = 0;  // syncfs
  virtual Status check_not_failed(int fd) = 0;  // through a file or directory that this process may write to
};

class OsFileOps final : public FileOps {
 public:
  Result<Fd> open_root(const std::string& path) override;
  Result<Fd> open_directory(int dir, const std::string& path) override;
  Result<Fd> create_file(int dir, const std::string& path) override;
  Status write(int fd, ByteSpan data) override;
  Status make_directory(int dir, const std::string& path) override;
  Status rename(int from_dir, const std::string& from, int to_dir, const std::string& to) override;
  Status link(int from_dir, const std::string& from, int to_dir, const std::string& to) override;
  Status replace(int dir, const std::string& from, const std::string& to) override;
  Status unlink(int dir, const std::string& path) override;
  Result<bool> append(int dir, const std::string& path, ByteSpan data) override;
  Result<FileAbout> about(int dir, const std::string& name) override;
  Result<std::string> read_file(int dir, const std::string& path, std::size_t limit) override;
  Status each_entry(int dir, const std::function<Status(const std::string&)>& see) override;
  Status sync_file(int fd) override;
  Status sync_file_system(int fd) override;
  Status check_not_failed(int fd) override;
};

}  // namespace twinloft::lmtpd
